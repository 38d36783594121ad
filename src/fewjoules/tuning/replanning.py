"""The plan of the law that was learned, and the winner's step size there."""

import math

import numpy as np

from fewjoules.errors import InfeasiblePlanError
from fewjoules.planner.plan import Plan
from fewjoules.tuning.race import Arm
from fewjoules.tuning.reference import LEVEL_DEVIATION, LEVEL_PART, Reference
from fewjoules.tuning.search import PATIENCE, Search
from fewjoules.tuning.steadiness import is_steady

MOVED = 1.5  # a plan has moved if its H differs by more than this factor, or its mean sparsity by more than its square
RATES = (1.0, 2.0, 0.5)  # times the scaled step size, in the order of trial
OTHER_STARTS = 1  # from which the step size must train too
RATE_PENALTY = 0.05  # a step size twice as large must be better by this much


def replan(search: Search, reference: Reference, trainings: int) -> tuple[Plan, Arm]:
    """Return the plan of the belief, and the winner with the step size for it."""
    kept = _plan_at(search, reference.plan.local_steps)
    plan = _worthwhile_plan(search.plan(), kept, trainings)
    if not _has_moved(plan, reference.plan):
        return plan, reference.winner
    search.doing = "looking for the step size of the plan"
    if search.pilots_within_budget(LEVEL_PART * search.predicted_steps(plan), plan) < 1.0:
        return _untried(
            search, reference, plan, kept, "The budget ended before the replanned H and sparsity were tried"
        )
    arm, steps = _best_arm(search, reference, plan)
    if not math.isfinite(steps):
        return _untried(search, reference, plan, kept, "No step size was good at the replanned H and sparsity")
    search.observe(plan, reference.steps_to_target(steps), LEVEL_DEVIATION)
    again, kept = (_plan_at(search, one.local_steps) for one in (plan, reference.plan))
    if again is None:
        return _untried(search, reference, plan, kept, "Batteries do not last for the replanned H")
    moved = again.local_steps != reference.plan.local_steps
    if moved and kept is not None and kept.energy_joules <= again.energy_joules:
        return kept, reference.winner
    return again, arm


def _worthwhile_plan(plan: Plan, kept: Plan | None, trainings: int) -> Plan:
    """Return the plan of the belief, or that of the race's H if the search for another step size would cost more."""
    if kept is None:
        return plan
    saving_joules = trainings * (kept.energy_joules - plan.energy_joules)
    price_joules = len(RATES) * LEVEL_PART * plan.energy_joules
    return plan if saving_joules > price_joules else kept


def _untried(search: Search, reference: Reference, plan: Plan, kept: Plan | None, why: str) -> tuple[Plan, Arm]:
    """Keep the H of the race; where batteries do not last for it, take the plan with a step size scaled to its H."""
    if kept is not None:
        search.notes.append(f"{why}; the H of the race is kept.")
        return kept, reference.winner
    search.notes.append(f"{why}; batteries do not last for the H of the race, so its step size was scaled to this H.")
    return plan, Arm(reference.winner.optimiser, reference.rate_at(plan))


def _plan_at(search: Search, local_steps: int) -> Plan | None:
    """Return the plan of the belief at this H; None where batteries do not last for it."""
    try:
        return search.plan(local_steps)
    except InfeasiblePlanError:
        return None


def _has_moved(plan: Plan, before: Plan) -> bool:
    """Whether a plan is so far from the one before that its step size is looked for again."""
    sparsity = _ratio(float(np.mean(plan.sparsity)), float(np.mean(before.sparsity)))
    return max(_ratio(plan.local_steps, before.local_steps), sparsity**0.5) > MOVED


def _best_arm(search: Search, reference: Reference, plan: Plan) -> tuple[Arm, float]:
    """Return the winner with the best of a few step sizes at a plan, and its steps to the level; infinite if none."""
    scaled, level = reference.rate_at(plan), reference.level
    expected = search.predicted_steps(plan)
    affordable = search.steps_left(expected, plan) / max(LEVEL_PART * expected, 1.0)
    affordable = min(affordable, search.pilots_within_budget(LEVEL_PART * expected, plan))
    arms = [Arm(reference.winner.optimiser, factor * scaled) for factor in RATES]
    arms = arms[: max(1, int(min(affordable, len(arms))))]
    limit = search.capped(PATIENCE * LEVEL_PART * expected, plan, pilots=len(arms))
    results = search.run([search.spec(arm, limit, plan, level=level) for arm in arms])
    taken = [one.steps_to_loss(level) or math.inf if one.alive else math.inf for one in results]
    penalties = [1.0 + RATE_PENALTY * math.log2(arm.rate / scaled) for arm in arms]
    merit = np.argsort([steps * penalty for steps, penalty in zip(taken, penalties, strict=True)], kind="stable")
    for best in merit.tolist():
        if math.isfinite(taken[best]) and is_steady(search, arms[best], OTHER_STARTS, plan):
            return arms[best], taken[best]
    return arms[0], math.inf


def _ratio(one: float, other: float) -> float:
    return max(one / other, other / one)
