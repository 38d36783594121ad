"""A plan says which of its choices are at their limits, and nothing of choices that its scheme does not make."""

from dataclasses import replace

import numpy as np
import pytest

import fewjoules as fj
from fewjoules.planner.at_limits import limits_reached

PROBLEM = fj.ControlProblem(
    fleet=fj.Fleet(joules_per_bit=[1e-7, 3e-7, 1e-6], message_joules=5e-3, joules_per_step=1e-3),
    rounds=fj.PowerLawRounds(tau=1000.0, c=0.02, a=0.8, q=0.6),
    parameters=10_000,
    sparsity=(1.0, 1e4),
    local_steps=range(1, 1001),
)


def test_a_plan_inside_its_limits_has_nothing_to_say():
    assert limits_reached(PROBLEM, fj.solve(PROBLEM)) == []


def test_local_steps_are_at_their_limit_where_the_best_lie_beyond():
    best = fj.solve(PROBLEM).local_steps
    below, above = (PROBLEM.with_choices(local_steps=steps) for steps in (range(1, best), range(best + 1, 1001)))
    assert limits_reached(below, fj.solve(below)) == [f"H = {best - 1} is at its upper limit"]
    assert limits_reached(above, fj.solve(above)) == [f"H = {best + 1} is at its lower limit"]


def test_devices_at_a_limit_of_sparsity_are_counted():
    best = fj.solve(PROBLEM)
    first, second, third = np.sort(best.sparsity)
    tight = PROBLEM.with_choices(sparsity=(1.1 * first, 0.9 * third), local_steps=[best.local_steps])
    plan = fj.solve(tight)
    assert first < second < third
    assert limits_reached(tight, plan) == [
        f"1 of 3 devices is at min sparsity {1.1 * first:g}",
        f"1 of 3 devices is at max sparsity {0.9 * third:g}",
    ]
    all_at = PROBLEM.with_choices(sparsity=(1.0, 1.1), local_steps=[1])
    assert limits_reached(all_at, fj.solve(all_at)) == ["all 3 devices are at max sparsity 1.1"]


@pytest.mark.parametrize("scheme", ["greedy", "dense"])
def test_schemes_that_choose_nothing_are_at_no_limit(scheme):
    assert limits_reached(PROBLEM, fj.schemes.SCHEMES[scheme](PROBLEM)) == []


def test_only_what_a_scheme_plans_can_be_at_a_limit():
    plan = replace(fj.solve(PROBLEM), local_steps=1, sparsity=np.full(3, 1.0))
    said = {scheme: limits_reached(PROBLEM, replace(plan, scheme=scheme)) for scheme in ("synchronous", "fedavg")}
    assert said == {
        "synchronous": ["all 3 devices are at min sparsity 1"],
        "fedavg": ["H = 1 is at its lower limit"],
    }
