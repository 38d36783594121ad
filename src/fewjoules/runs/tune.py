"""``fewjoules.tune``: find a recipe for a user's own model and a user's own arrays."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from fewjoules.engine.algorithm.declared import as_plain
from fewjoules.engine.algorithm.options import TrainingOptions, require_known
from fewjoules.engine.algorithm.participation import participants_of
from fewjoules.engine.models.layout import require_trainable
from fewjoules.engine.models.loss import Loss, cross_entropy
from fewjoules.engine.models.networks import parameter_count, statistics_count
from fewjoules.engine.simulator.federation import Federation
from fewjoules.errors import InvalidInputError, shown
from fewjoules.ledger.target import OPTIONS, target_options
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.partial import with_participants
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.recipe import Recipe
from fewjoules.runs.arguments import keywords_of, require_kinds
from fewjoules.runs.client_data import Arrays, as_taken, has_labels, require_loss, rule_of
from fewjoules.runs.device import choose_device
from fewjoules.runs.laboratory import USUAL_RATE
from fewjoules.runs.listening import require_function
from fewjoules.runs.own_pilots import own_pilots
from fewjoules.runs.ranks import require_alone
from fewjoules.runs.sources import collect
from fewjoules.runs.training import Task
from fewjoules.runs.tuning import ANY_LAW, LARGEST_SEED, SEED_OFFSET, aim_of, largest_batch, tune_task
from fewjoules.runs.tuning_news import Progress
from fewjoules.scenario.planned_fleet import needs_batch, planned_fleet
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.books import Budget
from fewjoules.tuning.planning import Batches

CHOSEN = (  # by tuning
    *("preset", "rounds", "inner", "momentum", "momentum_state", "outer", "outer_momentum", "residual_decay"),
    "averaging",
    *("compressor", "values", "downlink_sparsity", "downlink_values"),
    *OPTIONS,
)


def tune(
    model: nn.Module,
    *,
    clients: Sequence[Arrays],
    fleet: Fleet,
    data: Arrays | None = None,
    data_memory_gib: float | None = None,
    target: float | Mapping[str, Any],
    loss: Loss | None = None,
    metrics: Mapping[str, Any] | None = None,
    learning_rate: float = USUAL_RATE,
    batch_size: int | None = 32,
    local_steps: int | Iterable[int] = range(1, 51),
    sparsity: tuple[float, float] = (1.0, 400.0),
    seed: int = 0,
    budget: str | None = None,
    trainings: int = 10,
    device: str | torch.device = "auto",
    on_pilot: Callable[[Progress], None] | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Recipe:
    """Find the optimiser, step size, messages, H and sparsity that reach a target for the fewest joules.

    Short pilot runs in the simulator start from the weights of ``model``, which is not changed. They are judged by a
    part of the clients' data that is kept aside. docs/tuning.md explains how the recipe is found.

    Args:
        model: The model to train.
        clients: Data of each client, as for ``train``.
        fleet: What bits, messages and steps cost each client.
        data: Data set that all clients share.
        data_memory_gib: As for ``train``, in GiB.
        target: An accuracy, or {"loss": 0.3}, {"perplexity": 6.0} or {metric: value}, on the data kept aside.
        loss: Loss, as for ``train``.
        metrics: Metrics by name, as for ``train``.
        learning_rate: Step size at which the search begins.
        batch_size: Usual samples of a batch; chosen anew where the fleet states ``joules_per_sample``.
        local_steps: All H to choose from, or the only one.
        sparsity: Limits (min, max) of each client's sparsity.
        seed: Draws the data kept aside, the batches and the starts of the pilots.
        budget: What pilots may cost on the devices: "50000 steps" (of all clients together) or "80 J"; by default
            about the steps of three trainings.
        trainings: How many trainings the recipe is for. The more, the more pilots are worth their price.
        device: "auto", "cpu", "cuda" or a ``torch.device``.
        on_pilot: Called with a ``Progress`` after each pilot.
        out: Folder that keeps every finished pilot. The same call with the same folder goes on after them and gives
            the same recipe.
        **options: Fields of ``TrainingOptions`` that tuning does not choose, such as ``participation``.

    Returns:
        The recipe: ``recipe.plan`` has H, sparsity and predictions, ``recipe.report`` all that led to them.

    Raises:
        TargetOutOfReachError: No pilot came near the target.
        InvalidInputError: An argument is refused.

    Examples:
        >>> recipe = fj.tune(model, clients=clients, fleet=fleet, target=0.95)
        >>> run = fj.train(model, clients=clients, test=test, fleet=fleet, recipe=recipe)
    """
    require_alone("fewjoules.tune")
    require_kinds(model, clients, fleet)
    if fleet is None:
        raise InvalidInputError("tune needs a fleet, since the recipe depends on what steps and bits cost, got None")
    require_trainable(model)
    require_function("on_pilot", on_pilot)
    aim, allowed = _aim(target, metrics), Budget.parse(budget)
    where = choose_device(device)
    samples, parts = collect(clients, where, data=data, memory_gib=data_memory_gib, rule=rule_of(loss))
    require_loss("tune", loss, samples)
    if aim.metric == "accuracy" and not has_labels(samples):
        raise InvalidInputError(
            'the targets are numbers, not labels, so the target of tune must be a loss, such as {"loss": 0.3}'
        )
    if len(fleet) != len(parts):
        raise InvalidInputError(f"the fleet must have a device for each of {len(parts)} clients, got {len(fleet)}")
    choices = _choices(local_steps)
    stated = _checked(options | {"learning_rate": learning_rate, "batch_size": batch_size, "seed": seed}, len(parts))
    federation = Federation(as_taken(model, samples), parts)
    task = Task(
        model=model, federation=federation, test=None, loss=loss or cross_entropy, fleet=None, metrics=metrics or {}
    )
    own_seed = (stated["seed"] + SEED_OFFSET) % (LARGEST_SEED + 1)
    with contextlib.ExitStack() as held:
        tuning = tune_task(
            own_pilots(task, stated, aim, own_seed, out, held),
            _problem(model, fleet, stated, choices, sparsity),
            aim,
            stated["learning_rate"],
            budget=allowed,
            trainings=trainings,
            seed=own_seed,
            batches=_batches(model, fleet, stated, choices, sparsity, federation),
            tell=on_pilot,
        )
    return tuning.recipe_beside(stated)


def _batches(
    model: nn.Module,
    fleet: Fleet,
    options: Mapping[str, Any],
    local_steps: Iterable[int],
    sparsity: tuple[float, float],
    federation: Federation,
) -> Batches | None:
    """Return the batches that may be chosen; None where no device states what a sample costs."""
    if not needs_batch(fleet):
        return None

    def problem_at(size: int) -> ControlProblem:
        return _problem(model, fleet, {**options, "batch_size": size}, local_steps, sparsity)

    return Batches(options["batch_size"], largest_batch(federation.sizes), problem_at)


def _aim(target: Any, metrics: Mapping[str, Any] | None) -> Aim:
    """Return the aim of a number or of a mapping with one metric; refuse anything else."""
    found = aim_of(target_options(target, metrics or ()))
    if found is None:
        raise InvalidInputError("tune needs a target, such as 0.95, an accuracy, got None")
    return found


def _choices(local_steps: Any) -> tuple[int, ...]:
    """Return all H to choose from; refuse what is neither a number nor several."""
    if isinstance(local_steps, int | np.integer):
        local_steps = (local_steps,)
    if not isinstance(local_steps, Iterable):
        raise InvalidInputError(f"local_steps must be a whole number or several, got {shown(local_steps)}")
    plain: tuple[int, ...] = as_plain(tuple(local_steps))
    return plain


def _checked(options: dict[str, Any], clients: int) -> dict[str, Any]:
    """Return options of the pilots; refuse invalid ones and those that tuning chooses."""
    for name in CHOSEN:
        if name in options:
            raise InvalidInputError(f"tune chooses {name} itself, got {shown(options[name])}")
    left = (name for name in TrainingOptions.__dataclass_fields__ if name not in CHOSEN)
    require_known("tune", options, (*keywords_of(tune), *left))
    if not isinstance(options["learning_rate"], int | float | np.number):
        rate = shown(options["learning_rate"])
        raise InvalidInputError(f"learning_rate of tune must be a finite number above 0, got {rate}")
    TrainingOptions.of(**options, local_steps=1, sparsity=[1.0] * clients, rounds=1)
    return {name: as_plain(value) for name, value in options.items()}


def _problem(
    model: nn.Module,
    fleet: Fleet,
    options: Mapping[str, Any],
    local_steps: Iterable[int],
    sparsity: tuple[float, float],
) -> ControlProblem:
    batch = options["batch_size"]
    if batch is None and needs_batch(fleet):
        raise InvalidInputError("a fleet with costs of a sample needs a batch_size, a number, got None")
    parameters = parameter_count(model)
    downlink: Literal["free"] | None = "free" if options.get("downlink") == "free" else None
    problem = ControlProblem(
        fleet=planned_fleet(fleet, statistics_count(model), batch),
        rounds=ANY_LAW,
        parameters=parameters,
        sparsity=sparsity,
        local_steps=local_steps,
        downlink=downlink,
    )
    return with_participants(problem, participants_of(options.get("participation", 1.0), len(fleet)))
