"""The choice among recipes: the certified optimum of each, the least of all, and one bound for the whole choice."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fewjoules.errors import FewJoulesWarning, InfeasiblePlanError, InvalidInputError
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.recipe import Recipe
from fewjoules.planner.schemes import FEWEST, solve


@dataclass(frozen=True, slots=True)
class Candidate:
    """A recipe, and the control problem under its rounds law, its batch and its messages."""

    recipe: Recipe
    problem: ControlProblem


@dataclass(frozen=True, slots=True)
class RecipeChoice:
    """The plan of least energy over all recipes, H and sparsities, and the best plan of each feasible recipe.

    No plan of any candidate costs less than ``lower_bound_joules``; ``plan`` carries this bound, and each of
    ``plans`` its own.
    """

    plan: Plan
    plans: tuple[Plan, ...]
    lower_bound_joules: float


def choose_recipe(candidates: Iterable[Candidate]) -> RecipeChoice:
    """Choose the candidate whose best plan takes the fewest joules, the first one among equals.

    Candidates that no plan can satisfy are left out with a warning; if all are, the first one's reason is raised.
    """
    given = list(candidates)
    _require_alike(given)
    plans, refusals = [], []
    for candidate in given:
        try:
            plans.append(replace(solve(candidate.problem), scheme=FEWEST, recipe=candidate.recipe))
        except InfeasiblePlanError as error:
            refusals.append((candidate.recipe.name, error))
    if not plans:
        name, reason = refusals[0]
        raise InfeasiblePlanError(f"no recipe is feasible; recipe {name}: {reason}") from reason
    for name, reason in refusals:
        warnings.warn(f"recipe {name} is left out: {reason}", FewJoulesWarning, stacklevel=2)
    bound = min(plan.lower_bound_joules for plan in plans if plan.lower_bound_joules is not None)
    best = min(plans, key=lambda plan: plan.energy_joules)
    return RecipeChoice(replace(best, lower_bound_joules=bound), tuple(plans), bound)


def _require_alike(candidates: list[Candidate]) -> None:
    """Refuse an empty choice, and one between trainings of different fleets or models."""
    if not candidates:
        raise InvalidInputError("candidates must have at least 1 recipe, got none")
    first = candidates[0]
    for candidate in candidates:
        for name in ("devices", "parameters"):
            wanted, got = getattr(first.problem, name), getattr(candidate.problem, name)
            if got != wanted:
                raise InvalidInputError(
                    f"all candidates must have the {wanted:,} {name} of recipe {first.recipe.name!r}, got {got:,} of "
                    f"recipe {candidate.recipe.name!r}"
                )
