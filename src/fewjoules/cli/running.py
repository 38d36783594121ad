"""What ``train`` and ``compare`` share: options, the folder of a resumed run, progress and Ctrl-C."""

import contextlib
import itertools
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, cast

import typer

from fewjoules.errors import InvalidInputError, require_number
from fewjoules.files import read_text
from fewjoules.scenario import Scenario

if TYPE_CHECKING:
    from fewjoules.engine.simulator.loop import Report
    from fewjoules.planner.plan import Plan
    from fewjoules.runs.results import RunResults
    from fewjoules.runs.task import Task

DataDir = Annotated[
    Optional[str],  # noqa: UP045 - typer reads the annotation at run time
    typer.Option(metavar="DIR", help="Folder with the data files; otherwise $FEWJOULES_DATA or the user's cache."),
]
Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to train; auto takes a GPU if there is one.")]
CheckpointSeconds = Annotated[float, typer.Option(help="A killed run loses at most about this many seconds of work.")]
Plots = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="png|pdf|svg", help="Also save each figure of the page as a file."),
]
_LINE_SECONDS = 10.0


def read_scenario(path: str | None) -> Scenario:
    """The file, or the embedded scenario."""
    return Scenario.embedded() if path is None else Scenario.from_toml(path)


def stored_scenario(folder: Path, path: str | None) -> Scenario:
    """The scenario of a run that is resumed; one that is given must be the same."""
    settings = stored_settings(folder)
    stored = read_text(folder / "scenario.toml")
    if path is not None:
        given = Scenario.from_toml(path)
        if given.text != stored:
            raise InvalidInputError(
                f"{folder}: the run belongs to another scenario; {_first_difference(stored, given.text)}"
            )
    return Scenario.from_text(stored, settings["scenario"], Path(settings["scenario_folder"]))


def _first_difference(stored: str, given: str) -> str:
    lines = itertools.zip_longest(stored.splitlines(), given.splitlines(), fillvalue="")
    differing = [(i, a, b) for i, (a, b) in enumerate(lines, start=1) if a != b]
    if not differing:
        return "they differ in empty lines"
    number, before, now = differing[0]
    return f"line {number} was {before!r} and is {now!r} now"


def absolute(data_dir: str | None) -> str | None:
    """A folder that a resumed run finds from anywhere."""
    return None if data_dir is None else str(Path(data_dir).resolve())


def save_settings(folder: Path, scenario: Scenario, **settings: Any) -> None:
    """How the command was called, for --resume."""
    from fewjoules.files import whole_file

    folder.mkdir(parents=True, exist_ok=True)
    known = {"version": 1, "scenario": scenario.name, "scenario_folder": str(scenario.folder.resolve()), **settings}
    with whole_file(folder / "scenario.toml") as stream:
        stream.write(scenario.text.encode())
    with whole_file(folder / "settings.json") as stream:
        stream.write((json.dumps(known, indent=1) + "\n").encode())


def stored_settings(folder: Path, command: str | None = None) -> dict[str, Any]:
    """What ``save_settings`` wrote; a folder without it is no run, and one of another command is refused."""
    file = folder / "settings.json"
    if not file.is_file():
        raise InvalidInputError(f"{folder}: must be the results folder of a run, got one without settings.json")
    try:
        settings = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{file}: must be JSON ({error})") from error
    keys = {"version", "command", "scenario", "scenario_folder", "data_dir", "device"}
    made_by_compare = isinstance(settings, dict) and settings.get("command") == "compare"
    keys |= {"schemes"} if made_by_compare else set()
    if not isinstance(settings, dict) or settings.get("version") != 1 or not keys <= set(settings):
        got = settings.get("version") if isinstance(settings, dict) else type(settings).__name__
        raise InvalidInputError(
            f"{file}: must be a table of version 1 with the keys {', '.join(sorted(keys))}, got {got!r}"
        )
    if command is not None and settings["command"] != command:
        raise InvalidInputError(
            f"{folder}: the run was made by fewjoules {settings['command']}, got {command} --resume"
        )
    return dict(settings)


def stored_device(device: str, settings: dict[str, Any]) -> str:
    """The kind of device that the run began on, unless another is asked for."""
    return str(settings["device"]) if device == "auto" else device


def require_options(plots: str | None, checkpoint_seconds: float) -> None:
    """Refuse an unknown format of figures or a time that is none."""
    require_number("--checkpoint-seconds", checkpoint_seconds, low=0.0)
    if plots not in (None, "png", "pdf", "svg"):
        raise InvalidInputError(f"--plots must be png, pdf or svg, got {plots!r}")


def save_plots(runs: "Sequence[RunResults]", folder: Path, plots: str | None) -> None:
    """The figures as files, if a format was asked for."""
    if plots is not None:
        from fewjoules.reports.run_plots import save_plots

        files = save_plots(runs, folder / "plots", cast(Literal["png", "pdf", "svg"], plots))
        typer.echo(f"{len(files)} figures in {folder / 'plots'}", err=True)


def carry_out(
    task: "Task",
    plan: "Plan",
    folder: Path,
    *,
    checkpoint_seconds: float,
    resume: bool,
    again: str,
    begin: Callable[[], None] | None = None,
    tensorboard: bool = False,
) -> None:
    """Run with progress; if interrupted, say how to go on and leave with exit code 130."""
    from fewjoules.runs.folder import RunSettings, run_in_folder
    from fewjoules.runs.task import options_for

    options = options_for(task, plan)
    with contextlib.ExitStack() as stack:
        should_stop = stack.enter_context(stop_on_interrupt())
        show = stack.enter_context(progress_of(plan.scheme, options.rounds, options.target_accuracy))
        listeners = [show]
        if tensorboard:
            from fewjoules.runs.tensorboard import TensorBoardLog

            listeners.append(stack.enter_context(TensorBoardLog(folder / "tensorboard")))
        settings = RunSettings(
            checkpoint_seconds=checkpoint_seconds,
            begin=begin,
            on_round=lambda report: [listener(report) for listener in listeners].clear(),
            should_stop=should_stop,
        )
        summary = run_in_folder(task, plan, folder, settings, resume=resume)
    if summary["stop_reason"] == "interrupted":
        typer.echo(f"stopped after round {summary['rounds']}; go on with: {again}", err=True)
        raise typer.Exit(130)


def prepare_task(scenario: Scenario, device: str, data_dir: str | None) -> "Task":
    """Data and model on the training device, with the progress of a download."""
    from fewjoules.runs.task import prepare
    from fewjoules.runs.train import choose_device

    return prepare(scenario, choose_device(device), data_dir, _download_line())


def _download_line() -> Callable[[int, int | None], None]:
    last = [0.0]

    def show(done: int, total: int | None) -> None:
        if time.monotonic() - last[0] > 1.0:
            last[0] = time.monotonic()
            whole = "" if total is None else f" of {total / 1e6:.1f}"
            typer.echo(f"downloading: {done / 1e6:.1f}{whole} MB", err=True)

    return show


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C asks the run to stop after its round and save; a second one ends it at once."""
    asked = [False]

    def handle(_signal: int, _frame: object) -> None:
        if asked[0]:
            raise KeyboardInterrupt
        asked[0] = True
        typer.echo("stopping after this round; press Ctrl-C again to stop at once", err=True)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: asked[0]
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def progress_of(name: str, rounds: int, target: float | None) -> Iterator[Callable[["Report"], None]]:
    """A live line on a terminal; elsewhere one line every ten seconds."""
    if sys.stderr.isatty():
        with _live(name, rounds, target) as update:
            yield update
        return
    began = last = time.monotonic()
    first: int | None = None

    def line(report: "Report") -> None:
        nonlocal first, last
        first = report.round - 1 if first is None else first
        if time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            left = (last - began) / (report.round - first) * (rounds - report.round)
            typer.echo(f"{name}: {describe(report, rounds, target)}, about {left:.0f} s left at most", err=True)

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
    """Round, accuracy, loss, joules and bits in one line."""
    totals = report.totals
    accuracy = "" if report.test_accuracy != report.test_accuracy else f", accuracy {report.test_accuracy:.2%}"
    aim = f" (target {target:.2%})" if target is not None and accuracy else ""
    joules = "" if totals.joules != totals.joules else f", {totals.joules:.4g} J"
    megabits = 8e-6 * totals.payload_bytes
    return f"round {report.round}/{rounds}{accuracy}{aim}, loss {report.train_loss:.3f}{joules}, {megabits:.4g} Mbit"
