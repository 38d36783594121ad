"""The entries of a comparison by name: schemes of the paper, fewest, and presets."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fewjoules.cli.plan import plans_of
from fewjoules.engine.algorithm.presets import PRESETS
from fewjoules.errors import InfeasiblePlanError, InvalidInputError, shown
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.schemes import FEWEST, SCHEME_NAMES, SCHEMES
from fewjoules.scenario.planning import ScenarioPlans

if TYPE_CHECKING:
    from fewjoules.runs.entry import Entry

SETS = {
    "paper": tuple(SCHEMES),
    "all": (*SCHEMES, *(name for name in PRESETS if name != "ft-lsgd-db")),  # which without a plan is dense
}
NAMES = tuple(dict.fromkeys((*SCHEME_NAMES, *PRESETS)))


def require_names(text: str) -> list[str]:
    """Return the names in a list separated by commas, each once; a set stands for its names."""
    given = [name.strip() for name in text.split(",") if name.strip()]
    for name in given or [text]:
        if name not in NAMES and name not in SETS:
            raise InvalidInputError(
                f"--schemes must be names out of {', '.join(NAMES)}, or {' or '.join(SETS)}, got {shown(name)}"
            )
    return list(dict.fromkeys(one for name in given for one in SETS.get(name, (name,))))


def require_rates(given: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    """Return the step sizes of NAME=VALUE options by name."""
    rates: dict[str, float] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or name not in names:
            raise InvalidInputError(
                f"--rate must be NAME=VALUE with a name out of {', '.join(names)}, got {shown(text)}"
            )
        if name in rates:
            raise InvalidInputError(f"--rate must be given once for {name}, got it twice")
        try:
            rates[name] = float(value)
        except ValueError as error:
            raise InvalidInputError(f"--rate {name} must be a number, got {shown(value)}") from error
    return rates


def entries_of(planning: ScenarioPlans, names: Sequence[str], rates: dict[str, float]) -> "list[Entry]":
    """Return the entries in the order of their names; of several schemes, infeasible ones are left out and told."""
    from fewjoules.engine.algorithm.options import TrainingOptions
    from fewjoules.runs.entry import planned_entry, preset_entry

    for name, rate in rates.items():
        TrainingOptions.__dataclass_fields__["learning_rate"].metadata["check"].require(f"--rate {name}", rate)
    schemes = [name for name in names if name in SCHEME_NAMES]
    plans = {plan.scheme: plan for plan in plans_of(planning, schemes, "pareto")}
    presets = [name for name in names if name not in SCHEME_NAMES]
    problem = planning.problem("flexible" if planning.scenario.rounds is not None else FEWEST) if presets else None
    longest = [] if problem is None else _feasible_plans(problem)
    entries = {name: planned_entry(plan) for name, plan in plans.items()}
    entries |= {} if problem is None else {name: preset_entry(name, problem, longest) for name in presets}
    chosen = [entries[name] for name in names if name in entries]
    return [entry.with_rate(rates[entry.name]) if entry.name in rates else entry for entry in chosen]


def _feasible_plans(problem: ControlProblem) -> list[Plan]:
    """Return the feasible plans of all schemes: a preset's rounds must not depend on what it is compared with."""
    plans = []
    for scheme in SCHEMES.values():
        with contextlib.suppress(InfeasiblePlanError):
            plans.append(scheme(problem))
    return plans
