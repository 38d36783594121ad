"""The task of a user's own model and data, and where its run is kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.loss import Loss, cross_entropy
from fewjoules.engine.simulator.federation import Federation
from fewjoules.errors import InvalidInputError, require_number, shown
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.plan import Plan
from fewjoules.runs.client_data import Arrays, as_taken, require_loss, rule_of
from fewjoules.runs.folder import require_new_folder
from fewjoules.runs.memory import MOST_GIB
from fewjoules.runs.sources import collect_one
from fewjoules.runs.training import Task

CONTINUE = "use fewjoules.resume to continue the run in it"


def own_task(
    caller: str,
    model: nn.Module,
    data: Federation,
    *,
    test: Arrays | None,
    loss: Loss | None,
    metrics: Mapping[str, Any] | None = None,
    fleet: Fleet | None,
    plan: Plan | None,
    data_memory_gib: float | None = None,
) -> Task:
    """Return the task of a model on the data that ``collect`` returned; devices run as the plan says."""
    if not isinstance(metrics, Mapping | None):
        raise InvalidInputError(f"metrics must be a dict of functions by name, got {type(metrics).__name__}")
    samples = data.samples
    require_loss(caller, loss, samples)
    given = None if test is None else collect_one(test, samples.device, "test", data_memory_gib, rule_of(loss))
    return Task(
        model=model,
        federation=Federation(as_taken(model, samples), data.parts),
        test=None if given is None else as_taken(model, given),
        loss=cross_entropy if loss is None else loss,
        metrics=metrics or {},
        fleet=fleet if plan is None or fleet is None else plan.fleet_at_points(fleet),
    )


def require_test(options: TrainingOptions, task: Task) -> None:
    """Refuse a target or metrics without a test set."""
    if options.target is not None and task.test is None:
        raise InvalidInputError(f"target_{options.target.name} needs a test set")
    if task.metrics and task.test is None:
        raise InvalidInputError(f"metrics need a test set, got {', '.join(map(str, task.metrics))} and none")


def new_folder(out: str | Path | None, checkpoint_seconds: float | None) -> Path | None:
    """Return the folder of a run that begins; refuse one that is not new or empty."""
    if checkpoint_seconds is not None:
        require_number("checkpoint_seconds", checkpoint_seconds, low=0.0)
        if out is None:
            raise InvalidInputError("checkpoint_seconds needs a folder, out=...")
    if out is None:
        return None
    folder = require_path("out", out)
    require_new_folder(folder, CONTINUE)
    return folder


def require_path(name: str, given: str | Path) -> Path:
    """Return a path; refuse anything else."""
    if not isinstance(given, str | Path) or not str(given):
        raise InvalidInputError(f"{name} must be the path of a folder, got {shown(given)}")
    return Path(given)


def require_store(memory_gib: float | None, store_dir: str | Path | None, folder: Path | None) -> Path | None:
    """Return the folder for what does not fit into memory; refuse one that does not exist, or beside ``out``."""
    if memory_gib is not None:
        require_number("memory_gib", memory_gib, low=0.0, high=MOST_GIB)
    if store_dir is None:
        return None
    if not isinstance(store_dir, str | Path) or not Path(store_dir).is_dir():
        raise InvalidInputError(f"store_dir must be a folder that exists, got {shown(store_dir)}")
    if folder is not None:
        raise InvalidInputError(f"store_dir goes with a run without out=, which keeps everything, got {shown(folder)}")
    return Path(store_dir)
