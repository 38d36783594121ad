"""Progress that moves, drawn by rich where stderr is a terminal. For other places see progress.py."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fewjoules.cli.compiling import compiling_told
from fewjoules.cli.progress import TimeLeft, describe, duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from fewjoules.engine.report import Report
    from fewjoules.ledger.target import Target

FIRST_ROUND = "first round"


def live_console() -> "Console | None":
    """Return the console of stderr if it can show something that moves."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return None if console.is_dumb_terminal else console


@contextlib.contextmanager
def live_run(
    console: "Console", name: str, rounds: int, target: "Target | None"
) -> Iterator[Callable[["Report"], None]]:
    """Show one run: a bar over its rounds, accuracy, loss, joules so far and the time that is left."""
    with _bars(console) as bars:
        run = LiveRun(bars)
        run.begin(name, rounds, target)
        with compiling_told(run.compiling, run.compiled):
            yield run.update


@contextlib.contextmanager
def live_line(console: "Console") -> Iterator[Callable[[str], None]]:
    """Show one line of text, drawn only when it changes: a spinner would disturb what is being measured."""
    from rich.live import Live
    from rich.text import Text

    with Live(console=console, auto_refresh=False, transient=True) as line:
        yield lambda text: line.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)


@contextlib.contextmanager
def live_text(console: "Console") -> Iterator[Callable[[str], None]]:
    """Show a few lines of text beside a spinner."""
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots")
    with Live(spinner, console=console, transient=True):
        yield lambda text: spinner.update(text=Text(text, overflow="ellipsis"))


class LiveRun:
    """The line of one run at a time; until the first round is done its bar only pulses."""

    def __init__(self, bars: "Progress") -> None:
        """Add a hidden line."""
        self._bars, self._task = bars, bars.add_task("", total=None, said="", left="", visible=False)

    def begin(self, name: str, rounds: int, target: "Target | None" = None) -> None:
        """Show the line of a new run."""
        self._rounds, self._target, self._left, self._said = rounds, target, TimeLeft(rounds), FIRST_ROUND
        self._bars.reset(self._task, total=None, description=f"{name:<11}", said=FIRST_ROUND, left="", visible=True)
        self._bars.refresh()

    def update(self, report: "Report") -> None:
        """Show the progress after a round."""
        said, left = describe(report, self._rounds, self._target), self._left.after_round(report.round)
        self._said = said
        self._bars.update(self._task, total=self._rounds, completed=report.round, said=said, left=left)

    def compiling(self, sentence: str) -> None:
        """Show that a kernel is being compiled."""
        self._bars.update(self._task, said=sentence, left="")
        self._bars.refresh()

    def compiled(self) -> None:
        """Show again what was shown before; what compiling took does not count for the time that is left."""
        self._left.forget()
        self._bars.update(self._task, said=self._said)


class LiveJobs:
    """A bar over trainings of which many are to be made, and one over the rounds of the current training."""

    def __init__(self, bars: "Progress") -> None:
        """Add the two lines; the second appears with its first round."""
        self._bars, self._jobs = bars, bars.add_task("trainings", total=None, said=FIRST_ROUND, left="")
        self._run, self._current = LiveRun(bars), ("", 0)
        self._total, self._left = 0, TimeLeft(0)
        bars.refresh()

    def job(self, name: str, done: int, total: int) -> None:
        """Show that a training is done."""
        if total != self._total:
            self._total, self._left = total, TimeLeft(total)
        seconds = self._left.seconds(done)
        left = "" if seconds is None else f"about {duration(seconds)} left"
        self._bars.update(self._jobs, total=total, completed=done, said=f"{done} of {total}, last {name}", left=left)
        self._current = ("", 0)

    def round(self, name: str, rounds: int, report: "Report") -> None:
        """Show a round of the current training."""
        if (name, rounds) != self._current or report.round == 1:
            self._current = (name, rounds)
            self._run.begin(name, rounds)
        self._run.update(report)


@contextlib.contextmanager
def live_jobs(console: "Console") -> Iterator[LiveJobs]:
    """Show many trainings, one after the other."""
    with _bars(console) as bars:
        yield LiveJobs(bars)


def _bars(console: "Console") -> "Progress":
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[said]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
        TextColumn("{task.fields[left]}", markup=False),  # of its own, so that a narrow terminal does not cut it off
    )
    return Progress(*columns, console=console, transient=True, expand=True)
