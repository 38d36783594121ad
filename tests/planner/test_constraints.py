"""Deadlines and batteries: plans meet them, pay no more for them than they must, and say so when nothing meets them."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fewjoules as fj
from tests import strategies
from tests.reference import planning as reference

CERTIFIED = 1e-9
ROUNDING = 1e-12
DEADLINE_MARGIN = 1e-11  # plans leave 1e-12 of the radio time unused; their bound, too, is that of the shorter time

few = settings(deadline=None, max_examples=25, derandomize=True)
many = settings(deadline=None, max_examples=40, derandomize=True)


def spending(problem, steps, sparsity):
    """What each device spends in the whole training."""
    rounds = reference.rounds(problem, steps, sparsity)
    return np.array([rounds * reference.device_joules(problem, m, steps, delta) for m, delta in enumerate(sparsity)])


def slowest_seconds(problem, steps, sparsity):
    return max(reference.device_seconds(problem, m, steps, delta) for m, delta in enumerate(sparsity))


@st.composite
def anchors(draw, problem):
    """Some H and sparsity within the limits, whatever they cost, and batteries for some devices that last there."""
    low, high = problem.sparsity
    steps = draw(st.sampled_from(problem.local_steps))
    parts = draw(strategies.arrays(st.integers(0, 1000), len(problem.fleet))) / 1000
    sparsity = np.clip(low ** (1 - parts) * high**parts, low, high).tolist()
    slack = draw(strategies.arrays(st.floats(1.01, 2.0) | st.just(math.inf), len(sparsity)))
    return steps, sparsity, slack * spending(problem, steps, sparsity)


@st.composite
def frugal_anchors(draw, problem):
    """A point near the optimum, with batteries that last there and, if it can be, not at the optimum.

    At the optimum, a device that sends less spends less itself and makes the others spend more.
    """
    optimum = reference.best(problem)
    steps, sparsity = optimum.local_steps, list(optimum.sparsity)
    m = draw(st.integers(0, len(sparsity) - 1))
    sparsity[m] = min(sparsity[m] * draw(strategies.magnitudes(0.02, 0.7)), problem.sparsity[1])
    planned, spared = spending(problem, steps, optimum.sparsity), spending(problem, steps, sparsity)
    batteries = draw(st.floats(1.001, 1.5)) * spared
    batteries[m] = spared[m] + draw(st.floats(0.01, 0.9)) * max(planned[m] - spared[m], 0.01 * spared[m])
    return steps, sparsity, batteries


@st.composite
def constrained_problems(draw, kinds=("deadline", "batteries", "both"), max_devices=2):
    """Problems with a deadline, with batteries or with both, all met by some point; H from a short list."""
    kind = draw(st.sampled_from(kinds))
    fewest = 1 if kind == "deadline" else 2  # the battery of a lone device bounds the objective itself
    steps = strategies.local_step_sets(max_size=4)
    problem = draw(strategies.problems(min_devices=fewest, max_devices=max_devices, timed=True, local_steps=steps))
    scarce = kind != "deadline" and draw(st.sampled_from([True, True, True, False]))
    *anchor, batteries = draw(frugal_anchors(problem) if scarce else anchors(problem))
    if kind != "deadline":
        problem = strategies.with_costs(problem, battery_joules=batteries)
    if kind != "batteries":
        slack = draw(st.floats(1.001, 1.2))
        problem = strategies.changed(problem, round_seconds=slack * slowest_seconds(problem, *anchor))
    return problem


def unconstrained(problem):
    return strategies.changed(strategies.with_costs(problem, battery_joules=None), round_seconds=None)


def scaled_limits(problem, factor):
    """The same problem with `factor` of the time and of the charge."""
    batteries = problem.fleet.battery_joules
    charged = problem if batteries is None else strategies.with_costs(problem, battery_joules=factor * batteries)
    deadline = problem.round_seconds
    return charged if deadline is None else strategies.changed(charged, round_seconds=factor * deadline)


def timed_fleet(**fields):
    defaults = {
        "joules_per_bit": [1e-9, 2e-9, 4e-9],
        "joules_per_step": 1e-3,
        "seconds_per_bit": 1e-7,
        "seconds_per_step": 1e-2,
        "names": ["attic", "cellar", "garden"],
    }
    return fj.Fleet(**(defaults | fields))


def timed_problem(fleet, **fields):
    defaults = {
        "fleet": fleet,
        "rounds": fj.PaperRounds(alpha=1e-4, beta=100.0),
        "parameters": 100_000,
        "sparsity": (2.0, 200.0),
        "local_steps": range(2, 11),
    }
    return fj.ControlProblem(**(defaults | fields))


# ---- meeting the limits ----


@many
@given(constrained_problems(max_devices=5))
def test_a_plan_meets_its_deadline_and_batteries(problem):
    plan = fj.solve(problem)
    low, high = problem.sparsity
    assert plan.local_steps in problem.local_steps
    assert np.all((plan.sparsity >= low) & (plan.sparsity <= high))
    assert reference.meets_limits(problem, plan.local_steps, plan.sparsity.tolist(), slack=CERTIFIED)


@few
@given(constrained_problems(max_devices=5))
def test_a_constrained_plan_still_reports_the_literal_objective(problem):
    plan = fj.solve(problem)
    literal = reference.energy(problem, plan.local_steps, plan.sparsity.tolist())
    assert plan.energy_joules == pytest.approx(literal, rel=ROUNDING)
    assert plan.radio_joules + plan.compute_joules == pytest.approx(plan.energy_joules, rel=ROUNDING)


# ---- the price of the limits ----


@pytest.mark.parametrize("kind", ["deadline", "batteries", "both"])
@few
@given(data=st.data())
def test_no_search_finds_a_better_plan_within_the_limits_or_beats_its_bound(kind, data):
    problem = data.draw(constrained_problems(kinds=(kind,)))
    plan, found = fj.solve(problem), reference.best_constrained(problem)
    assert plan.energy_joules <= found.energy_joules * (1 + 1e-8)
    assert plan.energy_joules >= found.energy_joules * (1 - 1e-7)
    assert plan.lower_bound_joules <= found.energy_joules * (1 + DEADLINE_MARGIN)


@many
@given(constrained_problems(max_devices=5))
def test_a_constrained_plan_is_proved_optimal_to_one_part_in_a_million(problem):
    plan = fj.solve(problem)
    assert -ROUNDING <= plan.relative_gap <= 1e-6
    assert plan.relative_gap == pytest.approx(1 - plan.lower_bound_joules / plan.energy_joules, abs=1e-15)


@few
@given(constrained_problems(max_devices=5))
def test_limits_never_lower_the_energy(problem):
    free = fj.solve(unconstrained(problem))
    assert fj.solve(problem).energy_joules >= free.lower_bound_joules * (1 - ROUNDING)


@few
@given(constrained_problems(max_devices=5))
def test_slack_limits_change_nothing(problem):
    free = fj.solve(unconstrained(problem))
    steps, sparsity = free.local_steps, free.sparsity.tolist()
    charged = strategies.with_costs(problem, battery_joules=1.001 * spending(problem, steps, sparsity))
    deadline = 1.001 * slowest_seconds(problem, steps, sparsity)
    plan = fj.solve(strategies.changed(charged, round_seconds=deadline))
    assert plan.energy_joules == pytest.approx(free.energy_joules, rel=2 * CERTIFIED)
    assert plan.relative_gap <= 2 * CERTIFIED


@few
@given(constrained_problems(max_devices=5), st.floats(1.0, 1.5))
def test_tighter_limits_never_lower_the_energy(problem, factor):
    loose, tight = fj.solve(scaled_limits(problem, factor)), fj.solve(problem)
    assert tight.energy_joules >= loose.lower_bound_joules * (1 - ROUNDING)


def test_a_deadline_makes_the_late_device_alone_send_less():
    free = fj.solve(timed_problem(timed_fleet()))
    fleet = timed_fleet(seconds_per_bit=[1e-7, 1e-5, 1e-7])
    late = timed_problem(fleet, local_steps=(free.local_steps,))
    seconds = reference.device_seconds(late, 1, free.local_steps, 2 * free.sparsity[1])
    plan = fj.solve(strategies.changed(late, round_seconds=seconds))
    assert plan.sparsity[1] == pytest.approx(2 * free.sparsity[1], rel=1e-6)
    assert plan.energy_joules > free.energy_joules
    assert np.all(plan.sparsity[[0, 2]] < 2 * free.sparsity[[0, 2]])


def test_a_battery_that_binds_is_used_up_and_no_more():
    problem = timed_problem(timed_fleet())
    free = fj.solve(problem)
    battery = 0.98 * spending(problem, free.local_steps, free.sparsity)[2]
    plan = fj.solve(strategies.with_costs(problem, battery_joules=[math.inf, math.inf, battery]))
    assert spending(problem, plan.local_steps, plan.sparsity)[2] == pytest.approx(battery, rel=1e-6)
    assert plan.energy_joules > free.energy_joules


def hungry_problem(battery_joules, local_steps):
    """One device whose steps are dear: it lasts longer if everybody synchronises more often."""
    fleet = timed_fleet(
        joules_per_bit=1e-9, joules_per_step=[1e-3, 1e-4, 1e-4], battery_joules=[battery_joules, math.inf, math.inf]
    )
    rounds = fj.PowerLawRounds(tau=2000.0, c=0.005, a=0.5, q=0.6)
    return timed_problem(fleet, rounds=rounds, local_steps=local_steps)


def test_a_battery_moves_the_best_h():
    lasting = (4, 16, 24)
    assert fj.solve(hungry_problem(math.inf, (*lasting, 50))).local_steps == 50
    with pytest.raises(fj.InfeasiblePlanError):
        fj.solve(hungry_problem(2.15, (50,)))
    one_by_one = [fj.solve(hungry_problem(2.15, (steps,))).energy_joules for steps in lasting]
    plan = fj.solve(hungry_problem(2.15, (*lasting, 50)))
    assert plan.local_steps == 24
    assert plan.energy_joules == pytest.approx(min(one_by_one), rel=2 * CERTIFIED)


def lopsided_problem(battery_joules, local_steps):
    """Two devices with like radios; the steps of the second cost thirty times those of the first."""
    fleet = fj.Fleet(joules_per_bit=1.4e-10, joules_per_step=[8e-5, 2.33e-3], battery_joules=[battery_joules, math.inf])
    rounds = fj.PowerLawRounds(tau=2000.0, c=0.005, a=0.5, q=2.0)
    return timed_problem(fleet, rounds=rounds, local_steps=local_steps)


def test_a_battery_may_move_the_best_h_although_it_lasts_at_every_h():
    energies = {steps: fj.solve(lopsided_problem(0.2141, (steps,))).energy_joules for steps in (10, 20)}
    assert fj.solve(lopsided_problem(math.inf, (10, 20))).local_steps == 10
    assert fj.solve(lopsided_problem(0.2141, (10, 20))).local_steps == min(energies, key=energies.get) == 20
    assert reference.best_constrained(lopsided_problem(0.2141, (10, 20))).local_steps == 20


def test_an_infinite_battery_is_no_battery():
    free = fj.solve(timed_problem(timed_fleet()))
    plan = fj.solve(timed_problem(timed_fleet(battery_joules=math.inf)))
    assert plan.energy_joules == pytest.approx(free.energy_joules, rel=ROUNDING)
    assert plan.relative_gap <= CERTIFIED


# ---- limits that nothing meets ----


@pytest.mark.parametrize(("device", "name"), [(0, "attic"), (1, "cellar"), (2, "garden")])
def test_an_impossible_deadline_names_the_slow_device(device, name):
    seconds_per_bit = [1e-7, 1e-7, 1e-7]
    seconds_per_bit[device] = 1.0
    problem = timed_problem(timed_fleet(seconds_per_bit=seconds_per_bit), round_seconds=10.0)
    with pytest.raises(fj.InfeasiblePlanError) as refusal:
        fj.solve(problem)
    assert name in str(refusal.value)
    assert "round_seconds" in str(refusal.value)


def test_steps_alone_may_miss_the_deadline():
    problem = timed_problem(timed_fleet(seconds_per_step=[1e-2, 6.0, 1e-2]), round_seconds=10.0)
    with pytest.raises(fj.InfeasiblePlanError, match="cellar") as refusal:
        fj.solve(problem)
    assert "round_seconds" in str(refusal.value)


@few
@given(strategies.problems(timed=True, max_devices=4))
def test_a_deadline_just_below_the_fastest_possible_round_is_refused_and_just_above_is_met(problem):
    high, steps = problem.sparsity[1], min(problem.local_steps)
    fastest = slowest_seconds(problem, steps, [high] * len(problem.fleet))
    with pytest.raises(fj.InfeasiblePlanError, match="round_seconds"):
        fj.solve(strategies.changed(problem, round_seconds=fastest * (1 - 1e-6)))
    plan = fj.solve(strategies.changed(problem, round_seconds=fastest * (1 + 1e-6)))
    assert plan.local_steps == steps


@pytest.mark.parametrize(("device", "name"), [(0, "attic"), (1, "cellar"), (2, "garden")])
def test_an_impossible_battery_names_its_device(device, name):
    batteries = [math.inf] * 3
    batteries[device] = 1e-6
    problem = timed_problem(timed_fleet(battery_joules=batteries))
    with pytest.raises(fj.InfeasiblePlanError) as refusal:
        fj.solve(problem)
    assert name in str(refusal.value)
    assert "battery_joules" in str(refusal.value)


@pytest.mark.parametrize("battery_joules", [0.1, 0.2, 0.2141, 0.23])
def test_a_refusal_never_claims_a_need_that_a_feasible_plan_stays_below(battery_joules):
    enough = 0.2315
    fj.solve(lopsided_problem(enough, (5,)))
    with pytest.raises(fj.InfeasiblePlanError) as refusal:
        fj.solve(lopsided_problem(battery_joules, (5,)))
    claims = re.findall(r"at least ([0-9.e+-]+) joules", str(refusal.value))
    assert all(float(claim) <= enough for claim in claims)


def test_batteries_that_are_enough_each_but_not_together_are_refused():
    """The first device must send little to last, which takes more rounds than the second can pay for."""
    fleet = fj.Fleet(joules_per_bit=[1e-6, 1e-12], joules_per_step=[1e-6, 1.0], names=["talker", "thinker"])
    problem = timed_problem(fleet, rounds=fj.PaperRounds(alpha=1e-2, beta=100.0), local_steps=(5,))
    low, high = problem.sparsity
    least = [
        min(spending(problem, 5, [delta, low])[0] for delta in np.geomspace(low, high, 2000)),
        spending(problem, 5, [low, low])[1],
    ]
    for batteries in ([1.05 * least[0], math.inf], [math.inf, 1.05 * least[1]]):
        fj.solve(strategies.with_costs(problem, battery_joules=batteries))
    together = strategies.with_costs(problem, battery_joules=1.05 * np.array(least))
    assert reference.best_constrained(together) == reference.NOTHING
    with pytest.raises(fj.InfeasiblePlanError, match="battery_joules") as refusal:
        fj.solve(together)
    assert "talker" in str(refusal.value) or "thinker" in str(refusal.value)


def test_a_deadline_that_rules_out_every_h_the_battery_allows_is_refused():
    """Only a small H is in time, and only a large one lasts: each limit alone can be met."""
    fleet = timed_fleet(joules_per_bit=1e-7, joules_per_step=1e-6)
    problem = timed_problem(fleet, local_steps=(1, 50), rounds=fj.PaperRounds(alpha=1e-9, beta=1e4))
    spent = {
        steps: min(spending(problem, steps, [delta] * 3)[0] for delta in np.geomspace(2.0, 200.0, 500))
        for steps in (1, 50)
    }
    assert spent[50] < spent[1] / 4
    batteries = [2 * spent[50], math.inf, math.inf]
    charged = strategies.with_costs(problem, battery_joules=batteries)
    hurried = strategies.changed(problem, round_seconds=0.3)
    assert fj.solve(charged).local_steps == 50
    assert fj.solve(hurried).local_steps == 1
    with pytest.raises(fj.InfeasiblePlanError) as refusal:
        fj.solve(strategies.changed(charged, round_seconds=0.3))
    assert "attic" in str(refusal.value)
    assert "battery_joules" in str(refusal.value) or "round_seconds" in str(refusal.value)


@few
@given(constrained_problems(), st.floats(0.2, 1.0))
def test_a_problem_is_refused_only_if_no_search_finds_a_feasible_point(problem, factor):
    tight = scaled_limits(problem, factor)
    try:
        plan = fj.solve(tight)
    except fj.InfeasiblePlanError:
        assert reference.best_constrained(tight) == reference.NOTHING
    else:
        assert reference.meets_limits(tight, plan.local_steps, plan.sparsity.tolist(), slack=CERTIFIED)
