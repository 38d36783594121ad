"""The plan of the race: the cheapest by the prior, without very sparse messages where that costs little."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.convergence.rounds import PowerLawRounds
from fewjoules.planner.problem import ControlProblem
from fewjoules.tuning.belief import PRIOR_A, PRIOR_C, PRIOR_Q
from fewjoules.tuning.first_plan import RIDGE, VERY_SPARSE, first_plan
from fewjoules.tuning.planning import MESSAGES, FleetPlanning
from fewjoules.tuning.replanning import replan
from tests.tuning.worlds import World, tuner_of

PRIOR = PowerLawRounds(tau=1.0, c=PRIOR_C, a=PRIOR_A, q=PRIOR_Q)


def planning_of(joules_per_bit, *, limits=(1.0, 1000.0), message_joules=0.0, steps=range(1, 13), **constraints):
    fleet = fj.Fleet(
        joules_per_bit=joules_per_bit * np.array([0.6, 1.0, 1.5]),
        joules_per_step=np.full(3, 1e-3),
        message_joules=message_joules,
        seconds_per_bit=np.full(3, 1e-4),
        seconds_per_step=np.full(3, 1e-3),
    )
    problem = ControlProblem(
        fleet=fleet, rounds=PRIOR, parameters=60_000, sparsity=limits, local_steps=steps, **constraints
    )
    return FleetPlanning(problem)


def least_joules(planning):
    """The fewest joules over H and kinds of messages, the delay of coarse values included: one plan for each pair."""
    steps = planning.problem.local_steps
    return min(one.delay * planning.plan(PRIOR, kind, H).energy_joules for kind, one in MESSAGES.items() for H in steps)


@given(st.floats(-10.0, -4.0), st.floats(0.0, 0.01), st.floats(20.0, 1000.0))
@settings(max_examples=10, deadline=None)
def test_very_sparse_messages_are_left_out_exactly_where_that_costs_little(power, message_joules, high):
    planning = planning_of(10.0**power, limits=(1.0, high), message_joules=message_joules)
    limited = planning_of(10.0**power, limits=(1.0, min(high, VERY_SPARSE)), message_joules=message_joules)
    least, without = least_joules(planning), least_joules(limited)
    found = first_plan(planning, PRIOR)
    if without <= RIDGE * least * (1.0 - 1e-9):
        assert found.plan.sparsity.max() <= VERY_SPARSE * (1.0 + 1e-9)
        assert found.joules <= without * (1.0 + 1e-9)
    else:
        assert found.joules == pytest.approx(least, rel=1e-9)


def test_a_flat_ridge_is_left_towards_larger_h_and_later_plans_stay_off_its_sparse_end():
    planning = planning_of(2e-7)
    free = min((planning.plan(PRIOR, kind) for kind in MESSAGES), key=lambda plan: plan.energy_joules)
    found = first_plan(planning, PRIOR)
    assert free.sparsity.max() > VERY_SPARSE >= found.plan.sparsity.max()
    assert found.plan.local_steps > free.local_steps
    dear = PowerLawRounds(tau=1.0, c=1e-4, a=PRIOR_A, q=PRIOR_Q)
    assert planning.plan(dear, found.message).sparsity.max() <= VERY_SPARSE
    assert found.plan.relative_gap <= 1e-9


def test_bits_so_dear_that_only_very_sparse_messages_are_cheap_keep_them():
    planning = planning_of(1e-3)
    assert first_plan(planning, PRIOR).plan.sparsity.min() > VERY_SPARSE
    assert planning.problem_of(PRIOR, "int8").sparsity == (1.0, 1000.0)


def test_a_deadline_that_only_very_sparse_messages_meet_keeps_them():
    planning = planning_of(2e-7, steps=[1, 2], round_seconds=0.24)
    with pytest.raises(fj.InfeasiblePlanError):
        planning_of(2e-7, steps=[1, 2], limits=(1.0, VERY_SPARSE), round_seconds=0.24).plan(PRIOR, "float32")
    assert first_plan(planning, PRIOR).plan.sparsity.max() > VERY_SPARSE


def test_a_deadline_that_only_coarse_values_meet_chooses_them():
    planning = planning_of(2e-7, steps=[1], limits=(1.0, 8.0), round_seconds=10.0)
    with pytest.raises(fj.InfeasiblePlanError):
        planning.plan(PRIOR, "float32")
    assert first_plan(planning, PRIOR).message == "ternary"
    with pytest.raises(fj.InfeasiblePlanError, match="round_seconds"):
        first_plan(planning_of(2e-7, steps=[1], limits=(1.0, 8.0), round_seconds=1.0), PRIOR)


def with_downlink(joules_per_bit, **downlink):
    fleet = fj.Fleet(
        joules_per_bit=[1e-7, 2e-7],
        joules_per_step=1e-3,
        downlink_joules_per_bit=[joules_per_bit, 2.0 * joules_per_bit],
    )
    server = fj.Downlink(sparsity=(1.0, 400.0), **downlink)
    return FleetPlanning(
        ControlProblem(
            fleet=fleet,
            rounds=PRIOR,
            parameters=60_000,
            sparsity=(1.0, 200.0),
            local_steps=range(1, 9),
            downlink=server,
        )
    )


@given(st.floats(-12.0, -4.0))
@settings(max_examples=10, deadline=None)
def test_the_first_plan_is_the_cheapest_over_the_kinds_of_both_directions(power):
    planning = with_downlink(10.0**power)
    joules = {
        (up, down): MESSAGES[up].delay * MESSAGES[down].delay * planning.at_downlink(down).plan(PRIOR, up).energy_joules
        for up in MESSAGES
        for down in MESSAGES
    }
    found = first_plan(planning, PRIOR)
    assert found.joules == pytest.approx(min(joules.values()), rel=1e-9)
    assert found.joules == pytest.approx(joules[found.message, found.planning.downlink_values], rel=1e-9)


@pytest.mark.parametrize(
    ("joules_per_bit", "values"), [(0.0, "float32"), (1e-13, "float32"), (1e-10, "int8"), (1e-6, "ternary")]
)
def test_the_dearer_the_downlink_the_coarser_are_its_values(joules_per_bit, values):
    found = first_plan(with_downlink(joules_per_bit), PRIOR)
    assert found.planning.downlink_values == values
    assert found.planning.messages()[found.message][0]["downlink_values"] == values


def test_devices_that_stay_away_receive_float32_however_dear_it_is():
    assert first_plan(with_downlink(1e-6, participation=0.5), PRIOR).planning.downlink_values == "float32"


def patient_world(seed=10):
    """A world without luck in which more local steps hardly delay training, whatever the prior says."""
    world = World.random(seed, "dear bits")
    patient = {
        name: replace(one, law=replace(one.law, c=0.03, a=0.1, q=0.4), rate_by_steps=0.0, edge=16.0)
        for name, one in world.optimisers.items()
    }
    return replace(world, optimisers=patient, edge_deviation=0.0, seed_deviation=0.0, evaluation_deviation=0.0)


def believes_in_larger_h():
    """A search after the race whose belief rightly prefers another H than that of the race, and its reference."""
    world = patient_world()
    tuner = tuner_of(world)
    tuner.tune()
    search, raced = tuner.search, tuner.search.raced
    larger = search.plan(50)
    search.observe(larger, world.steps_to_target(search.spec(raced.winner, 1, larger)), 0.05)
    return search, raced


def test_another_h_is_looked_into_only_if_it_saves_more_than_its_step_size_costs_to_find():
    search, raced = believes_in_larger_h()
    belief = search.belief
    kept, plan = search.plan(raced.plan.local_steps), search.plan()
    assert plan.local_steps > 1.5 * kept.local_steps
    enough = plan.energy_joules / (kept.energy_joules - plan.energy_joules)  # three pilots of a third of a training
    tried = len(search.pilots)
    assert replan(search, raced, trainings=math.floor(enough))[0].local_steps == kept.local_steps
    assert plan.local_steps not in {one.spec.local_steps for one in search.pilots[tried:]}
    search.belief, tried = belief, len(search.pilots)
    replan(search, raced, trainings=math.ceil(enough))
    assert {one.spec.local_steps for one in search.pilots[tried:]} == {plan.local_steps}


def test_another_h_is_taken_where_batteries_do_not_last_for_that_of_the_race():
    search, raced = believes_in_larger_h()
    planning, plan = search.planning, search.plan()
    costs = planning.problem_of(search.belief.law(), search.message)
    joules = plan.rounds * costs.round_joules(plan.local_steps, plan.sparsity, plan.downlink_sparsity)
    fleet = planning.problem.fleet.changed(battery_joules=1.01 * joules)
    planning.problem = replace(planning.problem, fleet=fleet)
    with pytest.raises(fj.InfeasiblePlanError):
        search.plan(raced.plan.local_steps)
    search.observe = lambda *_seen: None  # what the pilots show could make the batteries too small for every plan
    assert replan(search, raced, trainings=1)[0].local_steps > raced.plan.local_steps
