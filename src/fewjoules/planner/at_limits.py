"""Which choices of a plan are at their limits, so that wider limits might save more."""

import numpy as np

from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.schemes import PLANS_LOCAL_STEPS, PLANS_SPARSITY


def limits_reached(problem: ControlProblem, plan: Plan, each: int = 1) -> list[str]:
    """Name the choices of the plan's scheme that are at a limit; limits that leave no choice do not count.

    Each device of the problem stands for ``each`` devices.
    """
    found = []
    steps = problem.step_choices
    if plan.scheme in PLANS_LOCAL_STEPS and steps.size > 1:
        for limit, side in ((steps[0], "lower"), (steps[-1], "upper")):
            if plan.local_steps == limit:
                found.append(f"H = {limit} is at its {side} limit")
    low, high = problem.sparsity
    if plan.scheme in PLANS_SPARSITY and low < high:
        for limit, key in ((low, "min"), (high, "max")):
            count = int(np.count_nonzero(np.isclose(plan.sparsity, limit, rtol=1e-9)))
            if count:
                found.append(f"{_devices(count * each, plan.sparsity.size * each)} at {key} sparsity {limit:g}")
    if plan.scheme in PLANS_SPARSITY and problem.server is not None and problem.server.chosen:
        for limit, key in zip(problem.server.sparsity, ("min", "max"), strict=True):
            if plan.downlink_sparsity is not None and np.isclose(plan.downlink_sparsity, limit, rtol=1e-9):
                found.append(f"the server is at {key} sparsity {limit:g}")
    return found


def _devices(count: int, devices: int) -> str:
    if devices == 1:
        return "the device is"
    whose = f"all {devices:,}" if count == devices else f"{count:,} of {devices:,}"
    return f"{whose} devices {'is' if count == 1 else 'are'}"
