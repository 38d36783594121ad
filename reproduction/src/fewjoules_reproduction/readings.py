"""The four schemes of Fig. 1, and second readings of the two that the paper describes in words only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from fewjoules.planner import benders, schemes
from fewjoules.planner.plan import Plan, evaluate_plan
from fewjoules.planner.problem import ControlProblem

Variant = Literal["pareto", "benders", "second"]
VARIANTS: tuple[Variant, ...] = ("pareto", "benders", "second")
NAMES = {
    "flexible": "FlexibleSpar",
    "unified": "UnifiedSpar",
    "greedy": "GreedySpar",
    "synchronous": "SynSgdSpar",
}


def greedy_with_planned_steps(problem: ControlProblem) -> Plan:
    """GreedySpar with the largest sparsity for all devices and the best H for it."""
    sparsest = problem.sparsity[1]
    return replace(schemes.flexible(problem.with_choices(sparsity=(sparsest, sparsest))), scheme="greedy")


def synchronous_with_kept_sparsity(problem: ControlProblem) -> Plan:
    """SynSgdSpar that keeps FlexibleSpar's sparsity and only sets H = 1."""
    sparsity = schemes.flexible(problem).sparsity
    return evaluate_plan(
        problem, scheme="synchronous", solver="pareto", local_steps=1, sparsity=sparsity, lower_bound_joules=None
    )


def algorithm_2_from_the_largest_steps(problem: ControlProblem) -> Plan:
    """FlexibleSpar by Algorithm 2 started at the largest H; the paper does not say where it starts."""
    answer = benders.solve(problem, start=int(problem.step_choices[-1]))
    return evaluate_plan(
        problem,
        scheme="flexible",
        solver="benders",
        local_steps=answer.local_steps,
        sparsity=answer.sparsity,
        lower_bound_joules=None,
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """One interpretation of a scheme, and the function that plans by it."""

    scheme: str
    variant: Variant
    name: str
    plan: Callable[[ControlProblem], Plan]


READINGS: tuple[Reading, ...] = (
    *(Reading(scheme, "pareto", name, schemes.SCHEMES[scheme]) for scheme, name in NAMES.items()),
    *(
        Reading(scheme, "benders", f"{NAMES[scheme]}, Algorithm 2", partial(schemes.SCHEMES[scheme], solver="benders"))
        for scheme in ("flexible", "unified", "synchronous")  # GreedySpar has nothing to solve
    ),
    Reading("greedy", "second", "GreedySpar, H planned", greedy_with_planned_steps),
    Reading("synchronous", "second", "SynSgdSpar, sparsity kept", synchronous_with_kept_sparsity),
)
WITHOUT_BENDERS = tuple(reading for reading in READINGS if reading.variant != "benders")
CHOOSERS: Mapping[str, Callable[[ControlProblem], Plan]] = {
    "pareto": schemes.flexible,
    "benders": partial(schemes.flexible, solver="benders"),  # starts at the smallest H
    "benders, largest H first": algorithm_2_from_the_largest_steps,
}
