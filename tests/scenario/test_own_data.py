"""Data of the user's own, named in the scenario, are planned for, trained on and resumed."""

import json
import sys

import pytest
import torch
from pyarrow import parquet

import fewjoules as fj
from fewjoules.runs.task import identity_of_task, prepare
from tests.scenario.test_own_architecture import SCENARIO, run, stopped_run

MODULE = """
import numpy as np
from torch import nn
from torch.nn import functional

def rows(count, seed=0):
    draws = np.random.default_rng(seed)
    inputs = draws.standard_normal((count, 6)).astype(np.float32)
    return inputs, (inputs[:, 0] + inputs[:, 1] > 0).astype(np.int64)

def unequal():
    clients = [rows(1, 1), rows(40, 2), rows(200, 3)]
    return {"clients": clients, "test": rows(200, 9), "metrics": {"largest": lambda outputs, targets: outputs.amax(1)}}

def whole():
    return {"train": rows(120), "test": rows(200, 9)}

class Images:
    def __len__(self):
        return 60

    def __getitem__(self, number):
        image = np.zeros((1, 4, 4), dtype=np.uint8)
        image[0, number % 4] = 200
        return image, number % 4

def images():
    return {"train": Images(), "test": Images(), "classes": 4}

def numbers():
    inputs, _ = rows(90)
    return {"train": (inputs, inputs.sum(1, keepdims=True)), "loss": functional.mse_loss}

def network():
    return nn.Linear(6, 2)

def scalar_network():
    return nn.Linear(6, 1)

def nothing():
    return [rows(3)]

def both():
    return {"train": rows(3), "clients": [rows(3)]}

def misspelt():
    return {"trains": rows(3)}

def broken():
    raise OSError("no such disk")

def lossless():
    return {"train": numbers()["train"]}

def two():
    return {"clients": [rows(5), rows(5)]}

def ragged():
    return {"clients": [rows(5), rows(5), (np.zeros((5, 7)), rows(5)[1])]}
"""
OWN = SCENARIO.replace("my_networks:small", "my_data:network").replace('"digits"', '"my_data:unequal"')
OWN = OWN.replace("max = 50.0", "max = 7.0")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_data.py").write_text(MODULE)
    sys.modules.pop("my_data", None)
    yield tmp_path
    sys.modules.pop("my_data", None)


def written(folder, text=OWN):
    (folder / "scenario.toml").write_text(text)
    return folder / "scenario.toml"


def with_data(name, *lines, network="network"):
    text = OWN.replace("my_data:unequal", f"my_data:{name}").replace("my_data:network", f"my_data:{network}")
    return text + "".join(f"{line}\n" for line in lines)


def test_plan_and_train_work_with_unequal_clients(folder):
    assert "14 parameters" in run("plan", written(folder)).stdout
    done = run("train", folder / "scenario.toml", "--device", "cpu", "--out", folder / "run")
    assert done.exit_code == 0, done.output
    told = json.loads((folder / "run" / "run.json").read_text())
    assert (told["data"], told["clients"], told["rounds"]) == ("my_data:unequal", 3, 4)
    assert told["test_accuracy"] is not None
    assert "test_largest" in parquet.read_schema(folder / "run" / "metrics.parquet").names


def test_a_run_ends_at_a_metric_of_ones_own(folder):
    text = with_data("unequal", 'target_metric = "largest >= -1e3"')
    done = run("train", written(folder, text), "--device", "cpu", "--out", folder / "run")
    assert done.exit_code == 0, done.output
    told = json.loads((folder / "run" / "run.json").read_text())
    assert (told["target_metric"], told["stop_reason"]) == ("largest >= -1e3", "target metric")


@pytest.mark.parametrize(
    ("lines", "sizes"),
    [
        ((), [40, 40, 40]),
        (('partition = "shards"', "shards_per_client = 1"), [40, 40, 40]),
        (('partition = "file"', 'partition_file = "clients.csv"'), [1, 1, 2]),
    ],
)
def test_one_data_set_is_divided_by_the_partition_of_the_scenario(folder, lines, sizes):
    (folder / "clients.csv").write_text("sample,client\n5,0\n6,1\n7,2\n8,2\n")
    task = prepare(fj.Scenario.from_toml(written(folder, with_data("whole", *lines))), torch.device("cpu"))
    assert [part.size for part in task.federation.parts] == sizes


def test_a_network_of_fewjoules_learns_from_images_of_a_data_set(folder):
    text = with_data("images").replace("my_data:network", "softmax").replace("rounds = 4", "rounds = 30")
    done = run("train", written(folder, text), "--device", "cpu", "--out", folder / "run")
    assert done.exit_code == 0, done.output
    told = json.loads((folder / "run" / "run.json").read_text())
    assert (told["parameters"], told["test_accuracy"]) == (16 * 4 + 4, 1.0)


@pytest.mark.parametrize("lines", [(), ("data_memory_gib = 0.0",)])
def test_a_loss_of_ones_own_trains_without_test_data(folder, lines):
    text = with_data("numbers", *lines, network="scalar_network")
    done = run("train", written(folder, text), "--device", "cpu", "--out", folder / "run")
    assert done.exit_code == 0, done.output
    assert json.loads((folder / "run" / "run.json").read_text())["test_loss"] is None


def test_a_run_is_resumed_and_changed_data_are_refused(folder, monkeypatch):
    written(folder)
    stopped_run(folder, monkeypatch)
    assert run("train", "--resume", folder / "run").exit_code == 0
    stopped_run_again = folder / "again"
    stopped_run_again.mkdir()
    (stopped_run_again / "my_data.py").write_text(MODULE)
    written(stopped_run_again)
    sys.modules.pop("my_data", None)
    stopped_run(stopped_run_again, monkeypatch)
    sys.modules.pop("my_data", None)
    (stopped_run_again / "my_data.py").write_text(MODULE.replace("rows(40, 2)", "rows(41, 2)"))
    done = run("train", "--resume", stopped_run_again / "run")
    assert done.exit_code == 2
    assert "data.source was" in done.stderr


def test_samples_that_only_the_function_can_see_change_the_identity(folder):
    (folder / "rows.txt").write_text("30")
    here = str(folder / "rows.txt")
    (folder / "my_data.py").write_text(MODULE.replace("rows(120)", f"rows(int(np.loadtxt({here!r})), 5)"))
    scenario = fj.Scenario.from_toml(written(folder, with_data("whole")))
    first = identity_of_task(prepare(scenario, torch.device("cpu")))
    assert identity_of_task(prepare(scenario, torch.device("cpu"))) == first
    (folder / "rows.txt").write_text("31")
    assert identity_of_task(prepare(scenario, torch.device("cpu"))) != first


@pytest.mark.parametrize(
    ("name", "lines", "says"),
    [
        ("absent", (), "training.data 'my_data:absent' must name a function of my_data"),
        ("nothing", (), "'my_data:nothing' must return a dict, got list"),
        ("both", (), "must return either clients or train, got both"),
        ("misspelt", (), "clients, train, test, loss, metrics, classes, got 'trains'"),
        ("broken", (), "calling it failed: OSError: no such disk"),
        ("lossless", (), "the targets are numbers, not labels"),
        ("two", (), "must return the data of each of 3 devices, got 2 clients"),
        ("ragged", (), "clients[2] must have inputs like those of clients[0]"),
        ("unequal", ('partition = "iid"',), "training.partition is unused"),
        ("unequal", ("data_memory_gib = -1.0",), "training.data_memory_gib must be at least 0"),
        ("numbers", ('partition = "shards"', "shards_per_client = 1"), "needs a label for each sample"),
        ("two", ("target_accuracy = 0.5",), "each of 3 devices"),
        ("numbers", ("target_loss = 0.5",), "training.target_loss needs test data"),
        ("numbers", ('target_metric = "f1 >= 0.5"',), "training.target_metric needs test data"),
        (
            "unequal",
            ('target_metric = "f1 >= 0.5"',),
            "a metric that training.data 'my_data:unequal' returns, largest,",
        ),
        ("whole", ('target_metric = "f1 >= 0.5"',), "a metric that training.data 'my_data:whole' returns, none, got"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(folder, name, lines, says):
    network = "scalar_network" if name == "numbers" else "network"
    done = run("train", written(folder, with_data(name, *lines, network=network)), "--out", folder / "run")
    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("name", "network", "says"),
    [
        ("unequal", "softmax", "must return classes"),
        ("images", "cnn", ""),
        ("images", "lenet5", "needs larger images"),
        ("images", "gpt", "needs text"),
        ("images", "my_data:rows", "must be a function of (); calling it with () failed"),
    ],
)
def test_networks_that_do_not_fit_the_data_are_refused_by_a_plan(folder, name, network, says):
    done = run("plan", written(folder, with_data(name).replace("my_data:network", network)))
    assert done.exit_code == (2 if says else 0), done.output
    assert says in done.stderr
