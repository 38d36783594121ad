"""Plans without deadline and batteries: optimal, proved so, and changing with the problem as they must."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.planner import benders
from tests import strategies
from tests.reference import planning as reference

CERTIFIED = 1e-9
ROUNDING = 1e-12

few = settings(deadline=None, max_examples=25, derandomize=True)
many = settings(deadline=None, max_examples=60, derandomize=True)
any_problem = strategies.problems() | strategies.extreme_problems()


def paper_problem(**fields):
    """Twelve devices in four radio groups, the sizes of the README."""
    fleet = fj.Fleet(
        joules_per_bit=np.repeat([2e-10, 8e-10, 3e-9, 1e-8], 3),
        joules_per_step=np.tile([5e-4, 1e-3, 4e-3], 4),
    )
    defaults = {
        "fleet": fleet,
        "rounds": fj.PaperRounds(alpha=1e-4, beta=100.0),
        "parameters": 269_722,
        "value_bits": 32,
        "sparsity": (4.4817, 1000.0),
        "local_steps": range(1, 51),
    }
    return fj.ControlProblem(**(defaults | fields))


def large_problem(rounds):
    """Two thousand devices whose bits and steps differ ten-thousandfold."""
    generator = np.random.default_rng(20)
    fleet = fj.Fleet(
        joules_per_bit=10.0 ** generator.uniform(-11, -7, 2000),
        joules_per_step=10.0 ** generator.uniform(-5, -1, 2000),
        message_joules=10.0 ** generator.uniform(-5, -3, 2000),
    )
    return paper_problem(fleet=fleet, rounds=rounds, sparsity=(1.0, 5000.0))


LARGE_ROUNDS = [
    fj.PaperRounds(alpha=1e-6, beta=1e4),
    fj.PowerLawRounds(tau=2059.0, c=0.0043, a=0.5, q=0.6),
    *(
        fj.BoundRounds(
            smoothness=1.0, sigma=1.0, gradient_bound=2.0, initial_gap=2.0, batch=4, epsilon=1e-12, form=form
        )
        for form in ("exact", "printed")
    ),
]


def stationarity_residuals(problem, plan):
    """How far each device is from its optimality condition, relative to the two terms that must balance."""
    low, high = problem.sparsity
    up, down = reference.pulls(problem, plan.local_steps, plan.sparsity.tolist())
    residuals = []
    for delta, rise, fall in zip(plan.sparsity, up, down, strict=True):
        imbalance = (rise - fall) / max(rise, fall)
        at_low, at_high = delta <= low * (1 + ROUNDING), delta >= high * (1 - ROUNDING)
        wrong_way = (at_low and imbalance < 0) or (at_high and imbalance > 0)
        residuals.append(abs(imbalance) if wrong_way or not (at_low or at_high) else 0.0)
    return residuals if low < high else [0.0]


def assert_same_plan(first, second):
    """Equal H and sparsity; where two H are equally good to within the proof, either may be planned."""
    assert second.energy_joules == pytest.approx(first.energy_joules, rel=2 * CERTIFIED)
    if first.local_steps == second.local_steps:
        np.testing.assert_allclose(second.sparsity, first.sparsity, rtol=1e-6)


def total_bits(problem, plan, m):
    """What device m sends over the whole training."""
    return plan.rounds * reference.message_bits(problem, plan.sparsity[m])


# ---- the optimum and its proof ----


@many
@given(strategies.problems())
def test_no_search_finds_less_energy_than_the_plan(problem):
    plan, found = fj.solve(problem), reference.best(problem)
    assert plan.energy_joules == pytest.approx(found.energy_joules, rel=CERTIFIED)
    assert plan.lower_bound_joules <= found.energy_joules * (1 + ROUNDING)


@many
@given(strategies.extreme_problems())
def test_no_search_finds_less_energy_than_the_plan_of_an_extreme_problem(problem):
    plan, found = fj.solve(problem), reference.best(problem)
    assert plan.energy_joules == pytest.approx(found.energy_joules, rel=CERTIFIED)
    assert plan.lower_bound_joules <= found.energy_joules * (1 + ROUNDING)


@many
@given(any_problem)
def test_the_plan_is_proved_optimal_to_one_part_in_a_billion(problem):
    plan = fj.solve(problem)
    assert -ROUNDING <= plan.relative_gap <= CERTIFIED
    assert plan.relative_gap == pytest.approx(1 - plan.lower_bound_joules / plan.energy_joules, abs=1e-15)


@pytest.mark.parametrize("rounds", LARGE_ROUNDS, ids=["paper", "power-law", "exact bound", "printed bound"])
def test_a_large_fleet_is_planned_and_proved_as_tightly(rounds):
    problem = large_problem(rounds)
    plan = fj.solve(problem)
    assert -ROUNDING <= plan.relative_gap <= CERTIFIED
    assert max(stationarity_residuals(problem, plan)) < 1e-6
    low, high = problem.sparsity
    assert np.count_nonzero((plan.sparsity > low) & (plan.sparsity < high)) > 100


@many
@given(any_problem)
def test_every_sparsity_is_stationary_or_held_back_by_its_limit(problem):
    plan = fj.solve(problem)
    assert max(stationarity_residuals(problem, plan)) < 1e-6


@few
@given(any_problem, st.integers(0, 2**32 - 1))
def test_no_point_near_the_plan_or_far_from_it_lies_below_the_bound(problem, seed):
    plan = fj.solve(problem)
    generator = np.random.default_rng(seed)
    low, high = problem.sparsity
    for spread in (1e-6, 1e-3, 1e-1, 1.0, 10.0):
        sparsity = np.clip(plan.sparsity * np.exp(spread * generator.standard_normal(len(plan.sparsity))), low, high)
        for local_steps in problem.local_steps:
            energy = reference.energy(problem, local_steps, sparsity.tolist())
            assert plan.lower_bound_joules <= energy * (1 + ROUNDING)


@few
@given(strategies.problems())
def test_the_planned_h_is_the_best_of_those_planned_one_by_one(problem):
    plan = fj.solve(problem)
    one_by_one = [
        fj.solve(strategies.changed(problem, local_steps=(steps,))).energy_joules for steps in problem.local_steps
    ]
    assert plan.energy_joules == pytest.approx(min(one_by_one), rel=2 * CERTIFIED)


@many
@given(any_problem)
def test_the_plan_obeys_its_limits(problem):
    plan = fj.solve(problem)
    low, high = problem.sparsity
    assert plan.local_steps in problem.local_steps
    assert plan.sparsity.shape == (len(problem.fleet),)
    assert np.all((plan.sparsity >= low) & (plan.sparsity <= high))
    assert (plan.scheme, plan.solver) == ("flexible", "pareto")


# ---- what a plan reports ----


@many
@given(any_problem | strategies.problems(timed=True))
def test_a_plan_reports_the_literal_objective(problem):
    plan = fj.solve(problem)
    steps, sparsity = plan.local_steps, plan.sparsity.tolist()
    rounds = reference.rounds(problem, steps, sparsity)
    radio = math.fsum(reference.device_radio_joules(problem, m, delta) for m, delta in enumerate(sparsity))
    compute = steps * math.fsum(problem.fleet.joules_per_step)
    assert plan.rounds == pytest.approx(rounds, rel=ROUNDING)
    assert plan.radio_joules == pytest.approx(rounds * radio, rel=ROUNDING)
    assert plan.compute_joules == pytest.approx(rounds * compute, rel=ROUNDING)
    assert plan.energy_joules == pytest.approx(reference.energy(problem, steps, sparsity), rel=ROUNDING)
    assert plan.energy_joules == pytest.approx(plan.radio_joules + plan.compute_joules, rel=ROUNDING)


@few
@given(any_problem, st.data())
def test_the_costs_of_any_point_are_the_literal_objective(problem, data):
    low, high = problem.sparsity
    steps = data.draw(st.sampled_from(problem.local_steps))
    sparsity = data.draw(strategies.arrays(st.floats(low, high), len(problem.fleet)))
    costs = problem.costs(steps, sparsity)
    assert costs.rounds == pytest.approx(reference.rounds(problem, steps, sparsity.tolist()), rel=ROUNDING)
    assert costs.energy_joules == pytest.approx(reference.energy(problem, steps, sparsity.tolist()), rel=ROUNDING)
    assert costs.radio_joules + costs.compute_joules == pytest.approx(costs.energy_joules, rel=ROUNDING)


@few
@given(strategies.problems(timed=True))
def test_a_round_lasts_as_long_as_its_slowest_device(problem):
    plan = fj.solve(problem)
    slowest = max(
        reference.device_seconds(problem, m, plan.local_steps, delta) for m, delta in enumerate(plan.sparsity)
    )
    assert plan.seconds == pytest.approx(plan.rounds * slowest, rel=ROUNDING)


@pytest.mark.parametrize("known", [{}, {"seconds_per_bit": 1e-8}, {"seconds_per_step": 1e-2}])
def test_the_seconds_are_unknown_while_a_time_is(known):
    fleet = fj.Fleet(joules_per_bit=[1e-9, 2e-9], joules_per_step=1e-3, **known)
    assert fj.solve(paper_problem(fleet=fleet)).seconds is None


@few
@given(any_problem)
def test_kept_entries_are_the_rounded_share_and_at_least_one(problem):
    plan = fj.solve(problem)
    for parameters in (1, 7, problem.parameters):
        kept = plan.kept_entries(parameters)
        assert kept.dtype == np.int64
        assert kept.tolist() == [max(1, round(parameters / delta)) for delta in plan.sparsity.tolist()]


def test_a_sparsity_limit_above_the_parameters_is_lowered_to_them_with_a_warning():
    with pytest.warns(fj.FewJoulesWarning):
        lowered = paper_problem(parameters=500)
    plan = fj.solve(lowered)
    assert_same_plan(fj.solve(paper_problem(parameters=500, sparsity=(4.4817, 500.0))), plan)
    assert fj.schemes.greedy(lowered).sparsity.max() == 500.0


# ---- invariances ----


@few
@given(any_problem, st.integers(-60, 60))
def test_dearer_joules_everywhere_scale_the_energy_and_leave_the_plan(problem, exponent):
    factor, fleet = 2.0**exponent, problem.fleet
    scaled = strategies.with_costs(
        problem,
        joules_per_bit=factor * fleet.joules_per_bit,
        joules_per_step=factor * fleet.joules_per_step,
        message_joules=factor * fleet.message_joules,
    )
    plan, scaled_plan = fj.solve(problem), fj.solve(scaled)
    assert scaled_plan.energy_joules == pytest.approx(factor * plan.energy_joules, rel=2 * CERTIFIED)
    if scaled_plan.local_steps == plan.local_steps:
        np.testing.assert_allclose(scaled_plan.sparsity, plan.sparsity, rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-9, 0.3, 7.0, 1e9])
def test_the_unit_of_energy_does_not_move_the_plan_of_the_paper(factor):
    problem = paper_problem()
    fleet = problem.fleet
    scaled = strategies.with_costs(
        problem,
        joules_per_bit=factor * fleet.joules_per_bit,
        joules_per_step=factor * fleet.joules_per_step,
    )
    plan, scaled_plan = fj.solve(problem), fj.solve(scaled)
    assert scaled_plan.local_steps == plan.local_steps
    np.testing.assert_allclose(scaled_plan.sparsity, plan.sparsity, rtol=1e-6)


@few
@given(any_problem, st.randoms(use_true_random=False))
def test_permuting_the_devices_permutes_the_sparsity(problem, random):
    order = list(range(len(problem.fleet)))
    random.shuffle(order)
    permuted = strategies.changed(problem, fleet=strategies.selected(problem.fleet, order))
    plan, permuted_plan = fj.solve(problem), fj.solve(permuted)
    assert permuted_plan.energy_joules == pytest.approx(plan.energy_joules, rel=2 * CERTIFIED)
    if permuted_plan.local_steps == plan.local_steps:
        np.testing.assert_allclose(permuted_plan.sparsity, plan.sparsity[order], rtol=1e-6)


@few
@given(strategies.problems(max_devices=3))
def test_identical_devices_get_the_same_sparsity(problem):
    twice = [*range(len(problem.fleet))] * 2
    doubled = strategies.changed(problem, fleet=strategies.selected(problem.fleet, twice))
    first, second = np.split(fj.solve(doubled).sparsity, 2)
    np.testing.assert_allclose(first, second, rtol=ROUNDING)


def test_a_count_in_a_scenario_is_the_same_as_repeated_devices(tmp_path):
    head = """
        [model]
        parameters = 269722
        [rounds]
        kind = "paper"
        alpha = 1e-4
        beta = 100.0
        [limits]
        sparsity = {min = 4.4817, max = 1000.0}
        local_steps = {min = 1, max = 50}
        [[device]]
        joules_per_bit = 1e-8
        joules_per_step = 2e-3
        """
    device = """
        [[device]]
        joules_per_bit = 2e-10
        joules_per_step = 1e-3
        """
    (tmp_path / "counted.toml").write_text(head + device + "count = 2\n")
    (tmp_path / "repeated.toml").write_text(head + device + device)
    counted = fj.solve(fj.Scenario.from_toml(tmp_path / "counted.toml").problem())
    repeated = fj.solve(fj.Scenario.from_toml(tmp_path / "repeated.toml").problem())
    assert counted.sparsity.size == 3
    assert_same_plan(repeated, counted)


# ---- monotonicity ----


@many
@given(strategies.problems(), st.data())
def test_a_dearer_bit_never_raises_the_bits_a_device_sends_in_the_whole_training(problem, data):
    m = data.draw(st.integers(0, len(problem.fleet) - 1))
    factor = data.draw(strategies.magnitudes(0.05, 3))
    joules_per_bit = problem.fleet.joules_per_bit.copy()
    joules_per_bit[m] *= factor
    plan, dearer = fj.solve(problem), fj.solve(strategies.with_costs(problem, joules_per_bit=joules_per_bit))
    rise = joules_per_bit[m] - problem.fleet.joules_per_bit[m]
    ridge = CERTIFIED * (plan.energy_joules + dearer.energy_joules) / rise
    assert total_bits(problem, dearer, m) <= total_bits(problem, plan, m) * (1 + 1e-6) + ridge


@many
@given(any_problem, st.sampled_from(["joules_per_bit", "joules_per_step", "message_joules"]), st.data())
def test_a_dearer_cost_never_lowers_the_energy_and_raises_it_at_most_in_proportion(problem, name, data):
    m = data.draw(st.integers(0, len(problem.fleet) - 1))
    factor = data.draw(strategies.magnitudes(0.01, 3))
    costs = getattr(problem.fleet, name).copy()
    costs[m] *= factor
    plan, dearer = fj.solve(problem), fj.solve(strategies.with_costs(problem, **{name: costs}))
    assert dearer.energy_joules >= plan.energy_joules * (1 - 2 * CERTIFIED)
    assert dearer.energy_joules <= plan.energy_joules * factor * (1 + 2 * CERTIFIED)


@few
@given(strategies.problems())
def test_wider_sparsity_limits_never_raise_the_energy(problem):
    low, high = problem.sparsity
    wider = strategies.changed(problem, sparsity=(max(1.0, low / 3), min(3 * high, float(problem.parameters))))
    assert fj.solve(wider).energy_joules <= fj.solve(problem).energy_joules * (1 + 2 * CERTIFIED)


@few
@given(strategies.problems(), st.sets(st.integers(1, 80), max_size=5))
def test_more_choices_of_h_never_raise_the_energy(problem, more):
    wider = strategies.changed(problem, local_steps=sorted({*problem.local_steps, *more}))
    assert fj.solve(wider).energy_joules <= fj.solve(problem).energy_joules * (1 + 2 * CERTIFIED)


# ---- the paper's own solver ----


@few
@given(any_problem)
def test_benders_obeys_the_limits_and_never_beats_the_certificate(problem):
    plan = fj.solve(problem, solver="benders")
    low, high = problem.sparsity
    assert plan.solver == "benders"
    assert plan.local_steps in problem.local_steps
    assert np.all((plan.sparsity >= low) & (plan.sparsity <= high))
    literal = reference.energy(problem, plan.local_steps, plan.sparsity.tolist())
    assert plan.energy_joules == pytest.approx(literal, rel=ROUNDING)
    assert plan.energy_joules >= fj.solve(problem).lower_bound_joules * (1 - ROUNDING)


@few
@given(any_problem)
def test_no_repaired_benders_beats_the_certificate(problem):
    bound = fj.solve(problem).lower_bound_joules * (1 - ROUNDING)
    for repairs in (*(frozenset({name}) for name in benders.REPAIRS), frozenset(benders.REPAIRS)):
        plan = benders.solve(problem, repairs=repairs)
        assert reference.energy(problem, plan.local_steps, plan.sparsity.tolist()) >= bound


# ---- schemes ----


@few
@given(strategies.problems() | strategies.extreme_problems())
def test_unified_is_the_best_plan_with_one_sparsity_for_all(problem):
    plan, found = fj.schemes.unified(problem), reference.best_unified(problem)
    assert np.ptp(plan.sparsity) == 0.0
    assert plan.energy_joules == pytest.approx(found.energy_joules, rel=CERTIFIED)
    if plan.lower_bound_joules is not None:
        assert plan.lower_bound_joules <= found.energy_joules * (1 + ROUNDING)


@few
@given(any_problem)
def test_greedy_takes_the_smallest_h_and_the_largest_sparsity_and_proves_nothing(problem):
    plan = fj.schemes.greedy(problem)
    assert plan.local_steps == min(problem.local_steps)
    assert np.all(plan.sparsity == problem.sparsity[1])
    assert plan.lower_bound_joules is None
    assert plan.relative_gap is None


@few
@given(any_problem)
def test_synchronous_is_the_best_plan_with_one_local_step_even_outside_the_limits(problem):
    plan = fj.schemes.synchronous(problem)
    assert plan.local_steps == 1
    found = reference.best_for_local_steps(problem, 1)
    assert plan.energy_joules == pytest.approx(found.energy_joules, rel=CERTIFIED)
    if plan.lower_bound_joules is not None:
        assert plan.lower_bound_joules <= found.energy_joules * (1 + ROUNDING)


@few
@given(any_problem)
def test_dense_sends_everything_after_every_step_whatever_the_limits(problem):
    plan = fj.schemes.dense(problem)
    ones = [1.0] * len(problem.fleet)
    assert (plan.local_steps, plan.sparsity.tolist()) == (1, ones)
    assert plan.energy_joules == pytest.approx(reference.energy(problem, 1, ones), rel=ROUNDING)


@few
@given(any_problem)
def test_fedavg_sends_everything_after_the_best_h_whatever_the_sparsity_limits(problem):
    plan = fj.schemes.fedavg(problem)
    ones = [1.0] * len(problem.fleet)
    assert plan.sparsity.tolist() == ones
    assert plan.local_steps in problem.local_steps
    least = min(reference.energy(problem, steps, ones) for steps in problem.local_steps)
    assert plan.energy_joules == pytest.approx(least, rel=ROUNDING)


@few
@given(any_problem)
def test_no_scheme_within_the_same_limits_beats_flexible(problem):
    low, high = problem.sparsity
    flexible = fj.schemes.flexible(problem)
    compared = 0
    for scheme in fj.schemes.SCHEMES.values():
        plan = scheme(problem)
        within = np.all((plan.sparsity >= low) & (plan.sparsity <= high))
        if within and plan.local_steps in problem.local_steps:
            compared += 1
            assert flexible.energy_joules <= plan.energy_joules * (1 + CERTIFIED)
    assert compared >= 3


@few
@given(strategies.problems(sparsity=st.just((1.0, 100.0)), local_steps=st.just(range(1, 21))))
def test_with_room_for_all_of_them_flexible_beats_or_equals_every_scheme(problem):
    flexible = fj.schemes.flexible(problem)
    energies = {name: scheme(problem).energy_joules for name, scheme in fj.schemes.SCHEMES.items()}
    assert set(energies) >= {"flexible", "unified", "greedy", "synchronous", "dense", "fedavg"}
    assert flexible.energy_joules <= min(energies.values()) * (1 + CERTIFIED)


@few
@given(strategies.problems())
def test_every_scheme_names_itself_and_reports_the_literal_objective(problem):
    for name, scheme in fj.schemes.SCHEMES.items():
        plan = scheme(problem)
        assert plan.scheme == name
        literal = reference.energy(problem, plan.local_steps, plan.sparsity.tolist())
        assert plan.energy_joules == pytest.approx(literal, rel=ROUNDING)
        assert plan.energy_joules == pytest.approx(plan.radio_joules + plan.compute_joules, rel=ROUNDING)


@few
@given(strategies.problems(min_devices=2))
def test_devices_with_unlike_costs_gain_from_unlike_sparsities(problem):
    flexible, unified = fj.solve(problem), fj.schemes.unified(problem)
    assume(np.ptp(flexible.sparsity) > 0.1 * flexible.sparsity.min())
    assert flexible.energy_joules < unified.energy_joules
