"""Progress: a bar that moves on a terminal, lines elsewhere; compiling is said and does not count for the time left."""

import io
import os
import re
import subprocess
import sys

import pytest
from rich.console import Console

from fewjoules.cli import live, progress
from fewjoules.engine.loop import Report, Totals
from fewjoules.ledger.target import Target
from tests.scenario.test_training_scenario import trained_with
from tests.test_bad_input import write


def report(number, accuracy=0.5):
    return Report(number, 1.25, 1.5, accuracy, Totals(joules=0.25 * number, payload_bytes=1000 * number))


def terminal(width=160):
    return Console(force_terminal=True, file=io.StringIO(), width=width, color_system=None)


def frames(console):
    """What was drawn, one line after the other, without the codes that move the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


@pytest.fixture
def clock(monkeypatch):
    """A clock of which each test says what time it is."""
    now = [0.0]
    monkeypatch.setattr(progress.TimeLeft.__init__, "__defaults__", (lambda: now[0],))
    return now


def test_the_time_left_counts_from_the_end_of_the_first_round():
    now = [0.0]
    left = progress.TimeLeft(11, clock=lambda: now[0])
    now[0] = 100.0  # compiling
    assert left.seconds(1) is None
    now[0] = 104.0
    assert left.seconds(3) == 16.0
    now[0] = 110.0
    assert left.seconds(11) == 0.0


def test_a_resumed_run_counts_its_own_rounds_only():
    now = [5.0]
    left = progress.TimeLeft(20, clock=lambda: now[0])
    assert left.after_round(11) == "compiled"
    now[0] = 7.0
    assert left.after_round(12) == "about 16 s left at most"


def test_a_run_begins_with_compiling():
    console = terminal()
    with live.live_run(console, "flexible 1 of 6", 9, None):
        pass
    assert "flexible 1 of 6 " in frames(console)
    assert "first round, in which kernels may compile" in frames(console)
    assert "left" not in frames(console)


def test_a_bar_shows_rounds_accuracy_loss_joules_and_the_time_left(clock):
    console = terminal()
    with live.live_run(console, "flexible", 9, Target("accuracy", 0.9)) as update:
        clock[0] = 50.0
        update(report(1))
        clock[0] = 52.0
        update(report(2, accuracy=0.625))
    last = frames(console).rstrip().splitlines()[-1]
    assert "round 2/9, accuracy 62.50% (target 90.00%), loss 1.250, 0.5 J, 0.016 Mbit" in last
    assert last.endswith("about 14 s left at most")


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (Target("loss", 0.3), "round 1/9, accuracy 50.00%, test loss 1.5 (target 0.3), loss 1.250"),
        (Target("perplexity", 3.0), "round 1/9, accuracy 50.00%, test perplexity 4.482 (target 3), loss 1.250"),
    ],
    ids=str,
)
def test_a_run_to_a_loss_shows_the_test_loss_in_the_words_of_its_target(target, says):
    assert progress.describe(report(1), 9, target).startswith(says)


def test_a_narrow_terminal_still_shows_the_round_and_the_time_left(clock):
    console = terminal(width=80)
    with live.live_run(console, "flexible", 9, Target("accuracy", 0.9)) as update:
        update(report(1))
        clock[0] = 2.0
        update(report(2))
    last = frames(console).rstrip().splitlines()[-1]
    assert "round 2/9" in last
    assert last.endswith("about 14 s left at most")


def test_names_are_not_markup_on_a_bar():
    console = terminal()
    with live.live_run(console, "[red]x[/nonsense]", 9, None):
        pass
    assert "[red]x[/nonsense]" in frames(console)


def test_many_trainings_have_a_bar_of_their_own_and_one_for_the_rounds(clock):
    console = terminal()
    with live.live_jobs(console) as jobs:
        jobs.round("tune-a", 4, report(1))
        clock[0] = 100.0
        jobs.job("study: tune-a", 1, 5)
        jobs.round("tune-b", 4, report(1))
        clock[0] = 103.0
        jobs.job("study: tune-b", 2, 5)
        jobs.round("run-c", 8, report(1))
        jobs.round("run-c", 8, report(2))
    drawn = frames(console).split()
    assert drawn[0] == "trainings"
    assert "compile" in drawn[: drawn.index("tune-a")]
    overall, current = frames(console).rstrip().splitlines()[-2:]
    assert re.search(r"2 of 5, last study: tune-b +about 9 s left *$", overall)
    assert re.match(r"run-c +.*round 2/8, accuracy 50.00%, loss 1.250, 0.5 J", current)


def test_a_measurement_has_a_line_that_is_drawn_only_when_it_changes():
    console = terminal(width=60)
    with live.live_line(console) as show:
        show("batch [8]: warm-up")
        show("batch [8]: trial 1")
        drawn = frames(console)
    assert [drawn.count(text) for text in ("batch [8]: warm-up", "batch [8]: trial 1")] == [1, 1]


def test_a_pipe_gets_what_is_measured_every_ten_seconds(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.phases() as show:
        for seconds in (100.0, 104.0, 111.0):
            now[0] = seconds
            show(f"at {seconds:g}")
    assert capsys.readouterr().err.splitlines() == ["at 100", "at 111"]


def test_a_pipe_gets_a_line_every_ten_seconds(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress.TimeLeft.__init__, "__defaults__", (lambda: now[0],))
    with progress.progress_of("flexible", 9, None, place="1 of 6") as show:
        for number, seconds in [(1, 12.0), (2, 15.0), (3, 24.0)]:
            now[0] = seconds
            show(report(number))
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "flexible 1 of 6: round 1/9, accuracy 50.00%, loss 1.250, 0.25 J, 0.008 Mbit, compiled",
        "flexible 1 of 6: round 3/9, accuracy 50.00%, loss 1.250, 0.75 J, 0.024 Mbit, about 36 s left at most",
    ]


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("term", "moves"), [("xterm", True), ("dumb", False)])
def test_the_program_draws_a_bar_on_a_terminal(tmp_path, term, moves):
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "fewjoules", "train", write(tmp_path, trained_with()), "--out", tmp_path / "out"]
    with (tmp_path / "stdout").open("wb") as stdout:
        process = subprocess.Popen(
            [*map(str, command), "--device", "cpu"], stdout=stdout, stderr=theirs, env=os.environ | {"TERM": term}
        )
    os.close(theirs)
    drawn = b"".join(iter(lambda: read_terminal(ours), b""))
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert (b"kernels may compile" in drawn) == moves
    assert b"\x1b" not in (tmp_path / "stdout").read_bytes()


def read_terminal(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that nobody writes any more
        return b""
