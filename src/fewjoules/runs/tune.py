"""``fewjoules.tune``: find a recipe for a user's own model and a user's own arrays."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.layout import require_trainable
from fewjoules.engine.models.loss import Loss, cross_entropy
from fewjoules.engine.models.networks import parameter_count, statistics_count
from fewjoules.engine.simulator.federation import Federation
from fewjoules.errors import InvalidInputError, require_number, shown
from fewjoules.ledger.target import NAMES
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.recipe import Recipe
from fewjoules.runs.device import choose_device
from fewjoules.runs.laboratory import USUAL_RATE, JournaledPilots
from fewjoules.runs.pilot_journal import PilotJournal
from fewjoules.runs.pilots import Pilots
from fewjoules.runs.train import Arrays, gather, require_kinds, require_loss
from fewjoules.runs.training import Task
from fewjoules.runs.tuning import ANY_LAW, LARGEST_SEED, SEED_OFFSET, Progress, tune_task
from fewjoules.scenario.planned_fleet import needs_batch, planned_fleet
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.books import Budget

CHOSEN = (  # by tuning
    *("preset", "rounds", "inner", "momentum", "momentum_state", "outer", "outer_momentum", "residual_decay"),
    *("compressor", "values", "downlink_sparsity", "target_accuracy", "target_loss", "target_perplexity"),
)


def tune(
    model: nn.Module,
    *,
    clients: Sequence[Arrays],
    fleet: Fleet,
    target: float | Mapping[str, float],
    loss: Loss | None = None,
    learning_rate: float = USUAL_RATE,
    batch_size: int | None = 32,
    local_steps: Iterable[int] = range(1, 51),
    sparsity: tuple[float, float] = (1.0, 400.0),
    seed: int = 0,
    budget: str | None = None,
    trainings: int = 10,
    device: str = "auto",
    on_pilot: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Recipe:
    """Find the optimiser, step size, messages, H and sparsity that reach a target for the fewest joules.

    ``target`` is an accuracy, or {"loss": 0.3}, or {"perplexity": 6.0}, on a part of the clients' data that is kept
    aside. Pilots are trained in the simulator from the weights of ``model``, which is not changed. H is chosen from
    ``local_steps``, sparsities within ``sparsity`` = (min, max), and the search for a step size begins at
    ``learning_rate``. ``budget`` is what pilots may cost on the devices, such as "50000 steps" (of all clients
    together) or "80 J", by default the steps of four trainings; ``trainings`` says how many trainings the recipe is
    for. ``on_pilot`` is told after each pilot. Other options are those of ``TrainingOptions`` that tuning does not
    choose. ``fewjoules.train(model, recipe=...)`` trains the recipe; its ``report`` has all that led to it.
    docs/tuning.md explains how it is found.
    """
    require_kinds(model, clients, fleet)
    if fleet is None:
        raise InvalidInputError("tune needs a fleet, since the recipe depends on what steps and bits cost, got None")
    require_trainable(model)
    aim, allowed = _aim(target), Budget.parse(budget)
    where = choose_device(device)
    samples, parts = gather(clients, where)
    require_loss("tune", loss, samples)
    if aim.metric == "accuracy" and samples.targets.is_floating_point():
        raise InvalidInputError(
            'the targets are numbers, not labels, so the target of tune must be a loss, such as {"loss": 0.3}'
        )
    if len(fleet) != len(parts):
        raise InvalidInputError(f"the fleet must have a device for each of {len(parts)} clients, got {len(fleet)}")
    stated = _checked(options | {"learning_rate": learning_rate, "batch_size": batch_size, "seed": seed}, len(parts))
    federation = Federation(samples, parts)
    task = Task(model=model, federation=federation, test=None, loss=loss or cross_entropy, fleet=None)
    own_seed = (seed + SEED_OFFSET) % (LARGEST_SEED + 1)
    tuning = tune_task(
        JournaledPilots(Pilots(task, stated, aim, seed=own_seed), PilotJournal()),
        _problem(model, fleet, stated, local_steps, sparsity),
        aim,
        learning_rate,
        budget=allowed,
        trainings=trainings,
        seed=own_seed,
        tell=on_pilot,
    )
    return tuning.recipe_beside(stated)


def _aim(target: Any) -> Aim:
    """Return the aim of a number or of a mapping with one metric; refuse anything else."""
    given = target if isinstance(target, Mapping) else {"accuracy": target}
    if len(given) != 1 or not set(given) <= set(NAMES):
        raise InvalidInputError(
            f"target must be an accuracy, or a mapping of one of {', '.join(NAMES)} to a number, got {shown(target)}"
        )
    ((metric, value),) = given.items()
    low, high = {"accuracy": (0.0, 1.0), "perplexity": (1.0, float("inf"))}.get(metric, (0.0, float("inf")))
    return Aim(metric, require_number(f"target {metric}", value, low=low, high=high, above=True))


def _checked(options: dict[str, Any], clients: int) -> dict[str, Any]:
    """Return options of the pilots; refuse invalid ones and those that tuning chooses."""
    for name in CHOSEN:
        if name in options:
            raise InvalidInputError(f"tune chooses {name} itself, got {shown(options[name])}")
    TrainingOptions.of(**options, local_steps=1, sparsity=[1.0] * clients, rounds=1)
    return options


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
    return ControlProblem(
        fleet=planned_fleet(fleet, statistics_count(model), batch),
        rounds=ANY_LAW,
        parameters=parameters,
        sparsity=sparsity,
        local_steps=local_steps,
        downlink=downlink,
    )
