"""What the proof of a plan leaves open: the constants of the rounds law, where they have intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from fewjoules.convergence.intervals import FittedLaw, LawIntervals
from fewjoules.convergence.participation import PartialRounds
from fewjoules.errors import InfeasiblePlanError, InvalidInputError
from fewjoules.planner.choosing_points import at_points
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.schemes import solve


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Joules of a plan within the intervals of the rounds law, and what other plans save where the law suits them.

    ``savings`` has the largest share that each other plan saves, negative if it never does. ``best`` is the optimum of
    that law, of those tried, where it saves most, and ``best_saving`` how much; None if it never does.
    """

    least_joules: float
    most_joules: float
    savings: tuple[float, ...]
    best: Plan | None
    best_saving: float


def sensitivity(
    problem: ControlProblem, plan: Plan, law_intervals: LawIntervals, *, others: Sequence[Plan] = ()
) -> Sensitivity:
    """Evaluate a plan, ``others`` and the optimum under laws far from the one that was planned with.

    These are the laws where the plan costs least and most, the outermost ones, and those where each other plan does
    best beside it.
    """

    def log_joules(chosen: Plan, law: FittedLaw) -> float:
        return math.log(max(_joules(problem, chosen, law), 1e-300))

    slope = law_intervals.gradient(partial(log_joules, plan))
    ends = law_intervals.furthest(slope)
    rises = [slope - law_intervals.gradient(partial(log_joules, other)) for other in others]
    laws = [*ends, *law_intervals.outermost(), *(law_intervals.furthest(rise)[1] for rise in rises)]
    joules = [_joules(problem, plan, law) for law in laws]
    savings = [
        max(_saving(ours, _joules(problem, other, law)) for ours, law in zip(joules, laws, strict=True))
        for other in others
    ]
    best, best_saving = _best(problem, joules, laws)
    band = [plan.energy_joules, *joules]
    return Sensitivity(min(band), max(band), tuple(savings), best, best_saving)


def _best(problem: ControlProblem, joules: Sequence[float], laws: Sequence[FittedLaw]) -> tuple[Plan | None, float]:
    """Return the optimum that saves most of the joules under its law; infeasible laws are left out."""
    best, best_saving = None, 0.0
    for ours, law in zip(joules, laws, strict=True):
        try:
            optimum = solve(_under(problem, law))
        except InfeasiblePlanError:
            continue
        saving = _saving(ours, optimum.energy_joules)
        if saving > best_saving:
            best, best_saving = optimum, saving
    return best, best_saving


def _under(problem: ControlProblem, law: FittedLaw) -> ControlProblem:
    now = problem.rounds
    try:
        return replace(problem, rounds=PartialRounds(law, now.growth) if isinstance(now, PartialRounds) else law)
    except InvalidInputError as error:
        raise InvalidInputError(f"at the ends of the intervals {error}") from error


def _joules(problem: ControlProblem, plan: Plan, law: FittedLaw) -> float:
    chosen = problem if plan.operating_points is None else at_points(problem, plan.operating_points)
    return _under(chosen, law).costs(plan.local_steps, plan.sparsity, plan.downlink_sparsity).energy_joules


def _saving(joules: float, other_joules: float) -> float:
    return 1.0 - other_joules / joules if joules > 0.0 else 0.0
