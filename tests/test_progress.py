"""Progress: a bar that moves on a terminal, lines elsewhere; compiling is told and does not count for the time left."""

import io
import os
import re
import subprocess
import sys

import numba
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fewjoules.cli import live, progress
from fewjoules.cli.compiling import compiling_told
from fewjoules.engine.report import Report
from fewjoules.engine.totals import Totals
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
    assert left.seconds(4) == pytest.approx(4.0 / 3.0 * 7.0)
    now[0] = 110.0
    assert left.seconds(11) == 0.0


def test_a_slow_round_among_many_promises_no_hours():
    now = [0.0]
    left = progress.TimeLeft(582, clock=lambda: now[0])
    assert left.after_round(1) == ""
    now[0] = 2.0  # a round that was slow for once
    assert left.after_round(2) == ""
    now[0] = 2.2
    assert left.after_round(22) == "about 59 s left at most"


@given(st.lists(st.floats(1e-4, 30.0), min_size=4, max_size=40), st.integers(50, 10_000))
def test_the_time_left_is_never_more_than_the_slowest_round_for_each_that_remains(durations, total):
    now = [0.0]
    left = progress.TimeLeft(total, clock=lambda: now[0])
    for number, seconds in enumerate(durations, start=1):
        now[0] += seconds
        told = left.seconds(number)
        low, high = min(durations[1:number], default=0.0), max(durations[1:number], default=0.0)
        assert told is None or low * (total - number) * 0.999 <= told <= high * (total - number) * 1.001
        assert told is None or number >= 4 or now[0] >= 10.0


def test_what_is_forgotten_does_not_count_for_the_time_left():
    now = [0.0]
    left = progress.TimeLeft(100, clock=lambda: now[0])
    left.seconds(1)
    now[0] = 40.0  # compiling in the second round
    left.forget()
    assert left.seconds(2) is None
    now[0] = 41.5
    assert left.seconds(5) == pytest.approx(0.5 * 95)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0, "0 s"), (119.4, "119 s"), (120.0, "2 min"), (7199.0, "120 min"), (7200.0, "2 h")]
)
def test_long_times_are_told_in_minutes_and_hours(seconds, said):
    assert progress.duration(seconds) == said


def test_a_resumed_run_counts_its_own_rounds_only():
    now = [5.0]
    left = progress.TimeLeft(20, clock=lambda: now[0])
    assert left.after_round(11) == ""
    now[0] = 11.0
    assert left.after_round(14) == "about 12 s left at most"


def test_a_run_begins_with_its_first_round():
    console = terminal()
    with live.live_run(console, "flexible 1 of 6", 9, None):
        pass
    assert "flexible 1 of 6 " in frames(console)
    assert "first round" in frames(console)
    assert "left" not in frames(console)


def compile_a_kernel():
    """Compile two kernels, of which one calls the other, as numba does for a new user."""

    @numba.njit
    def _inner_part(x):
        return x + 1

    @numba.njit
    def _outer_part(x):
        return _inner_part(x)

    assert _outer_part(1) == 2
    assert _outer_part(2) == 3


def test_compiling_is_told_by_its_kernel_and_ends(clock):
    console = terminal()
    with live.live_run(console, "flexible", 90, None) as update:
        compile_a_kernel()
        compiling, after = frames(console), len(frames(console))
        for number, seconds in [(1, 20.0), (2, 21.0), (5, 24.0)]:
            clock[0] = seconds
            update(report(number))
    assert compiling.count("compiling kernels, once per machine: outer part") >= 1
    assert "inner part" not in compiling
    drawn = frames(console)[after:]
    assert "compiling" not in drawn.splitlines()[-1]
    assert drawn.rstrip().endswith("about 85 s left at most")


def test_compiling_in_the_middle_of_a_run_does_not_count_for_the_time_left(clock):
    console = terminal()
    with live.live_run(console, "flexible", 90, None) as update:
        update(report(1))
        clock[0] = 50.0
        compile_a_kernel()
        update(report(2))
        clock[0] = 53.0
        update(report(5))
    assert re.findall(r"about \d+ \w+ left", frames(console))[-1] == "about 85 s left"


def test_a_pipe_is_told_once_that_kernels_compile(capsys):
    progress.say_compiling.cache_clear()
    for _ in range(2):
        with progress.progress_of("flexible", 9, None):
            compile_a_kernel()
    assert capsys.readouterr().err.splitlines() == ["compiling kernels, once per machine"]


def test_nothing_is_listened_to_after_a_run():
    begun = []
    with compiling_told(begun.append, lambda: None):
        pass
    compile_a_kernel()
    assert begun == []


def test_a_bar_shows_rounds_accuracy_loss_joules_and_the_time_left(clock):
    console = terminal()
    with live.live_run(console, "flexible", 9, Target("accuracy", 0.9)) as update:
        clock[0] = 50.0
        update(report(1))
        clock[0] = 56.0
        update(report(4, accuracy=0.625))
    last = frames(console).rstrip().splitlines()[-1]
    assert "round 4/9, accuracy 62.50% (target 90.00%), loss 1.250, 1 J, 0.032 Mbit" in last
    assert last.endswith("about 10 s left at most")


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
        clock[0] = 6.0
        update(report(4))
    last = frames(console).rstrip().splitlines()[-1]
    assert "round 4/9" in last
    assert last.endswith("about 10 s left at most")


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
        clock[0] = 112.0
        jobs.job("study: tune-b", 2, 5)
        jobs.round("run-c", 8, report(1))
        jobs.round("run-c", 8, report(2))
    drawn = frames(console).split()
    assert drawn[0] == "trainings"
    overall, current = frames(console).rstrip().splitlines()[-2:]
    assert re.search(r"2 of 5, last study: tune-b +about 36 s left *$", overall)
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
        "flexible 1 of 6: round 1/9, accuracy 50.00%, loss 1.250, 0.25 J, 0.008 Mbit",
        "flexible 1 of 6: round 3/9, accuracy 50.00%, loss 1.250, 0.75 J, 0.024 Mbit, about 36 s left at most",
    ]


def trained_on_a_terminal(folder, out, **surroundings):
    """Train a small scenario; return what the program drew on the terminal and what it wrote to stdout."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "fewjoules", "train", write(folder, trained_with()), "--out", folder / out]
    with (folder / "stdout").open("wb") as stdout:
        process = subprocess.Popen(
            [*map(str, command), "--device", "cpu"], stdout=stdout, stderr=theirs, env=os.environ | surroundings
        )
    os.close(theirs)
    drawn = b"".join(iter(lambda: read_terminal(ours), b""))
    os.close(ours)
    assert process.wait(timeout=600) == 0
    return drawn, (folder / "stdout").read_bytes()


def read_terminal(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that nobody writes any more
        return b""


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_dumb_terminal_gets_lines_only(tmp_path):
    drawn, printed = trained_on_a_terminal(tmp_path, "out", TERM="dumb")
    assert b"first round" not in drawn
    assert b"\x1b" not in drawn + printed


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_new_user_is_told_that_kernels_compile_and_the_next_run_compiles_nothing(tmp_path):
    surroundings = {"TERM": "xterm", "COLUMNS": "160", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    cold, printed = trained_on_a_terminal(tmp_path, "out1", **surroundings)
    assert cold.index(b"loading PyTorch") < cold.index(b"first round")
    assert b"compiling kernels, once per machine: draw" in cold
    assert b"\x1b" not in printed
    warm, _ = trained_on_a_terminal(tmp_path, "out2", **surroundings)
    assert b"first round" in warm
    assert b"compiling" not in warm
