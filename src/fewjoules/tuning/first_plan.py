"""The plan that the race is held at: the cheapest by the prior of the law, but not very sparse where that costs little.

Plans of equal joules form a flat ridge: H = 1 with sparsity 1000 and H = 4 with sparsity 230 may be 3 % apart. Messages
of very few entries stay stable with small step sizes only, and delay training by more than the law says
(docs/tuning.md). So this end of the ridge is left out of all plans, unless bits are so dear that it must be used.
"""

import math
from collections.abc import Iterator
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
    """The batch, kinds of messages and plan to begin with; ``delay``: times the steps that the usual batch takes."""

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
    """Return the plan of the fewest joules by a law over all batches and kinds of messages, the server's included."""
    found: list[FirstPlan] = []
    missed: list[InfeasiblePlanError] = []
    for own, delay in _choices(planning):
        for name, (_, rounding) in own.messages().items():
            try:
                plan = own.plan(law, name)
            except InfeasiblePlanError as error:  # other values may meet a deadline
                missed.append(error)
            else:
                found.append(FirstPlan(own, name, plan, delay, delay * rounding * plan.energy_joules))
    if not found:
        raise missed[0]
    return min(found, key=lambda one: one.joules)


def _choices(planning: Planning) -> Iterator[tuple[Planning, float]]:
    """Yield the planning with every batch and every kind of the server's values; times the steps of the usual batch."""
    delays = first_batches(planning.batches)
    for batched, delay in [(planning.at_batch(size), delay) for size, delay in delays.items()] or [(planning, 1.0)]:
        for values in batched.downlink_kinds:
            yield batched.at_downlink(values), delay
