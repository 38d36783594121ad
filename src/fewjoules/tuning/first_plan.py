"""The plan that the race is held at: the cheapest by the prior of the law, but not very sparse where that costs little.

Plans of equal joules form a flat ridge: H = 1 with sparsity 1000 and H = 4 with sparsity 230 may be 3 % apart. Messages
of very few entries stay stable with small step sizes only, and delay training by more than the law says
(docs/tuning.md). So this end of the ridge is left out of all plans, unless bits are so dear that it must be used.
"""

import math
from dataclasses import dataclass

from fewjoules.convergence.rounds import RoundsModel
from fewjoules.errors import InfeasiblePlanError
from fewjoules.planner.plan import Plan
from fewjoules.tuning.batches import first_batches
from fewjoules.tuning.planning import Planning

VERY_SPARSE = 250.0  # sparsity above which the law promises too much
RIDGE = 1.05  # times the least joules by the prior, that plans without very sparse messages may cost


@dataclass(frozen=True)
class FirstPlan:
    """The batch, kind of messages and plan to begin with; ``delay``: times the steps that the usual batch takes."""

    planning: Planning
    message: str
    plan: Plan
    delay: float
    joules: float


def first_plan(planning: Planning, law: RoundsModel) -> FirstPlan:
    """Return the plan to begin with; ``planning`` leaves very sparse messages out from then on if that costs little."""
    free = _cheapest(planning, law)
    if free.plan.sparsity.max() <= VERY_SPARSE:
        return free
    planning.limit_sparsity(VERY_SPARSE)
    try:
        limited = _cheapest(planning, law)
        if limited.joules <= RIDGE * free.joules:
            return limited
    except InfeasiblePlanError:  # very sparse messages alone meet a deadline
        pass
    planning.limit_sparsity(math.inf)
    return free


def _cheapest(planning: Planning, law: RoundsModel) -> FirstPlan:
    """Return the plan of the fewest joules by a law over all batches and kinds of messages."""
    delays = first_batches(planning.batches)
    plannings = [(planning.at_batch(size), delay) for size, delay in delays.items()] or [(planning, 1.0)]
    found = [
        FirstPlan(own, name, plan, delay, delay * rounding * plan.energy_joules)
        for own, delay in plannings
        for name, (_, rounding) in own.messages().items()
        for plan in [own.plan(law, name)]
    ]
    return min(found, key=lambda one: one.joules)
