"""A run that was stopped or killed goes on as if nothing had happened, and the bytes of its results show it.

Kills come in two kinds. Real ones: SIGKILL after random delays. And exhaustive ones: one run is recorded before every
operation on its folder, each recorded state is what a kill at that moment would have left, and each is resumed.

Run as a program this module is a server that forks ready-made ``fewjoules`` processes, since importing takes seconds.
"""

import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fewjoules.cli import main
from fewjoules.engine.algorithm.sampling import draw_batches
from fewjoules.runs.folder import is_finished
from tests.datasets.files import write_mnist
from tests.runs.signalling import signal_after
from tests.scenario.test_training_scenario import ROUNDS, SCENARIO, trained_with
from tests.test_bad_input import assert_refused, run, write
from tests.test_training_cli import TABLES, contents, summary_of

LIVELY = (  # every random stream and every part of the state is in play
    'partition = "dirichlet"',
    "dirichlet_concentration = 1.0",
    "momentum = 0.5",
    "batch_size = 8",
    "batch_growth = 1.02",
    "participation = 0.5",
    "failure_probability = 0.2",
    'channel = "drawn"',
    'downlink = "charged"',
    "downlink_sparsity = 5.0",
    'downlink_values = "qsgd"',
)
CHECKPOINT = "checkpoint.safetensors"
EVERY_ROUND = ["--checkpoint-seconds", "0", "--device", "cpu"]


def lively(*lines, rounds=3):
    return trained_with(*LIVELY, *lines).replace(ROUNDS, f"rounds = {rounds}")


def results(folder):
    return {name: (folder / name).read_bytes() for name in TABLES}


# The server of processes.


def serve():
    """Fork a process for each request on stdin, signal it as the request says, and answer with its exit code."""
    draw_batches(0, np.array([0]), np.array([1]), 0, np.array([[1]]))  # loads a compiled kernel, starts no thread
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            carry_out(request)
        sys.stdout.write(f"{exit_code_of(child, request)}\n")
        sys.stdout.flush()


def carry_out(request):
    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(request["logs"], name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    if request["file_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"], resource.RLIM_INFINITY))
    if request["appears"] is not None:
        signal_after(Path(request["appears"]), request["signals"])
    sys.argv = ["fewjoules", *request["arguments"]]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def exit_code_of(child, request):
    """Wait for the process; it gets the signals ``after`` seconds, or sends them itself when a file ``appears``."""
    signals = list(request["signals"]) if request["appears"] is None else []
    due = time.monotonic() + request["after"]
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if signals and time.monotonic() >= due:
            os.kill(child, signals.pop(0))
        time.sleep(0.001)


class Program:
    """``fewjoules`` in processes of their own."""

    def __init__(self, logs):
        self.logs = logs
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "tests.runs.test_resume"]
        root = Path(__file__).parents[2]
        self.server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=root
        )

    def __call__(self, *arguments, signals=(), after=0.0, appears=None, file_bytes=None):
        request = {"arguments": [str(a) for a in arguments], "logs": str(self.logs), "file_bytes": file_bytes}
        request |= {"signals": list(signals), "after": after, "appears": appears and str(appears)}
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    @property
    def stderr(self):
        return (self.logs / "stderr").read_text(encoding="utf-8")

    def close(self):
        self.server.stdin.close()
        self.server.stdout.close()
        self.server.wait(timeout=600)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    started = Program(tmp_path_factory.mktemp("logs"))
    assert started("--version") == 0
    yield started
    started.close()


# Kills at random moments.


def finish(program, command, folder, scenario, delays):
    """Begin and go on until the run is finished, killing each process after its delay; how many were killed."""
    for killed, delay in enumerate(delays):
        begun = (folder / "settings.json").exists() and (command == "compare" or (folder / "plan.json").exists())
        if not begun:  # see the test of kills while the folder is made
            shutil.rmtree(folder, ignore_errors=True)
        how = ["--resume", folder] if begun else [scenario, "--out", folder]
        code = program(command, *how, *EVERY_ROUND, signals=[signal.SIGKILL], after=delay)
        if code == 0:
            return killed
        assert code == -signal.SIGKILL, program.stderr
    raise AssertionError("the run never came to its end")


def random_delays(rng, seconds, kills):
    """``kills`` delays spread over a run of so many seconds, then all the time it takes."""
    yield from rng.uniform(0.0, seconds, kills)
    yield 600.0


@pytest.mark.parametrize(("architecture", "seed"), [("softmax", 1), ("cnn", 2)])
def test_ten_kills_at_random_moments_change_no_byte(architecture, seed, program, tmp_path):
    scenario = write(tmp_path, lively(rounds=6).replace("softmax", architecture))
    began = time.monotonic()
    assert program("train", scenario, "--out", tmp_path / "whole", *EVERY_ROUND) == 0
    seconds, rng = time.monotonic() - began, np.random.default_rng(seed)
    killed, runs = 0, 0
    while killed < 10:
        folder = tmp_path / f"killed-{runs}"
        killed += finish(program, "train", folder, scenario, random_delays(rng, seconds, 10 - killed))
        assert results(folder) == results(tmp_path / "whole")
        runs += 1


def test_kills_change_no_byte_of_a_comparison(program, tmp_path):
    scenario = write(tmp_path, lively(rounds=3))
    began = time.monotonic()
    assert program("compare", scenario, "--out", tmp_path / "whole", *EVERY_ROUND) == 0
    delays = random_delays(np.random.default_rng(3), time.monotonic() - began, 3)
    assert finish(program, "compare", tmp_path / "killed", scenario, delays) >= 1
    schemes = [path.name for path in (tmp_path / "whole").iterdir() if path.is_dir()]
    assert len(schemes) == 6
    for scheme in schemes:
        assert results(tmp_path / "killed" / scheme) == results(tmp_path / "whole" / scheme)


# Kills at every moment.

OPERATIONS = ("mkdir", "fsync", "replace", "unlink", "rmdir")
REASONS = {
    "rounds": (),
    "target accuracy": ("target_accuracy = 0.5", "evaluate_every = 1"),
    "energy budget": ("energy_budget_joules = 0.012",),
    "time budget": ("time_budget_seconds = 0.025",),
    "no device left": ('sampling = "battery"', 'availability_trace = "trace.csv"', "evaluate_every = 1"),
}
TRACE = """\
device,from_seconds,to_seconds
0,0,0.01
1,0,0.03
2,0,0.02
3,0.1,0.11
2,0.1,0.13
"""


class Wreck:
    """A whole run, and every different state of its folder on the way there."""

    def __init__(self, place, reason):
        text = lively(*REASONS[reason], rounds=3 if reason == "rounds" else 30)
        (place / "trace.csv").write_text(TRACE)
        if "battery" in text:
            text = text.replace('name = "far"', 'name = "far"\nbattery_joules = 0.1')
        self.scenario, self.whole, self.states = write(place, text), place / "whole", []
        with pytest.MonkeyPatch.context() as patch:
            for name in OPERATIONS:
                patch.setattr(os, name, self._recording(getattr(os, name)))
            done = run("train", self.scenario, "--out", self.whole, *EVERY_ROUND)
        assert done.exit_code == 0, done.stderr
        assert summary_of(self.whole)["stop_reason"] == reason
        self.rounds = summary_of(self.whole)["rounds"]

    def _recording(self, operation):
        def recorded(*arguments, **named):
            state = self._state()
            if state is not None and state not in self.states:
                self.states.append(state)
            return operation(*arguments, **named)

        return recorded

    def _state(self):
        """Folders, and files with their bytes; a file that was being written is cut in half."""
        if not self.whole.exists():
            return None
        state = {str(path.relative_to(self.whole)): None for path in self.whole.rglob("*") if path.is_dir()}
        for name, data in contents(self.whole).items():
            state[name] = data[: len(data) // 2] if name.endswith(".partial") else data
        return state

    def left_while(self, phase):
        return [state for state in self.states if self.phase_of(state) == phase]

    def phase_of(self, state):
        if "settings.json" not in state:
            return "starting"
        if "run.json" in state:
            return "closing"
        return "finishing" if CHECKPOINT in state and self.round_of(state) == self.rounds else "training"

    def round_of(self, state):
        """The round in the header of a checkpoint: a length in 8 bytes, then JSON."""
        data = state[CHECKPOINT]
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return json.loads(header["__metadata__"]["fewjoules"])["round"]


def restore(state, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in sorted(state.items()):
        if data is None:
            (folder / name).mkdir(parents=True, exist_ok=True)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def wrecks(tmp_path_factory):
    made = {}

    def of(reason):
        if reason not in made:
            made[reason] = Wreck(tmp_path_factory.mktemp("wreck"), reason)
        return made[reason]

    return of


def resumed(state, folder):
    done = run("train", "--resume", restore(state, folder), "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    return folder


def test_the_record_of_a_run_holds_every_phase(wrecks):
    wreck = wrecks("rounds")
    phases = Counter(wreck.phase_of(state) for state in wreck.states)
    assert all(phases[phase] >= 4 for phase in ("starting", "training", "finishing", "closing")), phases
    rounds = {wreck.round_of(state) for state in wreck.left_while("training") if CHECKPOINT in state}
    assert rounds == set(range(1, wreck.rounds))


@pytest.mark.parametrize("reason", ["rounds", "no device left"])
def test_a_kill_during_training_changes_no_byte(reason, wrecks, tmp_path):
    wreck = wrecks(reason)
    for state in wreck.left_while("training")[:: 1 if reason == "rounds" else 4]:
        assert results(resumed(state, tmp_path / "run")) == results(wreck.whole), sorted(state)


PAST = "the checkpoint of the last round does not say that the run is over, and a resumed run trains another round"


@pytest.mark.parametrize(
    "reason",
    [
        "rounds",
        *(pytest.param(reason) for reason in [*REASONS][1:]),
    ],
)
def test_a_kill_while_results_are_written_changes_no_byte(reason, wrecks, tmp_path):
    wreck = wrecks(reason)
    for state in wreck.left_while("finishing"):
        folder = resumed(state, tmp_path / "run")
        assert summary_of(folder)["rounds"] == wreck.rounds
        assert results(folder) == results(wreck.whole), sorted(state)


def test_after_a_kill_while_the_folder_is_made_the_run_goes_on_or_begins_again(wrecks, tmp_path):
    wreck = wrecks("rounds")
    for state in wreck.left_while("starting"):
        folder = restore(state, tmp_path / "run")
        again = [["--resume", folder], [wreck.scenario, "--out", folder]]
        assert any(run("train", *how, "--device", "cpu").exit_code == 0 for how in again), sorted(state)
        assert results(folder) == results(wreck.whole)


def test_after_a_kill_at_the_very_end_resuming_leaves_the_folder_of_a_whole_run(wrecks, tmp_path):
    wreck = wrecks("rounds")
    for state in wreck.left_while("closing"):
        assert contents(resumed(state, tmp_path / "run")).keys() == contents(wreck.whole).keys()


def test_a_half_written_checkpoint_does_not_stay(wrecks, tmp_path):
    states = [state for state in wrecks("rounds").left_while("training") if f".{CHECKPOINT}.partial" in state]
    assert states
    for state in states:
        assert not list(resumed(state, tmp_path / "run").glob(".*"))


def test_a_run_that_is_finished_is_not_trained_again(wrecks, tmp_path):
    folder = restore(contents(wrecks("rounds").whole), tmp_path / "run")
    done = run("train", "--resume", folder)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "finished" in done.stdout
    assert contents(folder) == contents(wrecks("rounds").whole)


# Ctrl-C.


def interrupt(program, folder, *how, presses=1):
    """Begin a run that presses Ctrl-C itself once it has a checkpoint."""
    began = {"signals": [signal.SIGINT] * presses, "appears": folder / CHECKPOINT}
    assert program("train", *how, "--out", folder, *EVERY_ROUND, **began) == 130, program.stderr
    assert not is_finished(folder)


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_says_how_to_go_on_and_changes_no_byte(presses, program, tmp_path):
    scenario, folder = write(tmp_path, lively(rounds=30)), tmp_path / "run"
    interrupt(program, folder, scenario, presses=presses)
    assert "Traceback" not in program.stderr
    if presses == 1:
        last = program.stderr.splitlines()[-1]
        assert re.fullmatch(
            rf"stopped after round \d+; resume with: fewjoules train --resume {re.escape(str(folder))}", last
        )
    assert run("train", "--resume", folder).exit_code == 0
    assert run("train", scenario, "--device", "cpu", "--out", tmp_path / "whole").exit_code == 0
    assert results(folder) == results(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_a_polite_kill_of_a_comparison_say_how_to_go_on(program, tmp_path, number):
    scenario, folder = write(tmp_path, lively(rounds=20)), tmp_path / "run"
    began = {"signals": [number], "appears": folder / "dense" / CHECKPOINT}
    options = ["--schemes", "dense,unified", *EVERY_ROUND]
    assert program("compare", scenario, "--out", folder, *options, **began) == 130, program.stderr
    assert program.stderr.splitlines()[-1].endswith(f"resume with: fewjoules compare --resume {folder}")
    assert not (folder / "comparison.json").exists()
    assert run("compare", "--resume", folder).exit_code == 0
    assert run("compare", scenario, *options, "--out", tmp_path / "whole").exit_code == 0
    for scheme in ("dense", "unified"):
        assert results(folder / scheme) == results(tmp_path / "whole" / scheme)


# A full disk, which here is a limit on the size of a file.


@pytest.mark.parametrize(
    ("file_bytes", "failing"),
    [(4_000, "part-00000001-00000001.parquet"), (12_000, CHECKPOINT)],
    ids=["part", "checkpoint"],
)
def test_a_full_disk_leaves_nothing_half_written_and_a_run_that_can_go_on(
    file_bytes, failing, program, wrecks, tmp_path
):
    wreck, folder = wrecks("rounds"), tmp_path / "run"
    assert program("train", wreck.scenario, "--out", folder, *EVERY_ROUND, file_bytes=file_bytes) == 1
    again = f"free some space and run fewjoules train --resume {folder}"
    said = f"{folder}/{'ledger/' * (failing != CHECKPOINT)}{failing}: the file is larger than the system allows"
    assert program.stderr == f"error: {said}; no checkpoint was written yet; {again}\n"
    assert [path.name for path in folder.rglob("*") if path.name.endswith(".partial") or path.name == failing] == []
    assert run("train", "--resume", folder).exit_code == 0
    assert results(folder) == results(wreck.whole)


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_disk_that_becomes_full_names_the_file_and_the_round_that_is_kept(command, wrecks, tmp_path, monkeypatch):
    folder, wreck, fsync, written = tmp_path / "run", wrecks("rounds"), os.fsync, []
    own = folder / "flexible" if command == "compare" else folder

    def full_after_round_2(descriptor):
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        written.append(name)
        if sum(CHECKPOINT in one for one in written) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    schemes = ["--schemes", "flexible"] if command == "compare" else []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_after_round_2)
        done = run(command, wreck.scenario, *schemes, "--out", folder, *EVERY_ROUND)
    assert done.exit_code == 1
    kept = f"the checkpoint of round 2 is kept; free some space and run fewjoules {command} --resume {folder}"
    assert done.stderr == f"error: {own / CHECKPOINT}: no space left on the device; {kept}\n"
    assert run(command, "--resume", folder).exit_code == 0
    assert results(own) == results(wreck.whole)


def test_a_disk_that_becomes_full_before_the_first_checkpoint_of_a_seed_says_how_to_go_on(
    wrecks, tmp_path, monkeypatch
):
    wreck, folder, fsync = wrecks("rounds"), tmp_path / "run", os.fsync
    own = folder / "flexible" / "seed-0"

    def full_for_checkpoints(descriptor):
        if CHECKPOINT in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    options = ["--schemes", "flexible", "--seeds", "2", *EVERY_ROUND]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_for_checkpoints)
        done = run("compare", wreck.scenario, *options, "--out", folder)
    kept = f"no checkpoint was written yet; free some space and run fewjoules compare --resume {folder}"
    assert done.stderr == f"error: {own / CHECKPOINT}: no space left on the device; {kept}\n"
    assert run("compare", "--resume", folder).exit_code == 0
    assert results(own) == results(wreck.whole)


def test_a_disk_that_is_full_from_the_start_leaves_nothing(program, wrecks, tmp_path):
    folder = tmp_path / "run"
    assert program("train", wrecks("rounds").scenario, "--out", folder, file_bytes=100) == 1
    assert program.stderr.startswith(f"error: {folder}/plan.json: "[:100])  # stderr is a file of 100 bytes too
    assert contents(folder) == {}


def test_a_disk_too_full_for_the_plan_leaves_nothing_half_written(program, tmp_path):
    scenario = write(tmp_path, SCENARIO.replace("count = 2", "count = 60"))
    assert program("train", scenario, "--out", tmp_path / "run", file_bytes=1_500) == 1
    assert list((tmp_path / "run").glob("*.partial")) == []


def test_a_page_that_the_disk_had_no_room_for_is_written_later(program, wrecks, tmp_path):
    folder = tmp_path / "run"
    assert program("train", wrecks("rounds").scenario, "--out", folder, *EVERY_ROUND, file_bytes=1_000_000) == 1
    assert f"{folder}/page.html: the file is larger" in program.stderr
    assert (
        f"the run is finished and its results are kept; free some space and run fewjoules train --resume {folder}"
        in (program.stderr)
    )
    assert results(folder) == results(wrecks("rounds").whole)
    assert run("train", "--resume", folder).exit_code == 0
    assert (folder / "page.html").exists()


# A loss that is not finite.


def test_a_run_that_diverges_names_round_and_client_and_keeps_its_last_good_checkpoint(tmp_path):
    """The rate explodes in round 3, so round 2 is the last good one; resuming ends the same way."""
    explodes = ('schedule = "step"', "decay_rounds = [2]", "decay_factor = 3e39")
    scenario, folder = write(tmp_path, trained_with(*explodes).replace(ROUNDS, "rounds = 5")), tmp_path / "run"
    done = run("train", scenario, "--out", folder, "--no-guard", *EVERY_ROUND)
    assert done.exit_code == 1
    assert re.fullmatch(r"error: training diverged: .*client \d.* of round 3 is (nan|inf).*\n", done.stderr)
    assert header_of(folder / CHECKPOINT)["round"] == 2
    assert not is_finished(folder)
    before = contents(folder)
    again = run("train", "--resume", folder, *EVERY_ROUND)
    assert (again.exit_code, again.stderr) == (1, done.stderr)
    assert contents(folder) == before


def test_a_run_that_diverges_at_once_leaves_no_checkpoint_and_no_results(tmp_path):
    text = SCENARIO.replace("learning_rate = 0.1", "learning_rate = 1e38")
    done = run("train", write(tmp_path, text), "--out", tmp_path / "run", "--no-guard", *EVERY_ROUND)
    assert done.exit_code == 1
    assert re.fullmatch(r"error: .*client 0 .*round 1 .*\n", done.stderr)
    assert contents(tmp_path / "run").keys() == {"scenario.toml", "plan.json", "settings.json"}


# What cannot be resumed is refused, and the refusal changes nothing.


def header_of(checkpoint):
    with safe_open(checkpoint, framework="pt") as file:
        return json.loads(file.metadata()["fewjoules"])


def edit_header(checkpoint, change):
    with safe_open(checkpoint, framework="pt") as file:
        header = json.loads(file.metadata()["fewjoules"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    change(header)
    text = json.dumps(header)
    save_file(tensors, checkpoint, {"fewjoules": text, "checksum": f"{zlib.crc32(text.encode()):010d}"})


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def replace_in(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture
def stopped(wrecks, tmp_path):
    """A folder that was left after round 2."""
    wreck = wrecks("rounds")
    states = [s for s in wreck.left_while("training") if CHECKPOINT in s and wreck.round_of(s) == 2]
    return restore(states[0], tmp_path / "run")


def refused(folder, *says, scenario=(), command="train"):
    before = contents(folder)
    assert_refused(run(command, *scenario, "--resume", folder, "--device", "cpu"), *says)
    assert contents(folder) == before


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: cut(path, 0), id="empty"),
        pytest.param(lambda path: cut(path, 7), id="no header"),
        pytest.param(lambda path: cut(path, 500), id="half a header"),
        pytest.param(lambda path: cut(path, path.stat().st_size - 1), id="a byte short"),
        pytest.param(lambda path: path.write_bytes(b"not a checkpoint " * 100), id="text"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes() + b"\0"), id="a byte more"),
        pytest.param(lambda path: save_file({"weights": torch.zeros(3)}, path), id="another program's"),
        pytest.param(lambda path: save_file({"weights": torch.zeros(3)}, path, {"fewjoules": "no"}), id="no JSON"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused(spoil, stopped):
    spoil(stopped / CHECKPOINT)
    refused(stopped, CHECKPOINT, "checkpoint")


@pytest.mark.parametrize(
    "key", ["fewjoules version", "torch version", "numpy version", "device", "architecture", "execution"]
)
def test_a_checkpoint_of_other_circumstances_is_refused_and_the_difference_named(key, stopped):
    here = header_of(stopped / CHECKPOINT)["identity"][key]
    edit_header(stopped / CHECKPOINT, lambda header: header["identity"].update({key: "another"}))
    refused(stopped, CHECKPOINT, f"{key} was 'another'", f"is {here!r} now")


def test_a_checkpoint_of_another_format_is_refused(stopped):
    edit_header(stopped / CHECKPOINT, lambda header: header.update(version=1))
    refused(stopped, CHECKPOINT, "version", "must be 6", "got 1")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("learning_rate = 0.1", "learning_rate = 0.2", ("training.learning_rate was 0.1", "is 0.2 now")),
        ("momentum = 0.5", "momentum = 0.6", ("training.momentum was 0.5", "is 0.6 now")),
        ("dirichlet_concentration = 1.0", "dirichlet_concentration = 2.0", ("partition was ['dirichlet', 1.0",)),
        ("rounds = 3", "rounds = 4", ("training.rounds was 3", "is 4 now")),
        ("joules_per_step = 5e-4", "joules_per_step = 6e-4", ("fleet.joules_per_step was [0.0005",)),
        ("mean_snr_db = 10.0", "mean_snr_db = 11.0", ("fleet.joules_per_bit",)),
        ("[training]", "[training]\nseed = 1", ("training.seed was 0", "is 1 now")),
    ],
)
def test_a_checkpoint_of_another_scenario_is_refused_and_the_difference_named(old, new, says, stopped):
    replace_in(stopped / "scenario.toml", old, new)
    refused(stopped, *says)


def test_a_checkpoint_of_another_plan_is_refused(stopped):
    steps = json.loads((stopped / "plan.json").read_text(encoding="utf-8"))["plans"][0]["local_steps"]
    replace_in(stopped / "plan.json", f'"local_steps": {steps}', f'"local_steps": {steps - 1}')
    refused(stopped, f"training.local_steps was {steps}", f"is {steps - 1} now")


def test_a_scenario_beside_resume_must_be_the_one_of_the_run(stopped, tmp_path):
    text = (stopped / "scenario.toml").read_text(encoding="utf-8")
    number = text.splitlines().index("learning_rate = 0.1") + 1
    other = write(tmp_path, text.replace("learning_rate = 0.1", "learning_rate = 0.2"), "other.toml")
    says = ("another scenario", f"line {number} was 'learning_rate = 0.1' and is 'learning_rate = 0.2' now")
    refused(stopped, *says, scenario=[other])


@pytest.mark.parametrize(
    "longer",
    [
        pytest.param(lambda text: "# a remark\n" + text, id="first"),
        pytest.param(lambda text: text + "# a remark\n", id="last"),
        pytest.param(lambda text: text + "\n# a remark\n", id="last, after an empty line"),
    ],
)
def test_a_line_more_is_named(longer, stopped, tmp_path):
    text = longer((stopped / "scenario.toml").read_text(encoding="utf-8"))
    refused(stopped, "another scenario", "# a remark", scenario=[write(tmp_path, text, "other.toml")])


def test_the_same_scenario_beside_resume_is_welcome(stopped, wrecks):
    assert run("train", wrecks("rounds").scenario, "--resume", stopped).exit_code == 0
    assert results(stopped) == results(wrecks("rounds").whole)


def test_a_checkpoint_of_other_data_is_refused(program, tmp_path):
    write_mnist(tmp_path / "data", train=40, test=20, seed=1)
    write_mnist(tmp_path / "other", train=40, test=20, seed=2)
    text = lively(rounds=30).replace('"digits"', '"mnist"')
    folder = tmp_path / "run"
    interrupt(program, folder, write(tmp_path, text), "--data-dir", tmp_path / "data")
    before = contents(folder)
    refusal = run("train", "--resume", folder, "--data-dir", tmp_path / "other", "--device", "cpu")
    assert_refused(refusal, CHECKPOINT, "data was ", " now")
    assert contents(folder) == before


def test_a_checkpoint_of_another_channel_trace_is_refused(program, tmp_path):
    """The same gains in another order: the same average rate, but other draws."""
    gains = ["0.5", "1.0", "1.5", "3.0"]
    write(tmp_path, "\n".join(["gain", *gains]) + "\n", "gains.csv")
    text = lively(rounds=30).replace("mean_snr_db = 10.0", 'mean_snr_db = 10.0\nfading = "trace"\ntrace = "gains.csv"')
    folder = tmp_path / "run"
    interrupt(program, folder, write(tmp_path, text))
    write(tmp_path, "\n".join(["gain", *gains[::-1]]) + "\n", "gains.csv")
    assert_refused(run("train", "--resume", folder, "--device", "cpu"), "fading")


def test_a_log_with_a_gap_is_refused(stopped):
    (stopped / "ledger" / "part-00000001-00000001.parquet").unlink()
    refused(stopped, "ledger", "round 1")


def test_a_refusal_leaves_no_events_of_tensorboard(stopped):
    cut(stopped / CHECKPOINT, 100)
    before = contents(stopped)
    assert_refused(run("train", "--resume", stopped, "--tensorboard"), CHECKPOINT)
    assert contents(stopped) == before


# Folders that are no run.


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    write(tmp_path, "mine", "notes.txt")
    refused(tmp_path, str(tmp_path), "results folder of a run")
    refused(tmp_path, str(tmp_path), "results folder of a run", command="compare")


def test_a_folder_that_is_not_there_is_refused_and_not_made(tmp_path):
    assert_refused(run("train", "--resume", tmp_path / "nowhere"), "nowhere", "results folder of a run")
    assert not (tmp_path / "nowhere").exists()


def test_a_file_is_no_run(tmp_path):
    file = write(tmp_path, "mine", "notes.txt")
    assert_refused(run("train", "--resume", file), "results folder of a run")


def test_a_run_of_train_is_not_resumed_by_compare(stopped):
    refused(stopped, "fewjoules train", "compare --resume", command="compare")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("{", ("settings.json", "JSON")),
        ('{"version": 2}', ("settings.json", "version", "2")),
        ("[]", ("settings.json",)),
        ('{"version": 1}', ("settings.json",)),
    ],
)
def test_settings_that_no_run_has_written_are_refused(settings, says, stopped):
    (stopped / "settings.json").write_text(settings, encoding="utf-8")
    refused(stopped, *says)


@pytest.mark.parametrize("name", ["scenario.toml", "plan.json"])
def test_a_folder_that_lacks_a_file_of_the_run_is_refused(name, stopped):
    (stopped / name).unlink()
    refused(stopped, name)


if __name__ == "__main__":
    serve()
