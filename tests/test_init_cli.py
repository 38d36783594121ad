"""``fewjoules init`` writes a scenario from options or questions, refuses bad answers and never overwrites."""

import fcntl
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from fewjoules.profiles import profile_names
from fewjoules.scenario import Scenario
from tests.test_bad_input import assert_refused, run


def test_defaults_are_written_and_the_next_commands_are_shown(tmp_path):
    file = tmp_path / "fleet.toml"
    result = run("init", file)  # no terminal, so nothing is asked
    assert result.exit_code == 0
    scenario = Scenario.from_toml(file)
    assert (len(scenario.fleet), scenario.architecture, scenario.training.data) == (12, "cnn", "digits")
    commands = re.findall(r"^  fewjoules (\w+) (\S+)", result.stdout, re.MULTILINE)
    assert commands[:2] == [("plan", str(file)), ("tune", str(file))]
    assert [command for command, _ in commands[2:]] == ["compare", "train"]
    assert run("plan", file).exit_code == 0


def test_options_are_taken(tmp_path):
    file = tmp_path / "city.toml"
    options = ["--device", "lte-phone:4", "--device", "jetson-orin", "--model", "mlp", "--data", "fashion-mnist"]
    options += ["--target", "loss=0.4", "--round-seconds", "60", "--battery-joules", "9000", "--max-sparsity", "50"]
    assert run("init", file, *options, "--max-local-steps", "9", "--seed", "3").exit_code == 0
    scenario = Scenario.from_toml(file)
    assert [(group.name, group.count) for group in scenario.groups] == [("lte-phone", 4), ("jetson-orin", 1)]
    assert (scenario.training.target_loss, scenario.training.seed, scenario.round_seconds) == (0.4, 3, 60.0)
    assert (scenario.sparsity, max(scenario.local_steps)) == ((1.0, 50.0), 9)
    assert set(scenario.fleet.battery_joules) == {9000.0}


def test_a_file_is_overwritten_by_force_only(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text("mine")
    assert_refused(run("init", file), "exists", "--force")
    assert file.read_text() == "mine"
    assert run("init", file, "--force").exit_code == 0
    assert len(Scenario.from_toml(file).fleet) == 12


def test_a_dangling_link_is_not_replaced(tmp_path):
    file = tmp_path / "fleet.toml"
    file.symlink_to(tmp_path / "elsewhere.toml")
    assert_refused(run("init", file), "exists")
    assert not (tmp_path / "elsewhere.toml").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--device", "lte-fone:3"], ["lte-fone", *profile_names()]),
        (["--device", "lte-phone:0"], ["lte-phone", "whole number from 1", "0"]),
        (["--device", "lte-phone:-2"], ["lte-phone", "-2"]),
        (["--device", "lte-phone:4.5"], ["4.5"]),
        (["--device", "lte-phone:" + "9" * 5000], ["whole number"]),
        (["--device", "lte-phone:٣"], ["whole number"]),
        (["--device", ":3"], ["PROFILE:COUNT"]),
        (["--device", ""], ["PROFILE:COUNT"]),
        (["--device", "../../etc/passwd.toml:3"], ["passwd.toml"]),
        (["--device", "lte-phone:9999999", "--device", "lte-phone:9"], ["number of all devices", "10000008"]),
        (["--model", "resnet50"], ["resnet50", "lenet5", "my_module:function"]),
        (["--model", 'x"\n[rounds]:y'], ["--model"]),
        (["--model", "parameters=0"], ["parameters", "0"]),
        (["--model", "parameters=9", "--data", "mnist"], ["--data is unused"]),
        (["--model", "parameters=9", "--target", "0.9"], ["--target is unused"]),
        (["--model", "lenet5", "--data", "digits"], ["--data", "mnist", "digits"]),
        (["--data", "imagenet"], ["--data", "imagenet", "digits"]),
        (["--target", "1.5"], ["--target", "1.5"]),
        (["--target", "nan"], ["--target", "nan"]),
        (["--target", "f1=0.5"], ["--target", "f1=0.5"]),
        (["--target", "perplexity=1"], ["perplexity", "above 1"]),
        (["--round-seconds", "-1"], ["--round-seconds", "above 0"]),
        (["--round-seconds", "1e-6"], ["round_seconds", "cannot be met", "wifi-phone"]),
        (["--battery-joules", "1e-9"], ["battery"]),
        (["--battery-joules", "inf"], ["--battery-joules", "inf"]),
        (["--max-sparsity", "0.5"], ["--max-sparsity", "0.5"]),
        (["--max-sparsity", "20000"], ["--max-sparsity", "13706"]),
        (["--max-local-steps", "0"], ["--max-local-steps", "0"]),
        (["--max-local-steps", "100001"], ["--max-local-steps", "100000"]),
        (["--seed", "-1"], ["--seed", "-1"]),
    ],
    ids=lambda part: " ".join(part)[:40] if isinstance(part, list) else None,
)
def test_bad_answers_are_refused_and_nothing_is_written(tmp_path, options, says):
    assert_refused(run("init", tmp_path / "fleet.toml", *options), *says)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["fleet", "a\nb.toml", "a\x1b[31m.toml", "none/fleet.toml", ".toml", "a\udcff.toml"])
def test_bad_file_names_are_refused(tmp_path, name):
    assert_refused(run("init", f"{tmp_path}/{name}"), "FILE must be")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_replaced(tmp_path):
    (tmp_path / "fleet.toml").mkdir()
    assert_refused(run("init", tmp_path / "fleet.toml", "--force"), "FILE must be a file, got the folder")


@pytest.mark.parametrize("name", ["my fleet.toml", "$(date);'#\".toml", "[rounds] = 3 #.toml", "ünï ☃.toml"])
def test_odd_file_names_are_quoted_and_stay_comments(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    result = run("init", name)
    assert result.exit_code == 0
    assert len(Scenario.from_toml(name).fleet) == 12
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("  fewjoules plan")]
    assert shlex.split(line, comments=False)[:3] == ["fewjoules", "plan", name]


def test_a_model_of_ones_own_is_not_imported_and_its_missing_module_is_told(tmp_path):
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')")
    result = run("init", tmp_path / "fleet.toml", "--model", "mine:net", "--data", "other.data:load")
    assert result.exit_code == 0
    assert "needs the module other.data: put other/data.py beside fleet.toml" in result.stdout
    assert "needs the module mine" not in result.stdout


@pytest.mark.parametrize("data", ["digits", "mine:load"])
def test_a_network_of_ones_own_can_be_planned_once_it_is_there(tmp_path, data):
    (tmp_path / "mine.py").write_text(
        "import numpy as np, torch\n"
        "def net(*shape):\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
        "def load():\n"
        "    part = (np.zeros((4, 64), np.float32), np.zeros(4, np.int64))\n"
        "    return [part] * 12, part\n"
    )
    file = tmp_path / "fleet.toml"
    assert run("init", file, "--model", "mine:net", "--data", data).exit_code == 0
    assert Scenario.from_toml(file).parameters == 650
    assert run("plan", file).exit_code == 0


def test_more_devices_than_samples_are_told(tmp_path):
    result = run("init", tmp_path / "fleet.toml", "--device", "lte-phone:5000")
    assert "digits has 1,437 samples to train on, fewer than 5,000 devices" in result.stdout


def test_it_starts_without_pytorch(tmp_path):
    code = (
        "import sys\nfrom fewjoules.cli import app\n"
        f"try:\n    app(['init', {str(tmp_path / 'fleet.toml')!r}])\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "assert not {'torch', 'numba', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=600)
    assert (tmp_path / "fleet.toml").exists()


def _own_terminal() -> None:
    """Make the terminal that of the new process, so that Ctrl-C there interrupts it."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.ours, theirs = os.openpty()
        command = [sys.executable, "-m", "fewjoules", *arguments]
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=_own_terminal
        )
        os.close(theirs)
        self.seen = ""

    def answer(self, question: str, text: str) -> None:
        self.wait_for(question)
        self.wait_for("]: ")  # its last character comes from what reads the answer
        os.write(self.ours, text.encode() + b"\n")

    def wait_for(self, words: str) -> None:
        """Read until the words appear after all that was waited for before."""
        end = time.monotonic() + 600.0
        while words not in self.seen:
            assert time.monotonic() < end, self.seen
            ready, _, _ = select.select([self.ours], [], [], 1.0)
            self.seen += os.read(self.ours, 65536).decode() if ready else ""
        self.seen = self.seen.partition(words)[2]

    def close(self) -> int:
        try:
            return self.process.wait(timeout=600)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self.ours)


needs_terminal = pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")


@needs_terminal
def test_questions_are_asked_on_a_terminal_and_asked_again_after_a_bad_answer(tmp_path):
    terminal = Terminal(tmp_path, "init", "--target", "0.9")
    terminal.answer("Devices, PROFILE:COUNT, separated by commas [wifi-phone:12", "lte-fone:4")
    terminal.wait_for("profile must be one of 5g-phone")
    terminal.answer("Devices", "lte-phone:4, jetson-orin:2")
    terminal.answer("Model [cnn", "softmax")
    terminal.answer("Data (digits, mnist", "")
    terminal.answer("Seconds that a round may take at most [none", "-3")
    terminal.answer("Seconds", "100")
    terminal.wait_for("fewjoules plan fleet.toml")
    assert terminal.close() == 0
    scenario = Scenario.from_toml(tmp_path / "fleet.toml")
    assert [(group.name, group.count) for group in scenario.groups] == [("lte-phone", 4), ("jetson-orin", 2)]
    assert (scenario.architecture, scenario.training.data, scenario.training.target_accuracy) == (
        "softmax",
        "digits",
        0.9,
    )
    assert scenario.round_seconds == 100.0


@needs_terminal
@pytest.mark.parametrize(
    ("key", "says", "code"),
    [("\x03", "stopped; nothing was written", 130), ("\x04", "error: the input ended before the last answer", 2)],
    ids=["Ctrl-C", "Ctrl-D"],
)
def test_leaving_in_the_middle_writes_nothing(tmp_path, key, says, code):
    terminal = Terminal(tmp_path, "init")
    terminal.wait_for("[wifi-phone:12]: ")
    for _ in range(100):  # a signal between the prompt and the read that follows it is noticed with the next one
        if terminal.process.poll() is None:
            os.write(terminal.ours, key.encode())
            time.sleep(0.1)
    terminal.wait_for(says)
    assert terminal.close() == code
    assert list(tmp_path.iterdir()) == []


@needs_terminal
def test_nothing_is_asked_with_yes(tmp_path):
    terminal = Terminal(tmp_path, "init", "--yes")
    terminal.wait_for("fewjoules plan fleet.toml")
    assert terminal.close() == 0


@pytest.mark.parametrize("command", ["plan", "train", "tune", "compare"])
def test_a_scenario_that_does_not_exist_is_told_with_the_command_that_writes_one(tmp_path, command):
    assert_refused(run(command, tmp_path / "fleet.toml"), "no such file", f"fewjoules init {tmp_path / 'fleet.toml'}")


@pytest.mark.parametrize("command", ["init", "plan", "train", "tune", "compare", "profiles", "measure step"])
def test_help_explains_the_argument(command):
    arguments = run(*command.split(), "--help").stdout.partition("Arguments:")[2].partition("Options:")[0]
    assert re.search(r"(file|profile)", arguments, re.IGNORECASE)
    assert len(arguments.split()) > 5
