"""Run an entry in a results folder: start, checkpoint, resume and finish. docs/ledger.md lists the files."""

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fewjoules import __version__
from fewjoules.engine.loop import INTERRUPTED, Report, TrainingLoop
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import InvalidInputError
from fewjoules.files import PARTIAL_SUFFIX, checksum_of, make_folder, remove_partials
from fewjoules.ledger.parquet import read_blocks
from fewjoules.ledger.schema import LEDGER, METRICS, RowArray
from fewjoules.ledger.sums import SUMMED_COLUMNS, joules_by_kind
from fewjoules.ledger.target import OPTIONS as TARGETS
from fewjoules.runs.checkpoint import save_tensors
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
    RUN_VERSION,
    SCENARIO,
    SETTINGS,
)
from fewjoules.runs.interval import CheckpointInterval
from fewjoules.runs.lock import LOCK
from fewjoules.runs.metered import MeterLog
from fewjoules.runs.saver import Checkpoints, require_every_round
from fewjoules.runs.sealed import read_sealed, write_sealed
from fewjoules.runs.settings import save_scenario
from fewjoules.runs.task import ScenarioTask, identity_of
from fewjoules.runs.training import Training, train_task


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings that do not change the results of a run.

    ``begin`` is called after all checks and before anything is written. ``meter`` reads what the machine spends.
    """

    checkpoint_seconds: float | None = None  # None: as often as they cost little, see ``CheckpointInterval``
    begin: Callable[[], None] | None = None
    on_round: Callable[[Report], None] | None = None
    should_stop: Callable[[], bool] | None = None
    meter: MeterLog | None = None


def require_new_folder(folder: Path) -> None:
    """Refuse a folder that is not empty: results are never mixed or overwritten.

    Files of a run that was killed while it made the folder do not count.
    """
    names = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    remains = {SCENARIO, PLAN, SETTINGS} if BEGUN in names else set()
    passing = {name for name in names if name.startswith(".") and name.endswith(PARTIAL_SUFFIX)}
    foreign = names - remains - passing - {LOCK}
    if foreign or (folder.exists() and not folder.is_dir()):
        raise InvalidInputError(
            f"{folder}: the results folder must be new or empty; use --resume to continue the run in it"
        )


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


def run_in_folder(
    task: ScenarioTask, entry: Entry, folder: Path, settings: RunSettings, *, resume: bool
) -> dict[str, Any]:
    """Train an entry from the start or from a checkpoint, write the results and return the content of run.json."""
    began = time.monotonic()
    task = replace(task, fleet=entry.fleet(task.scenario.fleet))

    def opened(simulator: Simulator) -> TrainingLoop:
        identity = identity_of(task, simulator.options) | {"execution": simulator.execution.name}
        saver = Checkpoints(folder, simulator, identity, CheckpointInterval(settings.checkpoint_seconds))
        saved = saver.load() if resume and saver.path.exists() else None
        if settings.meter is not None and resume:
            settings.meter.take_up(folder)
        if settings.begin is not None:
            settings.begin()
        make_folder(folder)
        save_scenario(folder, task.scenario)
        if entry.plan is not None:
            entry.plan.save(folder / PLAN)
        loop = saver.new_loop(fresh=not resume) if saved is None else saver.resumed_loop(saved)
        remove_partials(folder)
        if settings.meter is not None:
            settings.meter.save(folder)  # whatever is lost by a kill, that there was a part is known
        loop.saver = saver
        return loop

    training = train_task(
        task,
        entry.options(task),
        opened=opened,
        on_round=_metered_rounds(folder, settings),
        should_stop=settings.should_stop,
    )
    if training.reason == INTERRUPTED:
        if settings.meter is not None:
            settings.meter.save(folder)
        return {"stop_reason": training.reason, "rounds": training.rounds}
    return _finish(folder, task, entry, training, began, settings.meter)


def _metered_rounds(folder: Path, settings: RunSettings) -> Callable[[Report], None] | None:
    """Return what is called after each round: the given function, and the meters' turn to be saved."""
    meter, on_round = settings.meter, settings.on_round
    if meter is None:
        return on_round

    def after_round(report: Report) -> None:
        meter.save_now_and_then(folder)
        if on_round is not None:
            on_round(report)

    return after_round


def _finish(
    folder: Path, task: ScenarioTask, entry: Entry, training: Training, began: float, meter: MeterLog | None
) -> dict[str, Any]:
    """Write all results, then run.json, which marks the run as finished; last, remove the files for a resume."""
    loop = training.loop
    model = training.trained_model(task.model)  # first: whatever is wrong with the tables, the model is there
    save_tensors(folder / MODEL, model.state_dict(), {"architecture": str(task.scenario.architecture)})
    require_every_round(folder, loop)
    loop.ledger.finish(folder / LEDGER_TABLE, keep_parts=True)
    loop.metrics.finish(folder / METRICS_TABLE, keep_parts=True)
    summary = _summary(task, entry, training) | {"wall_seconds": round(time.monotonic() - began, 3)}
    # of the finished table, whose blocks do not depend on when the run was interrupted
    summary["joules_by_kind"] = joules_by_kind(read_blocks(folder / LEDGER_TABLE, LEDGER, SUMMED_COLUMNS))
    summary["metered"] = None if meter is None else meter.total().to_dict()
    written = [name for name in RESULT_FILES if name != PLAN or entry.plan is not None]
    summary["checksums"] = {name: checksum_of(folder / name) for name in written}
    write_sealed(folder / RUN, summary)
    clean_up(folder)
    return summary


def clean_up(folder: Path) -> None:
    """Remove the files that only a resume needs from a finished run."""
    for name in (CHECKPOINT, METER):
        (folder / name).unlink(missing_ok=True)
    for table in (LEDGER, METRICS):
        if (folder / table.name).is_dir():
            shutil.rmtree(folder / table.name)
    remove_partials(folder)


def _summary(task: ScenarioTask, entry: Entry, training: Training) -> dict[str, Any]:
    loop, simulator = training.loop, training.simulator
    options, totals = simulator.options, loop.totals
    metrics = loop.metrics.rows()
    target = options.target
    at = None if target is None else target.first_row(metrics)
    planned = totals.planned_uplink_joules
    return {
        "version": RUN_VERSION,
        "finished": True,
        "fewjoules_version": __version__,
        "scenario": task.scenario.name,
        "scheme": entry.name,
        "stop_reason": training.reason,
        **{name: getattr(options, name) for name in TARGETS},
        "target_reached": None if target is None else at is not None,
        "rounds": simulator.state.round,
        "returns": list(simulator.state.returns),
        "learning_rate": options.learning_rate * 0.5 ** len(simulator.state.returns),
        "rounds_to_target": None if at is None else int(metrics["round"][at]),
        "joules": _known(totals.joules),
        "joules_to_target": _at(metrics, "total_joules", at),
        "radio_joules": _known(totals.radio_joules),
        "compute_joules": _known(totals.compute_joules),
        "seconds": _known(totals.seconds),
        "seconds_to_target": _at(metrics, "total_seconds", at),
        "payload_bytes": totals.payload_bytes,
        "realised_over_planned_radio": _known(totals.uplink_joules / planned) if planned > 0.0 else None,
        "test_accuracy": _known(loop.last_test[1]),
        "test_loss": _known(loop.last_test[0]),
        "devices": {"names": list(task.scenario.fleet.names or ())},
        "local_steps": options.local_steps,
        "sparsity": np.asarray(options.sparsity).tolist(),
        "data": task.dataset.name,
        "partition": task.training.partition,
        "architecture": task.scenario.architecture,
        "parameters": simulator.parameters.size,
        "clients": options.clients,
        "seed": options.seed,
        "device": device_name(task.device),
        "precision": options.precision,
        "execution": simulator.execution.name,
    }


def _at(metrics: RowArray, column: str, row: int | None) -> float | None:
    return None if row is None else _known(float(metrics[column][row]))


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
