"""A network of the user's own, named in the scenario, is planned, trained and resumed from the command line."""

import json
import sys

import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

from fewjoules.cli import app

NETWORKS = """
import functools

from torch import nn

def small(channels, height, width, classes):
    layers = nn.Linear(channels * height * width, 12), nn.BatchNorm1d(12), nn.Linear(12, classes)
    return nn.Sequential(nn.Flatten(), *layers)

def tied(channels, height, width, classes):
    first, second = nn.Linear(channels * height * width, 8), nn.Linear(8, 8)
    third = nn.Linear(8, 8)
    third.weight = second.weight
    return nn.Sequential(nn.Flatten(), first, second, nn.ReLU(), third, nn.Linear(8, classes))

def lazy(channels, height, width, classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))

partial = functools.partial(small)
"""
SCENARIO = """
[model]
architecture = "my_networks:small"
[rounds]
kind = "power-law"
tau = 100.0
c = 0.03
a = 0.5
q = 0.5
[limits]
sparsity = {min = 1.0, max = 50.0}
local_steps = {min = 1, max = 3}
[[device]]
count = 3
joules_per_step = 1e-3
joules_per_bit = 1e-7
[training]
data = "digits"
learning_rate = 0.1
rounds = 4
"""
PARAMETERS, STATISTICS = 64 * 12 + 12 + 24 + 130, 24


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_networks.py").write_text(NETWORKS)
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    monkeypatch.delitem(sys.modules, "my_networks", raising=False)
    yield tmp_path
    sys.modules.pop("my_networks", None)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_it_is_planned_with_its_own_number_of_parameters(folder):
    done = run("plan", folder / "scenario.toml")
    assert done.exit_code == 0, done.output
    assert f"{PARAMETERS:,} parameters" in done.stdout


def test_it_is_trained_and_its_finished_run_is_reported_again(folder):
    done = run("train", folder / "scenario.toml", "--device", "cpu", "--out", folder / "run")
    assert done.exit_code == 0, done.output
    told = json.loads((folder / "run" / "run.json").read_text())
    assert (told["architecture"], told["parameters"], told["rounds"]) == ("my_networks:small", PARAMETERS, 4)
    assert run("train", "--resume", folder / "run").exit_code == 0


@pytest.mark.parametrize("name", ["tied", "partial"])
def test_weights_may_be_shared_and_a_function_may_be_any_callable(folder, name):
    (folder / "scenario.toml").write_text(SCENARIO.replace("small", name))
    done = run("train", folder / "scenario.toml", "--device", "cpu", "--out", folder / "run")
    assert done.exit_code == 0, done.output
    trained = load_file(folder / "run" / "model.safetensors")
    if name == "tied":
        assert trained["2.weight"].equal(trained["4.weight"])


def stopped_run(folder, monkeypatch):
    """A run that was interrupted after its second round."""
    from fewjoules.runs import folder as runs

    real = runs.train_task

    def interrupted(task, options, *, should_stop=None, **how):
        rounds = []
        stop = lambda: len(rounds) >= 2  # noqa: E731
        return real(task, options, **how | {"on_round": rounds.append, "should_stop": stop})

    monkeypatch.setattr(runs, "train_task", interrupted)
    done = run("train", folder / "scenario.toml", "--device", "cpu", "--out", folder / "run", "--checkpoint-seconds", 0)
    monkeypatch.setattr(runs, "train_task", real)
    assert done.exit_code == 130, done.output


def test_it_is_resumed(folder, monkeypatch):
    stopped_run(folder, monkeypatch)
    done = run("train", "--resume", folder / "run")
    assert done.exit_code == 0, done.output
    assert json.loads((folder / "run" / "run.json").read_text())["rounds"] == 4


def test_a_changed_network_is_not_resumed(folder, monkeypatch):
    stopped_run(folder, monkeypatch)
    (folder / "my_networks.py").write_text(NETWORKS + "# changed\n")
    done = run("train", "--resume", folder / "run")
    assert done.exit_code == 2
    assert "architecture source" in done.stderr


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "my_networks:large",
            "model.architecture 'my_networks:large' must name a function of my_networks; 'large' is not one",
        ),
        ("my_networks:lazy", "model.architecture 'my_networks:lazy' cannot be trained"),
        ("nowhere:small", "model.architecture 'nowhere:small' must name a module that can be imported"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_its_file(folder, name, sentence):
    (folder / "scenario.toml").write_text(SCENARIO.replace("my_networks:small", name))
    done = run("plan", folder / "scenario.toml")
    assert done.exit_code == 2
    assert str(folder / "scenario.toml") in done.stderr
    assert sentence in done.stderr
