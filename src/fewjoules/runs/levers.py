"""The levers as entries of a comparison: from the paper's plan to fewest, each adds one change to the one before."""

import warnings
from dataclasses import replace
from typing import Any

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.errors import InvalidInputError
from fewjoules.planner.levers import AVERAGING, OPTIMISER, STEP_SIZE, VALUES
from fewjoules.planner.plan import Plan
from fewjoules.planner.recipe import Recipe
from fewjoules.runs.entry import Entry, planned_entry
from fewjoules.runs.task import planned_options
from fewjoules.scenario import Scenario
from fewjoules.tuning.arms import PLAIN


def require_levers(scenario: Scenario) -> Recipe:
    """Return the recipe whose levers are compared; refuse a scenario that lacks one end of them."""
    missing = [name for name in ("rounds", "recipe") if getattr(scenario, name) is None]
    if scenario.recipe is None or missing:
        raise InvalidInputError(
            f"{scenario.name}: --schemes levers needs [rounds], for the paper's plan, and [recipe], for fewest, got no "
            f"{' and no '.join(f'[{name}]' for name in missing)}; fewjoules tune finds a recipe"
        )
    return scenario.recipe


def lever_entries(scenario: Scenario, flexible: Plan, fewest: Plan | None) -> list[Entry]:
    """Return the levers in order; one that changes nothing, or that the scenario does not state, is left out."""
    recipe, rate = require_levers(scenario), scenario.recipe_search.plain_learning_rate
    plain = None if rate is None else Recipe(PLAIN.name, {**PLAIN.options_for(1), "learning_rate": rate})
    averaging = _choices(scenario, replace(flexible, recipe=recipe))["averaging"]  # of the recipe, else of [training]
    between = {
        STEP_SIZE: plain,
        OPTIMISER: Recipe(recipe.name, {**recipe.optimiser, "averaging": 0.0}),
        AVERAGING: Recipe(recipe.name, {**recipe.optimiser, "averaging": averaging}),
        VALUES: recipe,
    }
    found = [(planned_entry(flexible), flexible)]
    for name, options in between.items():
        if options is not None:
            plan = replace(flexible, recipe=options)
            # without a plan of its own: no law was measured for it, so nothing is predicted
            found.append((replace(planned_entry(plan), name=name, plan=None), plan))
    found += [] if fewest is None else [(planned_entry(fewest), fewest)]
    kept: list[Entry] = []
    before = None
    for entry, plan in found:
        choices = _choices(scenario, plan)
        if choices != before:
            kept.append(entry)
        before = choices
    return kept


def _choices(scenario: Scenario, plan: Plan) -> dict[str, Any]:
    """Return all that decides how a plan trains and what it costs, but for the limit on its rounds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said when the lever is trained
        options: TrainingOptions = planned_options(scenario, plan, scenario.parameters)
    points = None if plan.operating_points is None else plan.operating_points.tolist()
    return options.to_dict() | {"rounds": None, "operating_points": points}
