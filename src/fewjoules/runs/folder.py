"""Train in a results folder: start, checkpoint, resume and finish. docs/ledger.md lists the files."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.loop import INTERRUPTED, TrainingLoop
from fewjoules.engine.ranks import ALONE, Ranks
from fewjoules.engine.report import Report
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import InvalidInputError, shown
from fewjoules.files import PARTIAL_SUFFIX, checksum_of, make_folder, remove_partials
from fewjoules.ledger.parquet import read_blocks
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.ledger.sums import SUMMED_COLUMNS, joules_by_kind
from fewjoules.planner.plan import Plan
from fewjoules.runs.callbacks import Callback
from fewjoules.runs.checkpoint import save_tensors
from fewjoules.runs.client_rows import row_files
from fewjoules.runs.device import device_name
from fewjoules.runs.entry import Entry
from fewjoules.runs.files import (
    BEGUN,
    CHECKPOINT,
    LEDGER_TABLE,
    METER,
    METRICS_TABLE,
    MODEL,
    PLAN,
    RESULT_FILES,
    RUN,
    SCENARIO,
    SETTINGS,
)
from fewjoules.runs.interval import CheckpointInterval
from fewjoules.runs.live_rows import LiveRows
from fewjoules.runs.lock import LOCK
from fewjoules.runs.memory import store_place
from fewjoules.runs.metered import MeterLog
from fewjoules.runs.saver import Checkpoints, require_every_round
from fewjoules.runs.sealed import read_sealed, write_sealed
from fewjoules.runs.settings import save_scenario
from fewjoules.runs.summary import summary_of
from fewjoules.runs.task import ScenarioTask, identity_of
from fewjoules.runs.training import Task, Training, train_task
from fewjoules.scenario import Scenario
from fewjoules.torchrun import is_first_rank


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings that do not change the results of a run.

    ``begin`` is called after all checks and before anything is written. ``meter`` reads what the machine spends.
    Of the ``ranks`` that train the run together, the first writes it.
    """

    checkpoint_seconds: float | None = None  # None: as often as they cost little, see ``CheckpointInterval``
    begin: Callable[[], None] | None = None
    on_round: Callable[[Report], None] | None = None
    should_stop: Callable[[], bool] | None = None
    meter: MeterLog | None = None
    ranks: Ranks = ALONE
    callbacks: Sequence[Callback] = ()
    memory_gib: float | None = None  # what clients keep beyond it goes to disk; None: half of what is free


def require_new_folder(folder: Path, hint: str = "use --resume to continue the run in it") -> None:
    """Refuse a folder that is not empty: results are never mixed or overwritten.

    Files of a run that was killed while it made the folder do not count. The ``hint`` ends the refusal. The first of
    several ranks looks for all.
    """
    if not is_first_rank():
        return
    _require_possible(folder)
    names = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    remains = {SCENARIO, PLAN, SETTINGS} if BEGUN in names else set()
    passing = {name for name in names if name.startswith(".") and name.endswith(PARTIAL_SUFFIX)}
    foreign = names - remains - passing - {LOCK}
    if foreign or (folder.exists() and not folder.is_dir()):
        raise InvalidInputError(f"{folder}: the results folder must be new or empty; {hint}")


def _require_possible(folder: Path) -> None:
    """Refuse a path that no folder can have: one inside a file, or with a name that is too long."""
    try:
        os.lstat(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        got = f"{shown(str(folder), 200)} ({(error.strerror or str(error)).lower()})"
        raise InvalidInputError(f"the results folder must be one that can be made, got {got}") from error


@contextlib.contextmanager
def beginning(folder: Path) -> Iterator[None]:
    """Mark a folder while its first files are written: after a kill it can be reused, after an error it is empty."""
    make_folder(folder)
    (folder / BEGUN).touch()
    try:
        yield
    except BaseException:
        for name in (SETTINGS, SCENARIO, PLAN):
            (folder / name).unlink(missing_ok=True)
        raise
    finally:
        (folder / BEGUN).unlink()


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a finished run; a damaged run.json is refused, since it is written last and whole."""
    if not (folder / RUN).exists():
        return False
    summary = read_sealed(folder / RUN)
    if not isinstance(summary, dict) or summary.get("finished") is not True:
        raise InvalidInputError(f"{folder / RUN}: must be the outcome of a finished run; remove it to train on")
    return True


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training for a folder: what is trained, and what the folder tells of it.

    A run is resumed only if its ``identity`` is the same. ``facts`` go into run.json as they are; ``scenario`` and
    ``plan`` become files, where there are any. With ``saved_at_start`` the first weights are kept in a checkpoint.
    """

    task: Task
    options: TrainingOptions
    identity: Mapping[str, Any]
    facts: Mapping[str, Any]
    scenario: Scenario | None = None
    plan: Plan | None = None
    saved_at_start: bool = False


def run_in_folder(
    task: ScenarioTask, entry: Entry, folder: Path, settings: RunSettings, *, resume: bool
) -> dict[str, Any]:
    """Train an entry from the start or from a checkpoint, write the results and return the content of run.json."""
    return train_in_folder(scenario_job(task, entry), folder, settings, resume=resume)[1]


def scenario_job(task: ScenarioTask, entry: Entry) -> Job:
    """Return the job to train an entry of a scenario."""
    task = replace(task, fleet=entry.fleet(task.scenario.fleet))
    options = entry.options(task)
    facts = {
        "scenario": task.scenario.name,
        "scheme": entry.name,
        "devices": {"names": list(task.scenario.fleet.names or ())},
        "data": task.data.name,
        "partition": task.training.partition,
        "architecture": task.scenario.architecture,
        "device": device_name(task.device),
    }
    identity = identity_of(task, options)
    return Job(task=task, options=options, identity=identity, facts=facts, scenario=task.scenario, plan=entry.plan)


def train_in_folder(job: Job, folder: Path, settings: RunSettings, *, resume: bool) -> tuple[Training, dict[str, Any]]:
    """Train from the start or from a checkpoint and write the results; return them, and the content of run.json."""
    began = time.monotonic()
    live = LiveRows(folder)

    def opened(simulator: Simulator) -> TrainingLoop:
        identity = {**job.identity, "execution": simulator.execution.name}
        saver = Checkpoints(folder, simulator, identity, CheckpointInterval(settings.checkpoint_seconds))
        saved = saver.load() if resume and saver.path.exists() else None
        if not settings.ranks.is_first:
            return saver.loop_of_other_rank(saved)
        if settings.meter is not None and resume:
            settings.meter.take_up(folder)
        if settings.begin is not None:
            settings.begin()
        make_folder(folder)
        if job.scenario is not None:
            save_scenario(folder, job.scenario)
        if job.plan is not None:
            job.plan.save(folder / PLAN)
        loop = saver.new_loop(fresh=not resume) if saved is None else saver.resumed_loop(saved)
        remove_partials(folder)
        if settings.meter is not None:
            settings.meter.save(folder)  # whatever is lost by a kill, that there was a part is known
        live.follow(loop.metrics)
        loop.saver = saver
        if job.saved_at_start and saved is None:
            saver.save(loop)
        return loop

    with live:
        training = train_task(
            job.task,
            job.options,
            opened=opened,
            on_round=_after_rounds(folder, settings, live),
            should_stop=settings.should_stop,
            ranks=settings.ranks,
            callbacks=settings.callbacks,
            folder=folder,
            place=store_place(settings.memory_gib, folder),
        )
    summary: dict[str, Any] = {"stop_reason": training.reason, "rounds": training.rounds}
    with settings.ranks.together():
        if training.reason != INTERRUPTED and settings.ranks.is_first:
            summary = _finish(folder, job, training, began, settings.meter)
        elif settings.meter is not None:
            settings.meter.save(folder)
    training.tell_end()
    return training, summary


def _after_rounds(folder: Path, settings: RunSettings, live: LiveRows) -> Callable[[Report], None]:
    """Return what is called after each round: the given function, and the turn of rows and meters to be saved."""
    meter, on_round = settings.meter, settings.on_round

    def after_round(report: Report) -> None:
        live.show_now_and_then()
        if meter is not None:
            meter.save_now_and_then(folder)
        if on_round is not None:
            on_round(report)

    return after_round


def _finish(folder: Path, job: Job, training: Training, began: float, meter: MeterLog | None) -> dict[str, Any]:
    """Write all results, then run.json, which marks the run as finished; last, remove the files for a resume."""
    loop = training.loop
    model = training.trained_model(job.task.model)  # first: whatever is wrong with the tables, the model is there
    save_tensors(folder / MODEL, model.state_dict(), {"architecture": str(job.facts["architecture"])})
    require_every_round(folder, loop)
    loop.ledger.finish(folder / LEDGER_TABLE, keep_parts=True)
    loop.metrics.finish(folder / METRICS_TABLE, keep_parts=True)
    summary = {**summary_of(training), **job.facts, "wall_seconds": round(time.monotonic() - began, 3)}
    # of the finished table, whose blocks do not depend on when the run was interrupted
    summary["joules_by_kind"] = joules_by_kind(read_blocks(folder / LEDGER_TABLE, LEDGER, SUMMED_COLUMNS))
    summary["metered"] = None if meter is None else meter.total().to_dict()
    summary["checksums"] = {name: checksum_of(folder / name) for name in RESULT_FILES if (folder / name).exists()}
    write_sealed(folder / RUN, summary)
    clean_up(folder)
    return summary


def clean_up(folder: Path) -> None:
    """Remove the files that only a resume needs from a finished run; the first of several ranks does."""
    if not is_first_rank():
        return
    for file in (*row_files(folder / CHECKPOINT), folder / CHECKPOINT, folder / METER):
        file.unlink(missing_ok=True)
    for table in (LEDGER, METRICS):
        if (folder / table.name).is_dir():
            shutil.rmtree(folder / table.name)
    remove_partials(folder)
