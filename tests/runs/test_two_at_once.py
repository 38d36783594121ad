"""Two commands on one folder: the second is refused, and what the first leaves is whole."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from fewjoules.ledger.parquet import read_table
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.provenance import KINDS
from tests.scenario.test_training_scenario import SCENARIO

ROUNDS = 400


def started(folder, *arguments):
    command = [sys.executable, "-m", "fewjoules", *arguments, "--device", "cpu", "--checkpoint-seconds", "0"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def scenario(tmp_path):
    (tmp_path / "scenario.toml").write_text(SCENARIO.replace("\nrounds = 2\n", f"\nrounds = {ROUNDS}\n"))
    return tmp_path


def wait_for(file):
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_run_that_goes_on_is_not_resumed_beside_itself(scenario, command):
    extra = ["--schemes", "flexible"] if command == "compare" else []
    first = started(scenario, command, "scenario.toml", "--out", "out", *extra)
    own = scenario / "out" / ("flexible" if command == "compare" else ".")
    wait_for(own / "checkpoint.safetensors")
    second = started(scenario, command, "--resume", "out")
    _, refusal = second.communicate(timeout=60)
    _, errors = first.communicate(timeout=120)
    assert second.returncode == 2, refusal
    assert f"process {first.pid} on" in refusal
    assert first.returncode == 0, errors
    told = json.loads((own / "run.json").read_text())
    ledger = read_table(own / "ledger.parquet", LEDGER)
    assert told["rounds"] == ROUNDS == read_table(own / "metrics.parquet", METRICS).size
    assert ledger.size == ROUNDS * told["clients"]
    assert sum(ledger[f"{kind}_joules"].sum() for kind in KINDS) == pytest.approx(told["joules"])
    assert not list((scenario / "out").rglob(".lock"))


def test_of_two_runs_that_begin_at_once_one_is_refused(scenario):
    both = [started(scenario, "train", "scenario.toml", "--out", "out") for _ in range(2)]
    codes = sorted(process.wait(timeout=180) for process in both)
    for process in both:
        process.communicate()
    assert codes == [0, 2]
    assert json.loads((scenario / "out" / "run.json").read_text())["rounds"] == ROUNDS


def test_a_killed_run_is_resumed(scenario):
    first = started(scenario, "train", "scenario.toml", "--out", "out")
    wait_for(scenario / "out" / "checkpoint.safetensors")
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    second = started(scenario, "train", "--resume", "out")
    _, errors = second.communicate(timeout=120)
    assert second.returncode == 0, errors
