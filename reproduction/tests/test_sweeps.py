import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.convergence.rounds import PaperRounds
from fewjoules_reproduction import readings, sweeps
from fewjoules_reproduction.sensitivity import bound_like, sensitivity
from fewjoules_reproduction.sweeps import base_problem, with_costs, with_devices, with_heterogeneity

FIGURES = ("fig1a", "fig1b", "fig1c", "fig1d")
factors = st.integers(-300, 300).map(lambda part: 10.0 ** (part / 100))
levels = st.integers(0, 14)


@pytest.mark.parametrize("figure", FIGURES)
def test_the_base_point_is_the_one_that_the_introduction_describes(figure):
    problem = base_problem(figure)
    bit, step = problem.fleet.joules_per_bit, problem.fleet.joules_per_step
    assert problem.devices == 12
    assert problem.sparsity == pytest.approx((math.exp(1.5), 1000.0), rel=1e-12)
    assert list(problem.local_steps) == list(range(1, 51))
    assert 1.0 / np.mean(1.0 / bit) == pytest.approx(0.2 / 1e9, rel=1e-4)  # 0.2 W at 1 Gbit/s on the mean bandwidth
    assert step == pytest.approx(0.2 / 0.16 * 269_722 * 32 * 2e-10, rel=1e-6)
    assert np.all(problem.fleet.message_joules == 0.0)


@pytest.mark.parametrize("figure", ["fig1a", "fig1c", "fig1d"])
def test_the_other_figures_are_the_second_at_level_ten(figure):
    spread = with_heterogeneity(base_problem("fig1b"), 10)
    assert base_problem(figure).fleet.joules_per_bit == pytest.approx(spread.fleet.joules_per_bit, rel=1e-12)


def test_an_unknown_figure_is_refused():
    with pytest.raises(fj.InvalidInputError, match=r"fig1a, fig1b, fig1c, fig1d, got 'fig9'"):
        base_problem("fig9")


@pytest.mark.parametrize("devices", [0, 2, 13])
def test_devices_come_in_four_equal_groups(devices):
    with pytest.raises(fj.InvalidInputError, match="multiple of 4"):
        with_devices(base_problem("fig1a"), devices)


def test_more_devices_keep_the_groups():
    fleet = with_devices(base_problem("fig1a"), 20).fleet
    assert np.array_equal(fleet.joules_per_bit, np.repeat(base_problem("fig1a").fleet.joules_per_bit[::3], 5))


@given(levels, factors, factors)
@settings(max_examples=25, deadline=None)
def test_no_reading_is_cheaper_than_exact_flexible(level, bit, step):
    problem = with_heterogeneity(base_problem("fig1b"), level)
    problem = with_costs(problem, bit=2e-10 * bit, step=2e-3 * step)
    least = fj.solve(problem).energy_joules
    assert all(reading.plan(problem).energy_joules >= least * (1.0 - 1e-9) for reading in readings.READINGS)


@given(factors)
@settings(max_examples=10, deadline=None)
def test_equal_radios_leave_flexible_nothing_to_gain(factor):
    problem = with_costs(base_problem("fig1b"), bit=2e-10 * factor)
    assert fj.schemes.unified(problem).energy_joules == pytest.approx(fj.solve(problem).energy_joules, rel=1e-9)


@given(levels, factors)
@settings(max_examples=25, deadline=None)
def test_the_choices_depend_on_the_ratio_of_the_costs_alone(level, factor):
    problem = with_heterogeneity(base_problem("fig1b"), level)
    fleet = problem.fleet
    scaled = with_costs(problem, bit=factor * fleet.joules_per_bit.mean(), step=factor * fleet.joules_per_step.mean())
    plan, other = fj.solve(problem), fj.solve(scaled)
    assert other.local_steps == plan.local_steps
    assert other.sparsity == pytest.approx(plan.sparsity, rel=1e-6)
    assert other.energy_joules == pytest.approx(factor * plan.energy_joules, rel=1e-9)


def test_a_dearer_bit_is_a_cheaper_step():
    problem = base_problem("fig1d")
    dearer = sweeps.choices_by_radio_cost(problem, sweeps.BIT_COSTS[::6], ["pareto"])
    cheaper = sweeps.mirrored_choices(problem, dearer)
    assert cheaper["local_steps"] == dearer["local_steps"]
    assert len(set(dearer["local_steps"])) > 2
    assert cheaper.numbers("sparsity_1") == pytest.approx(dearer.numbers("sparsity_1"), rel=1e-6)
    assert set(cheaper["joules_per_bit"]) == {float(problem.fleet.joules_per_bit.mean())}


def small_problem():
    return with_devices(base_problem("fig1a").with_choices(local_steps=[1, 2, 7, 20]), 4)


def test_unified_is_the_best_of_a_fine_grid():
    problem = small_problem()
    grid = np.geomspace(*problem.sparsity, 4000)
    best = min(problem.costs(h, delta).energy_joules for h in problem.local_steps for delta in grid)
    plan = fj.schemes.unified(problem)
    assert plan.energy_joules <= best <= plan.energy_joules * (1.0 + 1e-6)


def test_the_second_greedy_plans_its_local_steps():
    problem = replace(small_problem(), rounds=PaperRounds(alpha=1e-9, beta=1e4))
    plan = readings.greedy_with_planned_steps(problem)
    costs = {h: problem.costs(h, 1000.0).energy_joules for h in problem.local_steps}
    assert plan.scheme == "greedy"
    assert np.all(plan.sparsity == 1000.0)
    assert plan.local_steps == min(costs, key=costs.__getitem__) != 1
    assert plan.energy_joules == pytest.approx(min(costs.values()), rel=1e-12)


def test_the_second_synchronous_keeps_the_sparsity_of_flexible():
    problem = small_problem()
    plan, flexible = readings.synchronous_with_kept_sparsity(problem), fj.solve(problem)
    sums = [
        cost * 269_722 / delta * (33 + math.log2(delta)) + 2.157776e-3
        for cost, delta in zip(problem.fleet.joules_per_bit, flexible.sparsity, strict=True)
    ]
    rounds = 1e-3 * np.sum(flexible.sparsity**2) + 1e4 / 2.0
    assert (plan.scheme, plan.local_steps) == ("synchronous", 1)
    assert np.array_equal(plan.sparsity, flexible.sparsity)
    assert plan.energy_joules == pytest.approx(rounds * sum(sums), rel=1e-12)


def test_where_algorithm_2_begins_decides_where_it_ends():
    problem = base_problem("fig1c")
    chosen = {name: choose(problem).local_steps for name, choose in readings.CHOOSERS.items()}
    assert chosen["benders"] == 1
    assert chosen["benders, largest H first"] > chosen["pareto"] > 1


def test_the_average_energy_turns_up_where_the_model_says():
    # at H = 1 and the smallest delta the average is proportional to alpha M delta^2 + beta / sqrt(M)
    turn = (1e4 / (2.0 * 1e-3 * math.exp(3.0))) ** (2.0 / 3.0)
    assert sweeps.cheapest_devices(base_problem("fig1a")) == pytest.approx(turn, abs=4)


def test_every_row_of_a_sweep_is_a_plan_of_its_problem():
    table = sweeps.average_energy_by_devices(base_problem("fig1a"), [8])
    row = table.where(scheme="synchronous", variant="pareto").rows()[0]
    plan = fj.schemes.synchronous(with_devices(base_problem("fig1a"), 8))
    assert len(table) == len(readings.READINGS)
    assert row["average_joules"] == plan.energy_joules / 8
    assert row["rounds"] == plan.rounds
    assert row["second_term_share"] == pytest.approx(1e4 / math.sqrt(8) / plan.rounds, rel=1e-12)


def test_the_bound_with_matching_constants_has_both_terms_of_the_paper():
    paper = PaperRounds(alpha=1e-3, beta=1e4)
    bound = bound_like(paper, 12)
    assert bound.rounds(1e12, 5, 12) == pytest.approx(paper.rounds(1e12, 5, 12), rel=1e-3)
    assert bound.rounds(0.0, 1, 12) == pytest.approx(paper.rounds(0.0, 1, 12), rel=1e-3)


def test_sensitivity_compares_each_reading_with_flexible():
    table = sensitivity(base_problem("fig1a"), [1.0, 1000.0], readings.WITHOUT_BENDERS)
    flexible = table.where(scheme="flexible")
    assert flexible.numbers("ratio") == pytest.approx(1.0, rel=1e-12)
    assert min(table.numbers("ratio")) >= 1.0 - 1e-9
    assert flexible.where(parameter="alpha")["falls"] == (1, 0)
    assert table.where(scheme="greedy", variant="pareto", parameter="alpha")["falls"] == (0, 0)
    assert set(table["parameter"]) == {"alpha", "step to bit cost", "largest sparsity", "largest H", "rounds"}


def test_sensitivity_to_alpha_needs_the_paper_s_rounds():
    problem = replace(base_problem("fig1a"), rounds=fj.PowerLawRounds(tau=1e3, c=1e-3, a=0.5, q=0.6))
    with pytest.raises(fj.InvalidInputError, match="kind paper to vary alpha, got PowerLawRounds"):
        sensitivity(problem)
