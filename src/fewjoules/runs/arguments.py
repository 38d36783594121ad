"""What the arguments of ``fewjoules.train`` come to: the plan that is followed, and the options of the training."""

import inspect
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions, overridden
from fewjoules.engine.algorithm.participation import participants_per_round
from fewjoules.engine.algorithm.presets import preset_options
from fewjoules.errors import InvalidInputError, require_array, shown
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import MAX_SPARSITY
from fewjoules.planner.recipe import Recipe

ModelOfSeed = nn.Module | Callable[[int], nn.Module]  # a model, or a function of the seed that makes one


class Unset(Enum):
    """The default of an argument for which None means something."""

    UNSET = "as in the recipe, or the usual"


def require_kinds(model: Any, clients: Any, fleet: Any, plan: Any = None, recipe: Any = None) -> None:
    """Refuse arguments of the wrong type."""
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(clients, Sequence):
        raise InvalidInputError(f"clients must be a list with the data of each client, got {type(clients).__name__}")
    if not isinstance(fleet, Fleet | None):
        raise InvalidInputError(f"fleet must be a fewjoules.Fleet, got {type(fleet).__name__}")
    if not isinstance(plan, Plan | None):
        raise InvalidInputError(f"plan must be a fewjoules.Plan, got {type(plan).__name__}")
    if not isinstance(recipe, Recipe | None):
        raise InvalidInputError(f"recipe must be a fewjoules.Recipe, got {type(recipe).__name__}")
    if plan is not None and recipe is not None:
        raise InvalidInputError("train takes either a plan or a recipe, which may have a plan of its own, got both")


def model_for(model: ModelOfSeed, seed: int) -> nn.Module:
    """Return the model to train with a seed: the given one, or what the given function makes."""
    if isinstance(model, nn.Module) or not callable(model):
        return model
    try:
        inspect.signature(model).bind(seed)
    except TypeError as error:
        raise InvalidInputError(
            f"model must be a torch.nn.Module, or a function of a seed that makes one, got {shown(model)}: {error}"
        ) from error
    except ValueError:  # not written in Python
        pass
    return model(seed)


def keywords_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that a function takes by keyword alone."""
    return [one.name for one in inspect.signature(function).parameters.values() if one.kind is one.KEYWORD_ONLY]


def followed_plan(plan: Plan | None, recipe: Recipe | None) -> Plan | None:
    """Return the plan that a training follows: the one given, or that of the recipe."""
    recipe = recipe if plan is None else plan.recipe
    return plan if recipe is None or recipe.plan is None else recipe.plan


def chosen_options(
    clients: int,
    *,
    plan: Plan | None,
    recipe: Recipe | None,
    local_steps: int | None,
    sparsity: ArrayLike | None,
    rounds: int | None,
    given: dict[str, Any],
) -> TrainingOptions:
    """Return the options of a training of so many clients; ``given`` options win over those of plan and recipe."""
    recipe = recipe if plan is None else plan.recipe
    followed = followed_plan(plan, recipe)
    if recipe is not None and recipe.plan is not None:
        local_steps = recipe.plan.local_steps if local_steps is None else local_steps
        sparsity = recipe.plan.sparsity if sparsity is None else sparsity
        rounds = recipe.plan.rounds_to_train() if rounds is None else rounds
    planned = {} if followed is None else followed.downlink_option() | followed.participation_option(clients)
    options = TrainingOptions.of(
        **_planned(plan, local_steps, sparsity, rounds, clients, given.get("preset")),
        **planned | _with_recipe(recipe, given),
    )
    if followed is not None:
        followed.require_participants(participants_per_round(options), clients)
    return options


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
