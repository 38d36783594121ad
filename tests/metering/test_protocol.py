"""The protocol on a made-up machine with its own clock: the measured costs are the true ones, no window is missing."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fewjoules.errors import InvalidInputError
from fewjoules.metering.costs import Point, costs_of
from fewjoules.metering.estimate import Estimate, mean_of
from fewjoules.metering.fit import Coefficient, fit_costs
from fewjoules.metering.protocol import COOL_DOWN, IDLE, TRIAL, WARM_UP, Bench, Protocol, Trials


class Machine:
    """A clock, and a meter that counts idle watts all the time and more while work is done."""

    kind, described, resolution_seconds = "made up", "a made-up machine", 0.05

    def __init__(self, idle_watts=10.0, piece_joules=0.5, piece_seconds=0.01, noise=0.0, settle=0, seed=0):
        self.now, self.spent, self.pieces = 0.0, 0.0, 0
        self.idle_watts, self.piece_joules, self.piece_seconds = idle_watts, piece_joules, piece_seconds
        self.noise, self.settle, self.draws = noise, settle, np.random.default_rng(seed)

    def sleep(self, seconds):
        self.now += seconds
        self.spent += self.idle_watts * seconds

    def work(self, times):
        factor = 1.0 + self.noise * self.draws.standard_normal()
        slow = 1.0 + max(0.0, self.settle - self.pieces)  # the first pieces are slower
        self.pieces += times
        self.sleep(times * self.piece_seconds * factor * slow)
        self.spent += times * self.piece_joules * factor

    def joules(self):
        return self.spent

    def close(self):
        pass


def bench_of(machine, **protocol):
    chosen = Protocol(**{"limit_seconds": 30.0} | protocol)
    return Bench(machine, chosen, clock=lambda: machine.now, sleep=machine.sleep)


@given(st.floats(0.0, 100.0), st.floats(1e-4, 10.0), st.floats(1e-4, 0.5), st.integers(1, 50))
def test_idle_power_and_the_cost_of_a_piece_are_told_apart(watts, joules, seconds, pieces):
    machine = Machine(watts, joules, seconds)
    bench = bench_of(machine)
    idle = bench.idle_watts()
    trials = bench.measure("x", machine.work, pieces=pieces, idle=idle)
    assert idle.mean == pytest.approx(watts, abs=1e-9)
    assert trials.seconds_estimate().mean == pytest.approx(seconds / pieces)
    assert trials.joules_estimate(idle).mean == pytest.approx(joules / pieces, rel=1e-6)
    assert trials.joules_estimate(None).mean == pytest.approx((joules + watts * seconds) / pieces)
    assert (trials.reached, trials.steady) == (True, True)


def test_all_windows_together_are_the_whole_time_and_all_joules():
    machine = Machine(noise=0.03)
    bench = bench_of(machine)
    with bench.preparing("data"):
        machine.work(7)
    bench.measure("x", machine.work, pieces=1, idle=bench.idle_watts())
    assert math.fsum(window.seconds for window in bench.windows) == pytest.approx(machine.now)
    assert math.fsum(window.joules for window in bench.windows) == pytest.approx(machine.spent)
    kinds = [window.kind for window in bench.windows]
    assert kinds.index(COOL_DOWN) < kinds.index(IDLE) < kinds.index(WARM_UP) < kinds.index(TRIAL)


def test_windows_are_long_enough_for_the_meter():
    machine = Machine()
    machine.resolution_seconds = 0.5
    bench = bench_of(machine)
    bench.measure("x", machine.work, pieces=1, idle=bench.idle_watts())
    assert all(window.seconds >= 9.99 for window in bench.windows if window.kind in (IDLE, TRIAL))


def test_work_is_warmed_up_until_it_takes_equally_long():
    machine = Machine(settle=40)
    trials = bench_of(machine).measure("x", machine.work, pieces=1)
    assert trials.steady
    assert trials.seconds_estimate().mean == pytest.approx(machine.piece_seconds)


@pytest.mark.parametrize(("noise", "least", "most"), [(0.001, 5, 5), (0.1, 20, 1000)])
def test_trials_go_on_until_the_interval_is_narrow(noise, least, most):
    machine = Machine(noise=noise)
    trials = bench_of(machine, limit_seconds=1e6).measure("x", machine.work, pieces=1)
    assert least <= len(trials.seconds) <= most
    assert trials.reached
    assert trials.seconds_estimate().relative <= 0.02


def test_a_limit_of_time_ends_the_trials_and_is_not_hidden():
    machine = Machine(noise=0.5)
    trials = bench_of(machine, limit_seconds=10.0).measure("x", machine.work, pieces=1)
    assert not trials.reached
    assert 5 <= len(trials.seconds) <= 20
    assert trials.seconds_estimate().relative > 0.02


def test_without_a_meter_seconds_are_measured():
    machine = Machine()
    bench = Bench(None, Protocol(), clock=lambda: machine.now, sleep=machine.sleep)
    trials = bench.measure("x", machine.work, pieces=4, idle=bench.idle_watts())
    assert trials.joules is None
    assert trials.seconds_estimate().mean == pytest.approx(machine.piece_seconds / 4)
    assert COOL_DOWN not in {window.kind for window in bench.windows}


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30))
def test_an_interval_is_that_of_student(values):
    found = mean_of(values)
    error = stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=error) if error else (0.0, 0.0)
    assert 2 * found.half_width == pytest.approx(high - low, rel=1e-9, abs=1e-9)


def test_the_interval_of_idle_power_is_part_of_that_of_the_joules():
    trials = Trials(seconds=(2.0, 2.0), joules=(30.0, 30.0), steady=True, reached=True)
    found = trials.joules_estimate(Estimate(10.0, 0.5, 5))
    assert (found.mean, found.half_width) == (10.0, pytest.approx(1.0))


# --- fits

COST = st.floats(1e-6, 1e3)


@given(COST, COST, st.lists(st.integers(1, 4096), min_size=2, max_size=8, unique=True))
def test_a_fit_recovers_the_constants_of_a_straight_line(fixed, per_sample, sizes):
    terms = [(1.0, float(size)) for size in sizes]
    costs = [Estimate(fixed + per_sample * size, 0.0, 5) for size in sizes]
    found = fit_costs(terms, costs)
    for coefficient, true in zip(found.coefficients, (fixed, per_sample), strict=True):
        scale = max(fixed, per_sample * max(sizes))
        assert coefficient.value == pytest.approx(true, rel=1e-4, abs=1e-7 * scale)
    assert found.largest_residual < 1e-6


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_no_fitted_cost_is_negative_and_intervals_hold_their_value(seed):
    draws = np.random.default_rng(seed)
    sizes = np.array([8.0, 16.0, 32.0, 64.0])
    values = draws.normal(0.0, 1.0) * 5.0 + draws.normal(0.0, 0.1) * sizes + draws.normal(0.0, 1.0, 4)
    found = fit_costs(np.column_stack([np.ones(4), sizes]), [Estimate(float(v), 0.5, 5) for v in values])
    for coefficient in found.coefficients:
        assert 0.0 <= coefficient.low <= coefficient.value <= coefficient.high


def test_intervals_of_a_fit_hold_the_truth_about_as_often_as_they_say():
    draws = np.random.default_rng(1)
    sizes, inside = np.array([8.0, 16.0, 32.0, 64.0]), 0
    for _ in range(400):
        true = 3.0 + 0.2 * sizes
        costs = [Estimate(float(value), 1.96 * 0.01 * float(value), 5) for value in draws.normal(true, 0.01 * true)]
        fixed, per_sample = fit_costs(np.column_stack([np.ones(4), sizes]), costs).coefficients
        inside += (fixed.low <= 3.0 <= fixed.high) + (per_sample.low <= 0.2 <= per_sample.high)
    assert inside / 800 > 0.93


def test_a_bent_line_has_wider_intervals():
    sizes = np.array([8.0, 16.0, 32.0, 64.0])
    terms = np.column_stack([np.ones(4), sizes])
    straight, bent = (
        fit_costs(terms, [Estimate(float(v), 0.001, 5) for v in values]) for values in (1 + sizes, 1 + sizes**1.5)
    )
    width = lambda fit: fit.coefficients[1].high / fit.coefficients[1].low  # noqa: E731
    assert width(bent) > 2.0 * width(straight)
    assert bent.largest_residual > 0.05


def test_equal_sizes_cannot_tell_two_costs_apart():
    with pytest.raises(InvalidInputError, match=r"a fit of 2 costs needs as many different measurements, got 1"):
        fit_costs([(1.0, 8.0), (1.0, 8.0)], [Estimate(1.0, 0.1, 5)] * 2)


def test_costs_that_were_measured_apart_add_up():
    total = Coefficient(3.0, 0.0, 7.0) + Coefficient(5.0, 1.0, 8.0)
    assert (total.value, total.low, total.high) == (8.0, 3.0, 13.0)


def test_costs_have_joules_with_and_without_idle_power():
    trials = [Trials((float(size),), (3.0 * size + 1.0,), True, True) for size in (1, 2)]
    trials = [Trials(one.seconds * 2, one.joules * 2, True, True) for one in trials]
    points = [Point(f"{size}", (1.0, float(size)), one) for size, one in zip((1, 2), trials, strict=True)]
    costs = costs_of(points, Estimate(2.0, 0.0, 5))
    assert [round(one.value, 6) for one in costs.joules.coefficients] == [1.0, 1.0]
    assert [round(one.value, 6) for one in costs.gross_joules.coefficients] == [1.0, 3.0]
    assert [round(one.value, 6) for one in costs.seconds.coefficients] == [0.0, 1.0]
    assert costs_of(points, None).joules is None
