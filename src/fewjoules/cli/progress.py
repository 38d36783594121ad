"""Show the progress of a run."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

from fewjoules.cli.compiling import ONCE, compiling_told

if TYPE_CHECKING:
    from fewjoules.engine.report import Report
    from fewjoules.ledger.target import Target

_LINE_SECONDS = 10.0
_FEW_ROUNDS, _FEW_SECONDS, _MANY_SECONDS = 3, 1.0, 10.0


def download_line() -> Callable[[int, int | None], None]:
    """Return a function that prints the progress of a download once a second."""
    last = [0.0]

    def show(done: int, total: int | None) -> None:
        if time.monotonic() - last[0] > 1.0:
            last[0] = time.monotonic()
            whole = "" if total is None else f" of {total / 1e6:.1f}"
            typer.echo(f"downloading: {done / 1e6:.1f}{whole} MB", err=True)

    return show


def say_stopping() -> None:
    """Tell that a run was asked to stop."""
    typer.echo("stopping after this round; press Ctrl-C again to stop at once", err=True)


class TimeLeft:
    """Tells how long the rest takes, by what was done since the first report: compiling comes before it.

    It tells nothing until three rounds and a second, or ten seconds, have passed since then, because a single slow
    round would promise hours.
    """

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing known."""
        self._total, self._clock = total, clock
        self._first: int | None = None
        self._began = 0.0

    def forget(self) -> None:
        """Count from the next report on, because something took time that will not take it again."""
        self._first = None

    def seconds(self, done: int) -> float | None:
        """Return the seconds that are left after ``done`` of all, or None while too little is known."""
        now = self._clock()
        if self._first is None:
            self._first, self._began = done, now
        since, passed = done - self._first, now - self._began
        known = since >= 1 and passed >= _FEW_SECONDS and (since >= _FEW_ROUNDS or passed >= _MANY_SECONDS)
        return passed / since * (self._total - done) if known else None

    def after_round(self, number: int) -> str:
        """Describe the time that is left after a round; a run may reach its target earlier."""
        seconds = self.seconds(number)
        return "" if seconds is None else f"about {duration(seconds)} left at most"


def duration(seconds: float) -> str:
    """Return a length of time in the unit that suits it: seconds, minutes or hours."""
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 7200.0 else f"{seconds / 3600.0:.0f} h"


@contextlib.contextmanager
def progress_of(
    name: str, rounds: int, target: "Target | None", *, place: str = ""
) -> Iterator[Callable[["Report"], None]]:
    """Show progress as a live bar on a terminal, elsewhere as one line every ten seconds.

    ``place`` says which of several runs this is.
    """
    from fewjoules.cli.live import live_console, live_run

    name = f"{name} {place}".strip()
    console = live_console()
    if console is not None:
        with live_run(console, name, rounds, target) as update:
            yield update
        return
    left, last = TimeLeft(rounds), time.monotonic()

    def line(report: "Report") -> None:
        nonlocal last
        said = left.after_round(report.round)
        if time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            typer.echo(", ".join(filter(None, (f"{name}: {describe(report, rounds, target)}", said))), err=True)

    with compiling_told(lambda _: say_compiling(), left.forget):
        yield line


@functools.cache
def say_compiling() -> None:
    """Tell once that kernels are being compiled, where nothing that moves can be shown."""
    typer.echo(ONCE, err=True)


@contextlib.contextmanager
def phases() -> Iterator[Callable[[str], None]]:
    """Show what is being done as one line that changes on a terminal, elsewhere as a line every ten seconds."""
    from fewjoules.cli.live import live_console, live_line

    console = live_console()
    if console is not None:
        with live_line(console) as show:
            yield show
        return
    last = -_LINE_SECONDS

    def line(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            typer.echo(text, err=True)

    yield line


def describe(report: "Report", rounds: int, target: "Target | None") -> str:
    """Return round, accuracy, loss, joules and bits in one line; the test loss too if the target is about it."""
    totals = report.totals
    accuracy = "" if report.test_accuracy != report.test_accuracy else f", accuracy {report.test_accuracy:.2%}"
    aim = ""
    if target is not None and target.direction is not None:
        aim = f", {target.said(report.metrics.get(target.name))} (target {target.direction} {target.value:.4g})"
    elif target is not None and target.rises:
        aim = f" (target {target.value:.2%})" if accuracy else ""
    elif target is not None and report.test_loss == report.test_loss:
        aim = f", test {target.said(report.test_loss)} (target {target.value:.4g})"
    others = [(name, value) for name, value in report.metrics.items() if target is None or name != target.name]
    aim += "".join(f", {name} {value:.4g}" for name, value in others if value == value)
    joules = "" if totals.joules != totals.joules else f", {totals.joules:.4g} J"
    megabits = 8e-6 * totals.payload_bytes
    return f"round {report.round}/{rounds}{accuracy}{aim}, loss {report.train_loss:.3f}{joules}, {megabits:.4g} Mbit"
