"""A training that does not fit is refused before it starts, one that fits is not, and the estimate is near the peak."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import fewjoules as fj
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.guard import SNAPSHOT_ROUNDS
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.memory import expected_clients, needs_of
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import InvalidInputError
from fewjoules.runs import memory
from fewjoules.runs.memory import ENVIRONMENT, free_bytes, in_words
from tests.scenario.test_training_scenario import SCENARIO
from tests.test_bad_input import assert_refused, run, write
from tests.test_training_cli import contents

GIBIBYTE = 2**30


# What a training needs.

# on one core, since how far the peaks of several threads coincide depends on what else the machine does
MEASURE = """
import json, os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from pathlib import Path
import numpy as np, torch
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.memory import needs_of
from fewjoules.runs import memory
from fewjoules.runs.training import Task, in_memory, train_task

def task(clients, inputs, outputs, tests=0):
    samples = Samples(torch.randn(clients, inputs), torch.zeros(clients, dtype=torch.int64))
    parts = [np.array([client]) for client in range(clients)]
    model = torch.nn.Linear(inputs, outputs)
    test = Samples(torch.randn(tests, inputs), torch.zeros(tests, dtype=torch.int64)) if tests else None
    return Task(model=model, federation=Federation(samples, parts), test=test, loss=cross_entropy, fleet=None)

def options(clients, changes):
    usual = {"local_steps": 1, "rounds": 3, "learning_rate": 1e-3, "batch_size": 1, "sparsity": 100.0}
    given = usual | changes
    return TrainingOptions.of(**given | {"sparsity": np.full(clients, given["sparsity"])})

def own(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

def recorded(simulator, **how):
    estimate.append(sum(need.bytes for need in needs_of(simulator, **how)))
    return []

def opened(simulator):
    before.append(own("RssAnon"))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    return in_memory(simulator)

clients, changes, sizes = json.loads(sys.argv[1])
estimate, before = [], []
memory.needs_of = recorded
train_task(task(4, 5, 3, 5), options(4, changes))  # compiles and starts threads
train_task(task(clients, *sizes), options(clients, changes), opened=opened)
# pages of libraries do not count: the system takes them back when it likes, which had made peaks smaller
print(json.dumps([estimate[-1], own("VmHWM") - own("RssFile") - before[0]]))
"""
LONG = {"rounds": 22, "error_feedback": False, "learning_rate": 1e-6}  # so that the guard has two snapshots
INPUTS_OUTPUTS = 700, 300
SIZES = {  # clients, options, and other numbers of inputs, outputs and test samples
    "residuals": (300, {}),
    "replaced residuals": (150, {"values": "int8"}),
    "dense messages": (150, {"sparsity": 1.0, "error_feedback": False}),
    "moments": (100, {"inner": "adamw"}),
    "few at a time": (400, {"participation": 0.25}),
    "the server": (1, LONG | {"averaging": 0.1, "outer": "nesterov"}, 3000, 3000),
    "evaluations": (2, {}, 10, 60_000, 1000),
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
@pytest.mark.parametrize("size", SIZES)
def test_the_estimate_is_near_the_peak(size):
    clients, changes, *sizes = SIZES[size]
    command = [sys.executable, "-c", MEASURE, json.dumps([clients, changes, sizes or INPUTS_OUTPUTS])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    estimate, measured = json.loads(done.stdout)
    assert 0.6 < estimate / measured < 1.2


def options(**changes):
    usual = {"local_steps": 1, "sparsity": np.ones(100), "rounds": 10, "learning_rate": 0.1}
    return TrainingOptions.of(**usual | changes)


@pytest.mark.parametrize(("participation", "rounds"), [(1.0, 1), (0.1, 1), (0.1, 10), (0.3, 4), (0.01, 10_000)])
def test_clients_that_are_expected_to_take_part_are_those_that_do(participation, rounds):
    chosen = options(participation=participation, rounds=rounds)
    rng, took_part = np.random.default_rng(0), []
    for _ in range(50):
        each = round(100 * participation)
        took_part.append(len({int(c) for _ in range(min(rounds, 500)) for c in rng.choice(100, each, replace=False)}))
    assert expected_clients(chosen) == pytest.approx(np.mean(took_part), abs=1.0)


@pytest.mark.parametrize(("each", "rounds"), [(100, 21), (100, 40), (10, 30), (10, 90), (1, 60)])
def test_rows_that_the_guard_keeps_are_counted_where_clients_took_part_before_its_snapshots(each, rounds):
    """Beside the estimate: cohorts drawn round by round, with the last row of each client in every snapshot."""
    rng, now, snapshots, most = np.random.default_rng(0), {}, [{}, {}], []
    for number in range(1, rounds + 1):
        now |= {int(client): number for client in rng.choice(100, each, replace=False)}
        most.append(len({row for table in (now, *snapshots) for row in table.items()}))
        if number % SNAPSHOT_ROUNDS == 0:
            snapshots = [snapshots[1], dict(now)]
    chosen = options(participation=each / 100, rounds=rounds)
    samples = Samples(torch.zeros(100, 2), torch.zeros(100, dtype=torch.int64))
    federation = Federation(samples, [np.array([client]) for client in range(100)])
    simulator = Simulator(torch.nn.Linear(2, 2, bias=False), federation, chosen, loss=cross_entropy)
    needs = needs_of(simulator, rows_in_memory=False)
    simulator.close()
    kept = sum(need.bytes for need in needs if re.match("the residuals|.*guard", need.what)) / simulator.store.row_bytes
    assert 0.85 * max(most) <= kept <= 1.1 * max(most)


# Refusals.


def digits_and_limit(monkeypatch, free):
    monkeypatch.setattr(memory, "free_bytes", lambda: free)


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_training_that_does_not_fit_is_refused_and_leaves_no_folder(command, monkeypatch, tmp_path):
    digits_and_limit(monkeypatch, 10_000)
    refusal = run(command, write(tmp_path, SCENARIO), "--device", "cpu", "--out", tmp_path / "out")
    largest = "kB for an evaluation of 256 samples at a time"
    assert_refused(refusal, largest, "kB for what the server keeps", "10 kB are free", "smaller samples", ENVIRONMENT)
    assert not (tmp_path / "out").exists()


def test_a_scheme_that_does_not_fit_is_refused_before_others_are_trained(monkeypatch, tmp_path):
    """The plan with more local steps draws more batches."""
    seen = []
    needs_of = memory.needs_of

    def recorded(simulator, **how):
        seen.append(sum(need.bytes for need in needs_of(simulator, **how)))
        return needs_of(simulator, **how)

    monkeypatch.setattr(memory, "needs_of", recorded)
    schemes = ["--schemes", "dense,flexible", "--device", "cpu"]
    assert run("compare", write(tmp_path, SCENARIO), *schemes, "--out", tmp_path / "fits").exit_code == 0
    dense, flexible = seen[:2]
    assert dense < flexible
    digits_and_limit(monkeypatch, (flexible + dense) // 2)
    refusal = run("compare", tmp_path / "scenario.toml", *schemes, "--out", tmp_path / "out")
    assert_refused(refusal, "scheme flexible: training needs", "smaller batches")
    assert not (tmp_path / "out").exists()


def test_whoever_insists_may_train(monkeypatch, tmp_path):
    digits_and_limit(monkeypatch, 10_000)
    monkeypatch.setenv(ENVIRONMENT, "off")
    assert run("train", write(tmp_path, SCENARIO), "--device", "cpu", "--out", tmp_path / "out").exit_code == 0


@pytest.mark.parametrize("free", [None, 100 * GIBIBYTE])
def test_what_fits_or_may_fit_is_trained(free, monkeypatch, tmp_path):
    digits_and_limit(monkeypatch, free)
    assert run("train", write(tmp_path, SCENARIO), "--device", "cpu", "--out", tmp_path / "out").exit_code == 0


def train_in_python(**changes):
    clients = [(np.zeros((1, 100), np.float32), np.zeros(1, np.int64))] * 2000
    usual = {"local_steps": 1, "sparsity": 100.0, "rounds": 11, "learning_rate": 0.1, "device": "cpu"}
    return fj.train(torch.nn.Linear(100, 120_000, bias=False), clients=clients, **usual | changes)


def test_twelve_million_parameters_and_two_thousand_clients_are_refused_in_python(monkeypatch):
    digits_and_limit(monkeypatch, 150 * 10**9)
    monkeypatch.setattr(memory, "free_disk_bytes", lambda _folder: 5 * 10**9)
    says = r"117 GB of disk \(117 GB for what 2,000 clients keep beyond 69.8 GiB of memory\), and 5.0 GB are free; "
    with pytest.raises(InvalidInputError, match=says + "what helps: a larger memory_gib, another store_dir"):
        train_in_python()
    with pytest.raises(InvalidInputError, match='kept_values = "bfloat16", momentum_state = "reset", guard = false'):
        train_in_python(inner="momentum", momentum_state="kept", error_feedback=False)
    with pytest.raises(InvalidInputError, match=r" of memory .*96 GB for the residuals.*a smaller memory_gib"):
        train_in_python(memory_gib=1000.0)
    with pytest.raises(InvalidInputError, match=r"disk \(96 GB for .* keep beyond 0 GiB .*a smaller participation"):
        train_in_python(memory_gib=0.0, kept_values="bfloat16")


def test_a_checkpoint_that_the_disk_cannot_hold_is_refused_before_training(monkeypatch, tmp_path):
    digits_and_limit(monkeypatch, 10**12)
    monkeypatch.setattr(memory, "free_disk_bytes", lambda _folder: 5 * 10**9)
    says = r"disk \(192 GB for what 2,000 clients keep, in a checkpoint\), and 5.0 GB are free; what helps: "
    with pytest.raises(InvalidInputError, match=says + 'a folder on another disk, .*kept_values = "bfloat16"') as found:
        train_in_python(out=tmp_path / "run", memory_gib=400.0)
    assert "store_dir" not in str(found.value)
    assert not (tmp_path / "run").exists()


def test_rows_beside_the_checkpoint_of_a_resumed_run_are_on_the_disk_already(monkeypatch, tmp_path):
    clients = [(np.zeros((1, 100), np.float32), np.zeros(1, np.int64))] * 4
    usual = {"local_steps": 1, "sparsity": 100.0, "rounds": 3, "learning_rate": 0.1, "checkpoint_seconds": 0.0}
    given, model = {"clients": clients, "device": "cpu"}, torch.nn.Linear(100, 50)

    class Ends(fj.Callback):
        def on_save_checkpoint(self, run):
            raise RuntimeError("lost power")

    with pytest.raises(RuntimeError, match="lost power"):
        fj.train(model, out=tmp_path / "run", callbacks=[Ends()], **given, **usual)
    monkeypatch.setattr(memory, "free_disk_bytes", lambda _folder: 10_000)
    with pytest.raises(InvalidInputError, match="81 kB for what 4 clients keep, in a checkpoint"):
        fj.train(model, out=tmp_path / "new", **given, **usual)
    assert len(fj.resume(tmp_path / "run", model=model, **given).metrics) == 3


@pytest.mark.parametrize("bad", [{"memory_gib": -1.0}, {"memory_gib": "much"}, {"store_dir": "/no/such/folder"}])
def test_a_store_that_makes_no_sense_is_refused(bad):
    with pytest.raises(InvalidInputError, match=f"{next(iter(bad))} must be"):
        train_in_python(**bad)


# Memory that runs out all the same.


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 34.5 GiB for an array"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
    ids=["numpy", "torch"],
)
def test_memory_that_runs_out_is_one_sentence_and_the_run_goes_on_later(error, monkeypatch, tmp_path):
    folder, start_round = tmp_path / "out", Simulator.start_round

    def fails_late(simulator, **how):
        if simulator.state.round == 1:
            raise error
        return start_round(simulator, **how)

    scenario = write(tmp_path, SCENARIO)
    with monkeypatch.context() as patch:
        patch.setattr(Simulator, "start_round", fails_late)
        done = run("train", scenario, "--device", "cpu", "--checkpoint-seconds", "0", "--out", folder)
    assert done.exit_code == 1
    assert re.fullmatch("error: there is not enough free memory .*kept\n", done.stderr)
    assert run("train", "--resume", folder).exit_code == 0
    assert run("train", scenario, "--device", "cpu", "--out", tmp_path / "whole").exit_code == 0
    for name in ("ledger.parquet", "metrics.parquet", "model.safetensors"):
        assert contents(folder)[name] == contents(tmp_path / "whole")[name]


# What is free.


def system(root, groups="", **files):
    """A made-up system: its memory, the control groups of this process, and their files."""
    text = {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:    {8 * 2**20} kB\n", "proc/self/cgroup": groups}
    for name, content in (text | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def group(path, limit, usage, cached, old=False):
    names = ("limit_in_bytes", "usage_in_bytes", "total_inactive_file") if old else ("max", "current", "inactive_file")
    mount = "sys/fs/cgroup/memory" if old else "sys/fs/cgroup"
    return {
        f"{mount}/{path}memory.{names[0]}": f"{limit}\n",
        f"{mount}/{path}memory.{names[1]}": f"{usage}\n",
        f"{mount}/{path}memory.stat": f"anon 5\n{names[2]} {cached}\nother 7\n",
    }


def test_without_limits_the_available_memory_is_free(tmp_path):
    assert free_bytes(system(tmp_path)) == 8 * GIBIBYTE
    assert free_bytes(system(tmp_path, "0::/a\n", **group("a/", "max", 5, 5))) == 8 * GIBIBYTE


@pytest.mark.parametrize("old", [False, True])
def test_a_limit_of_a_control_group_counts_and_cached_pages_are_free(old, tmp_path):
    line = "4:cpu,memory:/a/b\n" if old else "3:cpu:/\n0::/a/b\n"
    files = group("a/b/", 4 * GIBIBYTE, 3 * GIBIBYTE, 1000, old)
    assert free_bytes(system(tmp_path, line, **files)) == GIBIBYTE + 1000


@pytest.mark.parametrize("old", [False, True])
def test_a_limit_further_up_counts(old, tmp_path):
    line = "4:memory:/a/b\n" if old else "0::/a/b\n"
    files = group("a/b/", 4 * GIBIBYTE, GIBIBYTE, 0, old) | group("", 2 * GIBIBYTE, GIBIBYTE, 10, old)
    assert free_bytes(system(tmp_path, line, **files)) == GIBIBYTE + 10


def test_a_limit_that_is_exceeded_leaves_nothing(tmp_path):
    assert free_bytes(system(tmp_path, "0::/\n", **group("", 5, 10, 0))) == 0


@pytest.mark.parametrize(
    ("count", "words"),
    [(999, "1 kB"), (5_400_000, "5.4 MB"), (34_486_400_000, "34 GB"), (2_500_000_000_000, "2.5 TB")],
)
def test_bytes_in_words(count, words):
    assert in_words(count) == words


def test_this_system_has_free_memory_or_does_not_tell():
    free = free_bytes()
    assert free is None or 0 <= free < 2**60
