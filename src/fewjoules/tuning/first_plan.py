"""The plan that the race is held at: the cheapest by the prior of the law, or one about as cheap but less sparse.

Plans of equal joules form a flat ridge: H = 1 with sparsity 1000 and H = 4 with sparsity 250 may be 3 % apart. The law
does not tell them apart, but step sizes do: messages of very few entries stay stable only with small ones, and the
prior of the law knows little of them. So a race leaves the very sparse end of the ridge.
"""

import numpy as np

from fewjoules.convergence.rounds import RoundsModel
from fewjoules.planner.plan import Plan
from fewjoules.tuning.batches import first_batches
from fewjoules.tuning.planning import Planning

VERY_SPARSE = 300.0  # mean sparsity above which step sizes that are stable elsewhere blow up (docs/tuning.md)
RIDGE = 1.05  # times the least joules, that a less sparse plan may cost by the prior


def first_plan(planning: Planning, law: RoundsModel) -> tuple[Planning, str, Plan, float]:
    """Return the batch, kind of messages and plan to race at by a law, and how much the batch delays."""
    delays = first_batches(planning.batches)
    plannings = [(planning.at_batch(size), delay) for size, delay in delays.items()] or [(planning, 1.0)]
    found = [
        (delay * rounding * plan.energy_joules, number, own, name, plan, delay)
        for number, (own, delay) in enumerate(plannings)
        for name, (_, rounding) in own.messages().items()
        for plan in [own.plan(law, name)]
    ]
    *_, own, name, plan, delay = min(found, key=lambda one: one[:2])
    return own, name, _less_sparse(own, law, name, plan), delay


def _less_sparse(planning: Planning, law: RoundsModel, message: str, best: Plan) -> Plan:
    """Return the plan of the least H on the ridge that is not very sparse; the best one where there is none."""
    if _mean_sparsity(best) <= VERY_SPARSE:
        return best
    for local_steps in sorted(one for one in planning.local_steps if one > best.local_steps):
        plan = planning.plan(law, message, local_steps)
        if plan.energy_joules > RIDGE * best.energy_joules:
            break
        if _mean_sparsity(plan) <= VERY_SPARSE:
            return plan
    return best


def _mean_sparsity(plan: Plan) -> float:
    return float(np.mean(plan.sparsity))
