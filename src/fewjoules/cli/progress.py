"""Show the progress of a run."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fewjoules.engine.simulator.loop import Report

_LINE_SECONDS = 10.0


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


@contextlib.contextmanager
def progress_of(name: str, rounds: int, target: float | None) -> Iterator[Callable[["Report"], None]]:
    """Show progress as a live line on a terminal, elsewhere as one line every ten seconds."""
    if sys.stderr.isatty():
        with _live(name, rounds, target) as update:
            yield update
        return
    began = last = time.monotonic()
    first: int | None = None

    def line(report: "Report") -> None:
        nonlocal began, first, last
        now = time.monotonic()
        if first is None:  # its time is that of compiling, which no other round takes
            first, began = report.round, now
        if now - last >= _LINE_SECONDS:
            last, done = now, report.round - first
            left = f"about {(now - began) / done * (rounds - report.round):.0f} s left at most" if done else "compiled"
            typer.echo(f"{name}: {describe(report, rounds, target)}, {left}", err=True)

    yield line


@contextlib.contextmanager
def _live(name: str, rounds: int, target: float | None) -> Iterator[Callable[["Report"], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=16), TextColumn("{task.fields[said]}"))
    with Progress(*columns, TimeRemainingColumn(compact=True), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{name:<11}", total=rounds, said="")
        yield lambda report: bar.update(task, completed=report.round, said=describe(report, rounds, target))


def describe(report: "Report", rounds: int, target: float | None) -> str:
    """Return round, accuracy, loss, joules and bits in one line."""
    totals = report.totals
    accuracy = "" if report.test_accuracy != report.test_accuracy else f", accuracy {report.test_accuracy:.2%}"
    aim = f" (target {target:.2%})" if target is not None and accuracy else ""
    joules = "" if totals.joules != totals.joules else f", {totals.joules:.4g} J"
    megabits = 8e-6 * totals.payload_bytes
    return f"round {report.round}/{rounds}{accuracy}{aim}, loss {report.train_loss:.3f}{joules}, {megabits:.4g} Mbit"
