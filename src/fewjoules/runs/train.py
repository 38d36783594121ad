"""``fewjoules.train``: train a user's own model on a user's own arrays."""

import contextlib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from fewjoules.arrays import IntArray
from fewjoules.engine.algorithm.options import TrainingOptions, overridden
from fewjoules.engine.algorithm.presets import preset_options
from fewjoules.engine.loop import Report
from fewjoules.engine.models.layout import require_trainable
from fewjoules.engine.models.loss import Loss, cross_entropy
from fewjoules.engine.models.networks import parameter_count
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.errors import FewJoulesWarning, InvalidInputError, require_array
from fewjoules.ledger.schema import RowArray
from fewjoules.metering.survey import open_all
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import MAX_SPARSITY
from fewjoules.planner.recipe import Recipe
from fewjoules.provenance import KINDS
from fewjoules.runs.device import choose_device, gpu_uuid
from fewjoules.runs.interrupt import CTRL_C, stop_on_signal
from fewjoules.runs.metered import Metered, MeterLog
from fewjoules.runs.training import Task, train_task

Arrays = tuple[Any, Any]


class Unset(Enum):
    """The default of an argument for which None means something."""

    UNSET = "as in the recipe, or the usual"


@dataclass(frozen=True, slots=True)
class Run:
    """A finished training: the trained model, one metrics row per round, one ledger row per round and participant.

    ``metrics`` and ``ledger`` are NumPy structured arrays; docs/ledger.md lists their columns. Unknown numbers are NaN.
    ``metered`` is what the meters of this machine read, if they were asked; it is no part of the ledger. ``returns``
    holds the rounds after which the guard returned to an earlier model.
    """

    model: nn.Module
    metrics: RowArray
    ledger: RowArray
    stop_reason: str
    execution: str
    metered: Metered | None = None
    returns: tuple[int, ...] = ()

    @property
    def energy_joules(self) -> float:
        """Joules of all devices and rounds; NaN without a fleet."""
        return math.fsum(math.fsum(self.ledger[f"{kind}_joules"]) for kind in KINDS)


def train(
    model: nn.Module,
    *,
    clients: Sequence[Arrays],
    test: Arrays | None = None,
    plan: Plan | None = None,
    recipe: Recipe | None = None,
    fleet: Fleet | None = None,
    local_steps: int | None = None,
    sparsity: ArrayLike | None = None,
    rounds: int | None = None,
    learning_rate: float | None = None,
    batch_size: int | Unset | None = Unset.UNSET,
    batch_growth: float | None = None,
    error_feedback: bool | None = None,
    seed: int = 0,
    loss: Loss | None = None,
    device: str = "auto",
    on_round: Callable[[Report], None] | None = None,
    meter: bool = False,
    **options: Any,
) -> Run:
    """Train by FT-LSGD-DB in the simulator and account for every joule, bit and second.

    ``clients`` holds (inputs, targets) of each client, as arrays or tensors. Give ``local_steps`` and ``sparsity`` (one
    number or one per client), or a ``plan``, whose rounds are then the default, or a ``preset`` that sets both.
    A ``recipe`` gives the step size and other options, and by its plan H, sparsity and rounds; arguments beside it win.
    Without one ``learning_rate`` is needed, ``batch_size`` is 32 (None: all samples) and ``batch_growth`` 1.
    ``loss(outputs, targets)`` may return one number or one per sample; the default is cross-entropy. The caller's model
    is not changed. Error feedback is on unless a preset turns it off. Other options are those of ``TrainingOptions``,
    such as ``inner``, ``outer``, ``compressor`` and ``preset``; docs/training.md explains them all. Where the loss
    blows up, the run returns to an earlier model with half the step size, unless ``guard=False``. Ctrl-C ends the
    training after its round, and what was trained is returned with the stop reason "interrupted". ``meter`` also reads
    every meter of this machine, and refuses where there is none; docs/measuring.md.
    """
    require_kinds(model, clients, fleet, plan, recipe)
    require_trainable(model)
    recipe = recipe if plan is None else plan.recipe
    followed = plan if recipe is None or recipe.plan is None else recipe.plan
    if followed is not None:
        followed.require_model(parameter_count(model))
    where = choose_device(device)
    samples, parts = gather(clients, where)
    if recipe is not None and recipe.plan is not None:
        local_steps = recipe.plan.local_steps if local_steps is None else local_steps
        sparsity = recipe.plan.sparsity if sparsity is None else sparsity
        rounds = recipe.plan.rounds_to_train() if rounds is None else rounds
    given = {"learning_rate": learning_rate, "batch_growth": batch_growth, "error_feedback": error_feedback}
    options |= {name: value for name, value in given.items() if value is not None}
    options |= {} if batch_size is Unset.UNSET else {"batch_size": batch_size}
    chosen = TrainingOptions.of(
        **_planned(plan, local_steps, sparsity, rounds, len(parts), options.get("preset")),
        seed=seed,
        **({} if followed is None else followed.downlink_option()) | _with_recipe(recipe, options),
    )
    require_loss("train", loss, samples)
    if chosen.target is not None and test is None:
        raise InvalidInputError(f"target_{chosen.target.name} needs a test set")
    task = Task(
        model=model,
        federation=Federation(samples, parts),
        test=None if test is None else _tensors(test, where, "test"),
        loss=loss or cross_entropy,
        fleet=fleet if followed is None or fleet is None else followed.fleet_at_points(fleet),
    )
    meters = open_all(gpu_uuid(where)) if meter else ()
    with contextlib.closing(MeterLog(meters)) as log, stop_on_signal(_say_stopping, CTRL_C) as should_stop:
        training = train_task(task, chosen, on_round=on_round, should_stop=should_stop)
        metered = log.total() if meter else None
    return Run(
        model=training.trained_model(model),
        metrics=training.loop.metrics.rows(),
        ledger=training.loop.ledger.rows(),
        stop_reason=training.reason,
        execution=training.simulator.execution.name,
        metered=metered,
        returns=training.simulator.state.returns,
    )


def _say_stopping() -> None:
    warnings.warn(
        "stopping after this round; what was trained is returned, and a second Ctrl-C stops at once",
        FewJoulesWarning,
        stacklevel=2,
    )


def require_kinds(model: Any, clients: Any, fleet: Any, plan: Any = None, recipe: Any = None) -> None:
    """Refuse arguments of the wrong type."""
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(clients, Sequence):
        raise InvalidInputError(f"clients must be a list of pairs (inputs, targets), got {type(clients).__name__}")
    if not isinstance(fleet, Fleet | None):
        raise InvalidInputError(f"fleet must be a fewjoules.Fleet, got {type(fleet).__name__}")
    if not isinstance(plan, Plan | None):
        raise InvalidInputError(f"plan must be a fewjoules.Plan, got {type(plan).__name__}")
    if not isinstance(recipe, Recipe | None):
        raise InvalidInputError(f"recipe must be a fewjoules.Recipe, got {type(recipe).__name__}")
    if plan is not None and recipe is not None:
        raise InvalidInputError("train takes either a plan or a recipe, which may have a plan of its own, got both")


def require_loss(caller: str, loss: Loss | None, samples: Samples) -> None:
    """Refuse targets that are numbers without a loss."""
    if loss is None and samples.targets.is_floating_point():
        raise InvalidInputError(
            f"the targets are numbers, not labels, so {caller} needs a loss, such as loss=torch.nn.functional.mse_loss"
        )


def _with_recipe(recipe: Recipe | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with those of the recipe that they leave open; refuse a training without a step size."""
    if recipe is None:
        if "learning_rate" not in options:
            raise InvalidInputError("learning_rate must be a finite number above 0 unless a recipe gives it, got None")
        return options
    if options.get("preset") is not None:
        raise InvalidInputError(
            f"train takes either a preset or a recipe, got {options['preset']!r} and recipe {recipe.name!r}"
        )
    return overridden(recipe.options(), options)


def _planned(
    plan: Plan | None,
    local_steps: int | None,
    sparsity: ArrayLike | None,
    rounds: int | None,
    clients: int,
    preset: str | None,
) -> dict[str, Any]:
    """Return H, sparsity and rounds: as given, from the plan, or from the preset."""
    if plan is not None and (local_steps is not None or sparsity is not None):
        raise InvalidInputError("train needs either a plan or local_steps and sparsity, got both")
    usual = {} if preset is None else preset_options(preset)
    if plan is not None:
        local_steps, sparsity = plan.local_steps, plan.sparsity
        rounds = plan.rounds_to_train() if rounds is None else rounds
    found: dict[str, Any] = {"local_steps": local_steps, "sparsity": sparsity}
    found = {name: usual.get(name) if value is None else value for name, value in found.items()}
    if found["local_steps"] is None and found["sparsity"] is None:
        raise InvalidInputError("train needs either a plan or local_steps and sparsity, got neither")
    for name, value in (found | {"rounds": rounds}).items():
        if value is None:
            raise InvalidInputError(f"{name} is missing")
    chosen = np.atleast_1d(require_array("sparsity", found["sparsity"], low=1.0, high=MAX_SPARSITY))
    if chosen.size not in (1, clients):
        raise InvalidInputError(f"sparsity must be one number or one for each of {clients} clients, got {chosen.size}")
    return found | {"sparsity": np.broadcast_to(chosen, (clients,)), "rounds": rounds}


def gather(clients: Sequence[Arrays], device: torch.device) -> tuple[Samples, list[IntArray]]:
    """Join the samples of all clients in one pair of tensors; return it and the sample numbers of each client."""
    if len(clients) == 0:
        raise InvalidInputError("clients must have at least one entry")
    pairs = [_tensors(pair, device, f"clients[{number}]") for number, pair in enumerate(clients)]
    first = pairs[0]
    for number, pair in enumerate(pairs):
        same = pair.inputs.shape[1:] == first.inputs.shape[1:] and pair.targets.shape[1:] == first.targets.shape[1:]
        if not same or pair.targets.dtype != first.targets.dtype:
            raise InvalidInputError(
                f"clients[{number}] must have samples of shape {tuple(first.inputs.shape[1:])} and targets like "
                f"clients[0], got {tuple(pair.inputs.shape[1:])} and {pair.targets.dtype}"
            )
    ends = np.cumsum([len(pair.targets) for pair in pairs])
    parts = [np.arange(end - len(pair.targets), end) for pair, end in zip(pairs, ends, strict=True)]
    samples = Samples(torch.cat([pair.inputs for pair in pairs]), torch.cat([pair.targets for pair in pairs]))
    return samples, parts


def _tensors(pair: Arrays, device: torch.device, name: str) -> Samples:
    """Return inputs as float32 and targets as int64 labels or float32 values; refuse unequal lengths and NaN."""
    try:
        inputs, targets = (torch.as_tensor(array) for array in pair)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"{name} must be a pair of arrays (inputs, targets), got {type(pair).__name__}"
        ) from error
    if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets) or len(targets) == 0:
        raise InvalidInputError(
            f"{name} must have as many inputs as targets, at least one, got shapes {tuple(inputs.shape)} and "
            f"{tuple(targets.shape)}"
        )
    inputs = inputs.to(torch.float32)
    targets = targets.to(torch.float32 if targets.is_floating_point() else torch.int64)
    if not bool(torch.isfinite(inputs).all()):
        raise InvalidInputError(f"{name} must have finite inputs, got NaN or infinity")
    if targets.is_floating_point() and not bool(torch.isfinite(targets).all()):
        raise InvalidInputError(f"{name} must have finite targets, got NaN or infinity")
    if targets.dtype == torch.int64 and int(targets.min()) < 0:
        raise InvalidInputError(f"{name} must have labels of at least 0, got {int(targets.min())}")
    return Samples(inputs.to(device), targets.to(device))
