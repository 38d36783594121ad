"""The closed form against numerical minimisation, the Lambert function and the definition of a tangent."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import lambertw

from fewjoules.planner import frontier as frontier_module
from fewjoules.planner.frontier import Frontier, invert_message_bits, lambert_root

LN2 = math.log(2.0)
exponents = st.floats(0.05, 6.0)
value_bits = st.integers(2, 64)


def device_objective(x, cost, weight, exponent, bits):
    return cost * (x / LN2 + bits + 1) * np.exp(-x) + weight * np.exp(exponent * x)


def one_device(cost: float, exponent: float, bits: int, upper: float = 1e6) -> Frontier:
    return Frontier(np.array([cost]), parameters=1, entry_bits=bits + 1, exponent=exponent, lower=1.0, upper=upper)


@settings(deadline=None)
@given(exponents, value_bits, st.floats(-40, 40), st.floats(-12, 12))
def test_sparsity_minimises_the_weighted_sum(exponent, bits, log_multiplier, log10_cost):
    cost = 10.0**log10_cost
    delta = float(one_device(cost, exponent, bits).sparsity(log_multiplier)[0])
    weight = math.exp(log_multiplier)

    def value(x):
        return device_objective(x, cost, weight, exponent, bits)

    grid = np.linspace(0.0, math.log(1e6), 2001)
    best = grid[np.argmin(value(grid))]
    refined = minimize_scalar(value, bounds=(max(0.0, best - 0.01), min(grid[-1], best + 0.01)), method="bounded")
    least = min(refined.fun, value(grid).min())
    assert value(math.log(delta)) <= least * (1 + 1e-12)


@settings(deadline=None)
@given(st.floats(1.2, 7.0), st.floats(0.0, 250.0))
def test_the_root_is_the_lower_branch_of_lambert_and_the_upper_branch_is_below_it(n, excess):
    t = 1.0 + math.log(n) + 0.2 + excess
    y = float(lambert_root(np.array([t]), n, 1.0 / n + 1e-3)[0])
    argument = -n * math.exp(-t)
    assume(argument < -1e-290)
    lower, upper = (float(-lambertw(argument, branch).real / n) for branch in (-1, 0))
    assert y == pytest.approx(lower, rel=1e-10)
    assert upper < 1.0 / n < lower


@settings(deadline=None)
@given(exponents, value_bits, st.floats(-20, 20))
def test_the_other_branch_of_lambert_is_a_maximum_below_sparsity_one(exponent, bits, log_weight):
    """Slip 6 of the paper: most libraries return this branch by default."""
    n, B = exponent + 1.0, 1.0 - (bits + 1) * LN2
    argument = -n * exponent * math.exp(log_weight + n * B) * LN2
    assume(-math.exp(-1.0) < argument < -1e-280)
    x = B - float(lambertw(argument, 0).real) / n
    assert x < 0.0
    here, left, right = (device_objective(x + h, 1.0, math.exp(log_weight), exponent, bits) for h in (0, -1e-3, 1e-3))
    assert here >= max(left, right) - 1e-9 * abs(here)


def test_a_dear_multiplier_leaves_no_stationary_point_and_the_lower_bound_is_best():
    """The argument of Lambert falls below -1/e: the function only increases."""
    assert one_device(1e-6, 2.0, 32).sparsity(200.0).tolist() == [1.0]


@given(st.floats(1.0, 1e12), st.integers(2, 64))
def test_inverting_the_bits_gives_back_the_sparsity(delta, bits):
    per_parameter = np.array([(math.log2(delta) + bits + 1) / delta])
    assert float(np.exp(invert_message_bits(per_parameter, bits + 1, 1.0))[0]) == pytest.approx(delta, rel=1e-11)


def random_frontier(seed: int, devices: int = 7, **changes) -> Frontier:
    rng = np.random.default_rng(seed)
    settings_ = {"parameters": 1000, "entry_bits": 33.0, "exponent": 2.0, "lower": 2.0, "upper": 400.0} | changes
    return Frontier(10.0 ** rng.uniform(-12, 0, devices), **settings_)


@settings(deadline=None)
@given(st.integers(0, 10**6), exponents)
def test_the_frontier_is_convex_and_its_tangents_lie_below_it(seed, exponent):
    frontier = random_frontier(seed, exponent=exponent)
    low, high = frontier.log_multiplier_range
    points = frontier.points(np.linspace(high, low, 40))
    s, f, mu = points.mean_power, points.radio_joules, points.multiplier
    assert np.all(np.diff(s) >= -1e-12 * s[:-1])
    assert np.all(np.diff(f) <= 1e-12 * f[:-1])
    tangents = f[:, None] - mu[:, None] * (s[None, :] - s[:, None])
    assert np.all(tangents <= f[None, :] * (1 + 1e-10) + 1e-12 * f[0])


def test_points_are_the_sums_over_the_sparsities():
    frontier = random_frontier(5)
    costs = 10.0 ** np.random.default_rng(5).uniform(-12, 0, 7)
    low, high = frontier.log_multiplier_range
    log = 0.4 * low + 0.6 * high
    delta = frontier.sparsity(log)
    point = frontier.points(log)
    radio = np.sum(costs * 1000 / delta * (np.log2(delta) + 33))
    assert float(point.mean_power[0]) == pytest.approx(np.mean(delta**2), rel=1e-13)
    assert float(point.radio_joules[0]) == pytest.approx(radio, rel=1e-12)


def test_the_ends_of_the_multiplier_range_put_all_devices_at_a_bound():
    frontier = random_frontier(2)
    low, high = frontier.log_multiplier_range
    np.testing.assert_allclose(frontier.sparsity(high), 2.0, rtol=1e-12)
    np.testing.assert_allclose(frontier.sparsity(low), 400.0, rtol=1e-12)
    assert np.ptp(frontier.sparsity((low + high) / 2)) > 0.0


def test_many_devices_in_chunks_and_threads_give_the_same_sums(monkeypatch):
    costs = np.random.default_rng(1).lognormal(size=3000)
    whole = Frontier(costs, parameters=10, entry_bits=33.0, exponent=0.7, lower=1.0, upper=10.0)
    logs = np.linspace(*whole.log_multiplier_range, 5)
    expected, sparsity = whole.points(logs), whole.sparsity(logs[2])
    for chunk, threaded in ((128, True), (256, False)):
        monkeypatch.setattr(frontier_module, "_CHUNK", chunk)
        parts = Frontier(costs, parameters=10, entry_bits=33.0, exponent=0.7, lower=1.0, upper=10.0)
        assert (parts._pool is not None) == threaded
        np.testing.assert_allclose(parts.points(logs).mean_power, expected.mean_power, rtol=1e-13)
        np.testing.assert_allclose(parts.points(logs).radio_joules, expected.radio_joules, rtol=1e-13)
        np.testing.assert_array_equal(parts.sparsity(logs[2]), sparsity)


def test_the_order_of_devices_does_not_change_a_bit():
    costs = np.random.default_rng(1).lognormal(size=50)
    shared = {"parameters": 10, "entry_bits": 33.0, "exponent": 2.0, "lower": 1.0, "upper": 10.0}
    forward, backward = Frontier(costs, **shared), Frontier(costs[::-1], **shared)
    assert forward.points(0.3).radio_joules == backward.points(0.3).radio_joules
    assert forward.sparsity(0.3).tolist() == backward.sparsity(0.3)[::-1].tolist()


def test_a_device_that_sends_for_free_stays_at_the_lower_bound():
    frontier = Frontier(np.array([0.0, 1.0]), parameters=10, entry_bits=33.0, exponent=2.0, lower=3.0, upper=9.0)
    low, _ = frontier.log_multiplier_range
    assert frontier.sparsity(low).tolist() == [3.0, pytest.approx(9.0, rel=1e-12)]
