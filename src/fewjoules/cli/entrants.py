"""The entries of a comparison by name: schemes of the paper, fewest, the levers between them, and presets."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fewjoules.cli.plan import plans_of
from fewjoules.engine.algorithm.presets import PRESETS
from fewjoules.errors import InfeasiblePlanError, InvalidInputError, shown
from fewjoules.planner.levers import LEVERS
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.schemes import FEWEST, SCHEME_NAMES, SCHEMES
from fewjoules.scenario import Scenario
from fewjoules.scenario.planning import ScenarioPlans, available_schemes

if TYPE_CHECKING:
    from fewjoules.runs.entry import Entry

SETS = {
    "paper": tuple(SCHEMES),
    "all": (*SCHEMES, *(name for name in PRESETS if name != "ft-lsgd-db")),  # which without a plan is dense
}
ALL_LEVERS = "levers"  # no set of names: which levers there are depends on the scenario
NAMES = tuple(dict.fromkeys((*SCHEME_NAMES, *PRESETS)))


def usual_names(scenario: Scenario) -> list[str]:
    """Return what is compared unless --schemes says otherwise: with a recipe its levers and two plain baselines."""
    both = scenario.recipe is not None and scenario.rounds is not None
    return [ALL_LEVERS, "fedavg", "dense"] if both else available_schemes(scenario)


def require_names(text: str) -> list[str]:
    """Return the names in a list separated by commas, each once; a set stands for its names."""
    given = [name.strip() for name in text.split(",") if name.strip()]
    for name in given or [text]:
        if name not in NAMES and name not in SETS and name != ALL_LEVERS:
            sets = " or ".join([*SETS, ALL_LEVERS])
            raise InvalidInputError(f"--schemes must be names out of {', '.join(NAMES)}, or {sets}, got {shown(name)}")
    return list(dict.fromkeys(one for name in given for one in SETS.get(name, (name,))))


def require_rates(given: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    """Return the step sizes of NAME=VALUE options by name."""
    names = _each_lever(names)
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
    if ALL_LEVERS in names:
        from fewjoules.runs.levers import require_levers

        require_levers(planning.scenario)
    single = _each_lever(names)
    plans = {plan.scheme: plan for plan in plans_of(planning, [n for n in single if n in SCHEME_NAMES], "pareto")}
    presets = [name for name in single if name not in SCHEME_NAMES and name not in LEVERS]
    problem = planning.problem("flexible" if planning.scenario.rounds is not None else FEWEST) if presets else None
    longest = [] if problem is None else _feasible_plans(problem)
    entries = {name: planned_entry(plan) for name, plan in plans.items()}
    entries |= {} if problem is None else {name: preset_entry(name, problem, longest) for name in presets}
    if ALL_LEVERS in names:
        entries = {name: entry for name, entry in entries.items() if name not in LEVERS}
        entries |= _levers(planning, plans, rates)
    chosen = [entries[name] for name in single if name in entries]
    return [entry.with_rate(rates[entry.name]) if entry.name in rates else entry for entry in chosen]


def _each_lever(names: Sequence[str]) -> list[str]:
    """Return the names, with ``levers`` replaced by the names of all levers."""
    return list(dict.fromkeys(one for name in names for one in (LEVERS if name == ALL_LEVERS else (name,))))


def _levers(planning: ScenarioPlans, plans: dict[str, Plan], rates: dict[str, float]) -> "dict[str, Entry]":
    """Return the levers by name; refuse a step size for one that is left out."""
    from fewjoules.runs.levers import lever_entries

    flexible = plans.get("flexible") or planning.plan("flexible")  # which says why there is none
    levers = {entry.name: entry for entry in lever_entries(planning.scenario, flexible, plans.get(FEWEST))}
    for name in rates:
        if name in LEVERS and name not in levers:
            raise InvalidInputError(
                f"--rate must name a lever that is trained, {', '.join(levers)}, got {name}, which changes nothing or "
                "is not stated in [recipe]"
            )
    return levers


def _feasible_plans(problem: ControlProblem) -> list[Plan]:
    """Return the feasible plans of all schemes: a preset's rounds must not depend on what it is compared with."""
    plans = []
    for scheme in SCHEMES.values():
        with contextlib.suppress(InfeasiblePlanError):
            plans.append(scheme(problem))
    return plans
