"""The results folder of a run, while it goes on and afterwards. docs/ledger.md lists the files."""

import contextlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fewjoules import __version__
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.loop import INTERRUPTED, EverySeconds, Report, TrainingLoop, first_round_at
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import InvalidInputError
from fewjoules.files import PARTIAL_SUFFIX, remove_partials, whole_file
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import LEDGER, METRICS, RowArray
from fewjoules.planner.plan import Plan
from fewjoules.runs.checkpoint import load_checkpoint, save_checkpoint, save_tensors
from fewjoules.runs.task import Task, device_name, identity_of, options_for
from fewjoules.runs.train import trained

RUN_VERSION = 1
CHECKPOINT, PLAN, SCENARIO, RUN = "checkpoint.safetensors", "plan.json", "scenario.toml", "run.json"
SETTINGS = "settings.json"  # how the command was called; a folder with it can be resumed
BEGUN = f".begun{PARTIAL_SUFFIX}"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a run is carried out, none of which changes its results.

    ``begin`` is called once everything was checked and before anything is written.
    """

    checkpoint_seconds: float = 30.0
    begin: Callable[[], None] | None = None
    on_round: Callable[[Report], None] | None = None
    should_stop: Callable[[], bool] | None = None


def require_new_folder(folder: Path) -> None:
    """Refuse a folder that holds anything: results are never mixed or overwritten.

    What a run left that was killed while it made its folder does not count.
    """
    names = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    remains = {SCENARIO, PLAN, SETTINGS} if BEGUN in names else set()
    foreign = {name for name in names - remains if not (name.startswith(".") and name.endswith(PARTIAL_SUFFIX))}
    if foreign or (folder.exists() and not folder.is_dir()):
        raise InvalidInputError(
            f"{folder}: the results folder must be new or empty, got one that is not; --resume goes on"
        )


@contextlib.contextmanager
def beginning(folder: Path) -> Iterator[None]:
    """Mark a folder as begun while its first files are written: a kill spoils nothing, an error leaves nothing."""
    folder.mkdir(parents=True, exist_ok=True)
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
    """Whether a run came to its end here."""
    try:
        return bool(json.loads((folder / RUN).read_text(encoding="utf-8")).get("finished"))
    except (OSError, ValueError, AttributeError):
        return False


def run_in_folder(task: Task, plan: Plan, folder: Path, settings: RunSettings, *, resume: bool) -> dict[str, Any]:
    """Train a plan, start or go on, and leave the results; returns what run.json says."""
    options = options_for(task, plan)
    began = time.monotonic()
    simulator = Simulator(task.model, task.federation, options, loss=cross_entropy, fleet=task.scenario.fleet)
    try:
        evaluator = simulator.evaluator(task.model, cross_entropy, task.test)
        saver = _Checkpoints(folder, task, simulator, settings.checkpoint_seconds)
        if settings.begin is not None:
            settings.begin()
        folder.mkdir(parents=True, exist_ok=True)
        loop = saver.resumed_loop() if resume and saver.path.exists() else saver.new_loop(plan, fresh=not resume)
        remove_partials(folder)
        loop.evaluator, loop.saver = evaluator, saver
        if settings.on_round is not None:
            loop.on_round = settings.on_round
        if settings.should_stop is not None:
            loop.should_stop = settings.should_stop
        reason = loop.run()
        if reason == INTERRUPTED:
            return {"stop_reason": reason, "rounds": simulator.state.round}
        return _finish(folder, task, plan, loop, reason, began)
    finally:
        simulator.close()


class _Checkpoints:
    """Saves the loop from time to time; the logs are flushed first, so that they reach as far as the checkpoint."""

    def __init__(self, folder: Path, task: Task, simulator: Simulator, seconds: float) -> None:
        self.folder, self.simulator = folder, simulator
        self.path = folder / CHECKPOINT
        self.identity = identity_of(task, simulator.options) | {"path": simulator.path.name}
        self.scenario_text = task.scenario.text
        self._clock = EverySeconds(seconds)

    def is_due(self) -> bool:
        return self._clock.is_due()

    def save(self, loop: TrainingLoop) -> None:
        number = loop.simulator.state.round
        loop.ledger.flush(number)
        loop.metrics.flush(number)
        save_checkpoint(self.path, loop, self.identity)
        self._clock.restart()

    def new_loop(self, plan: Plan, *, fresh: bool) -> TrainingLoop:
        """A loop at round 0; a run that was killed before its first checkpoint starts again."""
        with whole_file(self.folder / SCENARIO) as stream:
            stream.write(self.scenario_text.encode())
        plan.save(self.folder / PLAN)
        logs = {table.name: self.folder / table.name for table in (LEDGER, METRICS)}
        if fresh:
            return TrainingLoop(self.simulator, None, RowLog(logs["ledger"], LEDGER), RowLog(logs["metrics"], METRICS))
        return TrainingLoop(
            self.simulator, None, RowLog.resume(logs["ledger"], LEDGER, 0), RowLog.resume(logs["metrics"], METRICS, 0)
        )

    def resumed_loop(self) -> TrainingLoop:
        state, rest = load_checkpoint(self.path, self.identity, self.simulator.state)
        self.simulator.state = state
        ledger = RowLog.resume(self.folder / LEDGER.name, LEDGER, state.round)
        metrics = RowLog.resume(self.folder / METRICS.name, METRICS, state.round)
        return TrainingLoop(self.simulator, None, ledger, metrics, **rest)


def _finish(folder: Path, task: Task, plan: Plan, loop: TrainingLoop, reason: str, began: float) -> dict[str, Any]:
    """Every result first, then run.json, which marks the run as finished, and last what only a resume needs goes."""
    loop.ledger.finish(folder / "ledger.parquet", keep_parts=True)
    loop.metrics.finish(folder / "metrics.parquet", keep_parts=True)
    model = trained(task.model, loop.simulator)
    save_tensors(folder / "model.safetensors", model.state_dict(), {"architecture": str(task.scenario.architecture)})
    summary = _summary(task, plan, loop, reason) | {"wall_seconds": round(time.monotonic() - began, 3)}
    with whole_file(folder / RUN) as stream:
        stream.write((json.dumps(summary, indent=1, allow_nan=False) + "\n").encode())
    clean_up(folder)
    return summary


def clean_up(folder: Path) -> None:
    """Remove what only a resume needs from a finished run."""
    (folder / CHECKPOINT).unlink(missing_ok=True)
    for table in (LEDGER, METRICS):
        if (folder / table.name).is_dir():
            shutil.rmtree(folder / table.name)
    remove_partials(folder)


def _summary(task: Task, plan: Plan, loop: TrainingLoop, reason: str) -> dict[str, Any]:
    options, totals, simulator = loop.simulator.options, loop.totals, loop.simulator
    metrics = loop.metrics.rows()
    target = options.target_accuracy
    at = None if target is None else first_round_at(metrics, target)
    planned = totals.planned_uplink_joules
    return {
        "version": RUN_VERSION,
        "finished": True,
        "fewjoules_version": __version__,
        "scenario": task.scenario.name,
        "scheme": plan.scheme,
        "stop_reason": reason,
        "target_accuracy": target,
        "target_reached": None if target is None else at is not None,
        "rounds": simulator.state.round,
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
        "path": simulator.path.name,
    }


def _at(metrics: RowArray, column: str, row: int | None) -> float | None:
    return None if row is None else _known(float(metrics[column][row]))


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
