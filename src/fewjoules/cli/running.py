"""Steps shared by ``train`` and ``compare``: prepare a task, train an entry in a folder, save figures."""

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import typer

from fewjoules.cli.progress import download_line, progress_of, say_stopping
from fewjoules.errors import InvalidInputError
from fewjoules.reports.levers import label_of
from fewjoules.runs.files import CHECKPOINT, RUN, SETTINGS
from fewjoules.scenario import Scenario

if TYPE_CHECKING:
    from fewjoules.engine.ranks import Ranks
    from fewjoules.runs.callbacks import Callback
    from fewjoules.runs.entry import Entry
    from fewjoules.runs.metered import MeterLog
    from fewjoules.runs.results import RunResults
    from fewjoules.runs.task import ScenarioTask

_FULL = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EFBIG: "the file is larger than the system allows",
}


def unguarded(scenario: Scenario) -> Scenario:
    """Return the scenario without the guard: a run whose loss blows up ends."""
    training = scenario.training
    return scenario if training is None else replace(scenario, training=training.model_copy(update={"guard": False}))


def prepare_task(scenario: Scenario, device: str, data_dir: str | None) -> "ScenarioTask":
    """Prepare data and model on the training device, and show the progress of a download."""
    from fewjoules.runs.device import choose_device
    from fewjoules.runs.task import prepare

    return prepare(scenario, choose_device(device), data_dir, download_line())


@contextlib.contextmanager
def metering(device: str) -> "Iterator[MeterLog]":
    """Read every meter that tells what a training on this device spends; refuse where there is none."""
    from fewjoules.metering.survey import open_all
    from fewjoules.runs.device import choose_device, gpu_uuid
    from fewjoules.runs.metered import MeterLog

    log = MeterLog(open_all(gpu_uuid(choose_device(device))))
    try:
        yield log
    finally:
        log.close()


@contextlib.contextmanager
def disk_explained(folder: Path, again: str) -> Iterator[None]:
    """If a disk is full, say what of the run in the folder is kept, and how to go on."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        where = folder if error.filename is None else error.filename
        raise OSError(f"{where}: {_FULL[error.errno]}; {_kept(folder, again)}") from error


def _kept(folder: Path, again: str) -> str:
    from fewjoules.runs.checkpoint import read_checkpoint

    if (folder / RUN).exists():
        return f"the run is finished and its results are kept; free some space and run {again}"
    if not any((place / SETTINGS).exists() for place in (folder, *folder.parents[:2])):
        return "nothing was trained yet; free some space and run the same command"
    try:
        number = read_checkpoint(folder / CHECKPOINT)[0]["round"]
    except InvalidInputError:
        return f"no checkpoint was written yet; free some space and run {again}"
    return f"the checkpoint of round {number} is kept; free some space and run {again}"


def carry_out(
    task: "ScenarioTask",
    entry: "Entry",
    folder: Path,
    *,
    checkpoint_seconds: float | None,
    resume: bool,
    again: str,
    begin: Callable[[], None] | None = None,
    callbacks: "Sequence[Callback]" = (),
    place: str = "",
    meter: "MeterLog | None" = None,
    ranks: "Ranks | None" = None,
    memory_gib: float | None = None,
) -> None:
    """Train an entry and show progress; if interrupted, say how to resume and exit with code 130.

    ``place`` tells which of several runs this is, such as "2 of 6" or "2 of 6, seed 3 of 5". The first of the ``ranks``
    that train together shows progress.
    """
    from fewjoules.engine.ranks import ALONE
    from fewjoules.runs.folder import RunSettings, run_in_folder
    from fewjoules.runs.interrupt import CTRL_C_OR_KILL, stop_on_signal

    options, ranks = entry.options(task), ranks or ALONE
    with contextlib.ExitStack() as stack:
        say = say_stopping if ranks.is_first else lambda: None
        should_stop = stack.enter_context(stop_on_signal(say, CTRL_C_OR_KILL))
        show = None
        if ranks.is_first:
            show = stack.enter_context(progress_of(label_of(entry.name), options.rounds, options.target, place=place))
        settings = RunSettings(
            checkpoint_seconds=checkpoint_seconds,
            begin=begin,
            on_round=show,
            should_stop=should_stop,
            meter=meter,
            memory_gib=memory_gib,
            callbacks=callbacks if ranks.is_first else (),
            ranks=ranks,
        )
        with disk_explained(folder, again):
            summary = run_in_folder(task, entry, folder, settings, resume=resume)
    if summary["stop_reason"] == "interrupted":
        if ranks.is_first:
            typer.echo(f"stopped after round {summary['rounds']}; resume with: {again}", err=True)
        raise typer.Exit(130)


def save_plots(runs: "Sequence[RunResults]", folder: Path, plots: str | None) -> None:
    """Save the figures as files, if a format was asked for."""
    if plots is not None:
        from fewjoules.reports.run_plots import save_plots

        files = save_plots(runs, folder / "plots", cast(Literal["png", "pdf", "svg"], plots))
        typer.echo(f"{len(files)} figures in {folder / 'plots'}", err=True)
