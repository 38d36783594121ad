"""Learning the law of the winner by pilots at other plans, as long as they are worth their price (design.py)."""

import contextlib
import math

import numpy as np

from fewjoules.errors import InfeasiblePlanError
from fewjoules.planner.plan import Plan
from fewjoules.tuning.design import Decision, best_decision, expected_regret, most_useful_pilot
from fewjoules.tuning.pilot import PilotResult
from fewjoules.tuning.race import Arm
from fewjoules.tuning.reference import LEVEL_DEVIATION, LEVEL_PART, Reference
from fewjoules.tuning.search import PATIENCE, Search

SAMPLED_LAWS = 24  # of the belief, whose plans are the decisions
MOST_LAW_PILOTS = 12  # a bound; pilots are seldom worth their price that often
TRIES = 2  # of a pilot that blows up, each with half the step size of the one before
UNFINISHED = 2.0  # times the deviation where a pilot ended above the level


def learn_law(search: Search, reference: Reference, trainings: int) -> None:
    """Run pilots at other plans while they are expected to save more in all later trainings than they cost."""
    search.doing = "learning the law of the best optimiser"
    for _ in range(MOST_LAW_PILOTS):
        found = _worthwhile_pilot(search, trainings)
        if found is None:
            return
        plan, steps = found
        _observe_level(search, reference, plan, math.ceil(PATIENCE * steps))


def decisions_of(search: Search) -> tuple[list[Plan], list[Decision]]:
    """Return the plans that are best under laws drawn from the belief and under its mean, each once.

    Laws under which batteries do not last for any plan are left out.
    """
    belief = search.belief
    found: dict[tuple[int, float], Plan] = {}
    for law in (belief.law(), *map(belief.law_of, belief.sampled(SAMPLED_LAWS, search.rng))):
        with contextlib.suppress(InfeasiblePlanError):
            plan = search.planning.plan(law, search.message)
            found.setdefault((plan.local_steps, round(2.0 * math.log(float(np.mean(plan.sparsity))))), plan)
    plans = list(found.values())
    return plans, [_decision(search, plan) for plan in plans]


def regret_of(search: Search, plan: Plan) -> float:
    """Return the joules of a training that knowing the law is expected to save beside this plan."""
    _, others = decisions_of(search)
    return expected_regret(search.belief, _decision(search, plan), others)


def _decision(search: Search, plan: Plan) -> Decision:
    return Decision(search.choice(plan), search.round_joules(plan))


def _worthwhile_pilot(search: Search, trainings: int) -> tuple[Plan, float] | None:
    """Return the plan of the most useful pilot and its expected steps; None if it costs more than it saves."""
    plans, decisions = decisions_of(search)
    if len(decisions) < 2:
        return None
    worth = most_useful_pilot(search.belief, decisions, LEVEL_DEVIATION, search.rng)
    plan, best = plans[worth.decision], plans[best_decision(search.belief, decisions)]
    steps = LEVEL_PART * search.predicted_steps(plan)
    price_joules = steps / plan.local_steps * decisions[worth.decision].round_joules
    left = search.steps_left(search.predicted_steps(best), plan)
    affordable = steps <= left and search.pilots_within_budget(plan.local_steps, plan) >= 1.0
    return (plan, steps) if affordable and worth.saves_joules * trainings > price_joules else None


def _observe_level(search: Search, reference: Reference, plan: Plan, limit: int) -> None:
    """Train a plan to the level of the reference, for ``limit`` steps at the most, and update the belief."""
    pilot = _pilot_to_level(search, reference, plan, limit)
    taken = pilot.steps_to_loss(reference.level)
    if taken is None:
        most = min(limit, pilot.spec.steps)
        search.observe(plan, reference.steps_to_target(most), UNFINISHED * LEVEL_DEVIATION)
    else:
        search.observe(plan, reference.steps_to_target(taken), LEVEL_DEVIATION)


def _pilot_to_level(search: Search, reference: Reference, plan: Plan, limit: int) -> PilotResult:
    """Return a pilot of the winner at a plan, with a smaller step size if the first one blew up."""
    rate, level = reference.rate_at(plan), reference.level
    for _ in range(TRIES):
        arm = Arm(reference.winner.optimiser, rate)
        (result,) = search.run([search.spec(arm, search.capped(limit, plan), plan, level=level)])
        if result.alive or result.steps_to_loss(level) is not None or search.pilots_within_budget(limit, plan) < 1.0:
            break
        rate /= 2.0
    return result
