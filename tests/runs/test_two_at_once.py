"""Two commands on one folder: the second is refused, and what the first leaves is whole."""

import json
import os
import signal
import subprocess
import sys

import pytest

from fewjoules.ledger.parquet import read_table
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.provenance import KINDS
from tests.scenario.test_training_scenario import SCENARIO

ROUNDS = 60
SECONDS = 600


def started(folder, *arguments, itself=()):
    """Start ``fewjoules``; ``itself`` is a file and a signal that the process sends itself once the file is there."""
    program = ["tests.runs.signalling", *map(str, itself)] if itself else ["fewjoules"]
    command = [sys.executable, "-m", *program, *arguments, "--device", "cpu", "--checkpoint-seconds", "0"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def refused_beside(first, folder, *arguments):
    """Start another process while the first one has stopped itself: it is refused, and the first one goes on."""
    state = os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    try:
        assert state.si_code == os.CLD_STOPPED, first.communicate()
        second = started(folder, *arguments)
        _, refusal = second.communicate(timeout=SECONDS)
    finally:
        first.send_signal(signal.SIGCONT)
    _, errors = first.communicate(timeout=SECONDS)
    assert second.returncode == 2, refusal
    assert f"process {first.pid} on" in refusal
    assert first.returncode == 0, errors


@pytest.fixture
def scenario(tmp_path):
    (tmp_path / "scenario.toml").write_text(SCENARIO.replace("\nrounds = 2\n", f"\nrounds = {ROUNDS}\n"))
    return tmp_path


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_run_that_goes_on_is_not_resumed_beside_itself(scenario, command):
    extra = ["--schemes", "flexible"] if command == "compare" else []
    own = scenario / "out" / ("flexible" if command == "compare" else ".")
    stops = own / "checkpoint.safetensors", "SIGSTOP"
    first = started(scenario, command, "scenario.toml", "--out", "out", *extra, itself=stops)
    refused_beside(first, scenario, command, "--resume", "out")
    told = json.loads((own / "run.json").read_text())
    ledger = read_table(own / "ledger.parquet", LEDGER)
    assert told["rounds"] == ROUNDS == read_table(own / "metrics.parquet", METRICS).size
    assert ledger.size == ROUNDS * told["clients"]
    assert sum(ledger[f"{kind}_joules"].sum() for kind in KINDS) == pytest.approx(told["joules"])
    assert not list((scenario / "out").rglob(".lock"))


def test_of_two_runs_that_begin_at_once_one_is_refused(scenario):
    """While the first one writes its first files, only its lock tells the folder from one that can be used again."""
    command = "train", "scenario.toml", "--out", "out"
    first = started(scenario, *command, itself=(scenario / "out" / "plan.json", "SIGSTOP"))
    refused_beside(first, scenario, *command)
    assert json.loads((scenario / "out" / "run.json").read_text())["rounds"] == ROUNDS


def test_a_killed_run_is_resumed(scenario):
    killed = scenario / "out" / "checkpoint.safetensors", "SIGKILL"
    first = started(scenario, "train", "scenario.toml", "--out", "out", itself=killed)
    first.communicate(timeout=SECONDS)
    assert first.returncode == -signal.SIGKILL
    assert not (scenario / "out" / "run.json").exists()
    second = started(scenario, "train", "--resume", "out")
    _, errors = second.communicate(timeout=SECONDS)
    assert second.returncode == 0, errors
    assert json.loads((scenario / "out" / "run.json").read_text())["rounds"] == ROUNDS
