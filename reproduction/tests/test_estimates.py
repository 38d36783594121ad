"""Estimates against closed forms, finite differences and a literal transcription of [WANG19]."""

import copy
import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules_reproduction.estimates import (
    ClientGradients,
    Drift,
    adaptive_local_steps,
    estimate_constants,
    estimate_drift,
)


class Line(nn.Module):
    """One output, inputs @ w, in double precision."""

    def __init__(self, features=1):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(features, dtype=torch.float64))

    def forward(self, inputs):
        return inputs @ self.w


def half_square(outputs, targets):
    return 0.5 * (outputs - targets) ** 2


def quartic(outputs, targets):
    return (outputs - targets) ** 4


def doubles(values):
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def line_gradients(inputs, targets, parts, *, loss=half_square, seed=0):
    samples = Samples(doubles(inputs), doubles(targets))
    federation = Federation(samples, [np.asarray(part, dtype=np.int64) for part in parts])
    return ClientGradients(Line(samples.inputs.shape[1]), loss, federation, seed=seed)


def one_parameter(curvatures, optima):
    """Client c has the loss a_c / 2 (w - t_c)^2, twice over so that there is something to sample."""
    roots = np.repeat(np.sqrt(curvatures), 2)
    parts = np.arange(roots.size).reshape(-1, 2)
    return line_gradients(roots[:, None], roots * np.repeat(optima, 2), parts)


# --- Gradients


def test_loss_and_gradient_of_least_squares_are_the_normal_equations():
    rng = np.random.default_rng(0)
    inputs, targets, weights = rng.normal(size=(20, 3)), rng.normal(size=20), rng.normal(size=3)
    parts = [np.arange(0, 20, 2), np.arange(1, 20, 2)]
    gradients = line_gradients(inputs, targets, parts)
    for client, part in enumerate(parts):
        value, gradient = gradients.at(doubles(weights), client, 1000, 0)
        residual = inputs[part] @ weights - targets[part]
        assert value == pytest.approx(0.5 * np.mean(residual**2), rel=1e-12)
        np.testing.assert_allclose(gradient.numpy(), inputs[part].T @ residual / part.size, rtol=1e-12)


def small_network():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    rng = np.random.default_rng(1)
    samples = Samples(doubles(rng.normal(size=(9, 3))), torch.tensor(rng.integers(2, size=9)))
    return net, Federation(samples, [np.arange(9)])


def test_gradients_of_a_network_are_finite_differences_of_its_loss():
    net, federation = small_network()
    gradients = ClientGradients(net, cross_entropy, federation, seed=0)
    here = torch.cat([p.detach().reshape(-1) for p in net.parameters()]) + 0.1
    _, found = gradients.at(here, 0, 9, 0)
    step = 1e-5
    for i, slope in enumerate(found.tolist()):
        ahead, behind = here.clone(), here.clone()
        ahead[i] += step
        behind[i] -= step
        rise = gradients.at(ahead, 0, 9, 0)[0] - gradients.at(behind, 0, 9, 0)[0]
        assert slope == pytest.approx(rise / (2.0 * step), rel=1e-5, abs=1e-8)


def test_the_callers_model_stays_as_it_is():
    net, federation = small_network()
    before = copy.deepcopy(net.state_dict())
    gradients = ClientGradients(net, cross_entropy, federation, seed=0)
    gradients.at(torch.ones(26, dtype=torch.float64), 0, 9, 0)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


def test_parameters_that_are_not_trained_are_left_out():
    net, federation = small_network()
    net[0].requires_grad_(False)
    gradients = ClientGradients(net, cross_entropy, federation, seed=0)
    _, gradient = gradients.at(torch.ones(10, dtype=torch.float64), 0, 9, 0)
    assert gradient.shape == (10,)


def sampled(gradients, client, batch, draw):
    """Sample numbers of a batch where sample i has the target 2^i: the gradient at 0 is minus the mean of them."""
    _, gradient = gradients.at(doubles([0.0]), client, batch, draw)
    total = round(-float(gradient) * batch)
    return {i for i in range(40) if total >> i & 1}


def test_a_batch_is_of_distinct_samples_of_the_client_alone():
    parts = [np.arange(0, 20), np.arange(20, 40)]
    gradients = line_gradients(np.ones((40, 1)), 2.0 ** np.arange(40), parts)
    for client, part in enumerate(parts):
        for draw in range(10):
            numbers = sampled(gradients, client, 5, draw)
            assert len(numbers) == 5
            assert numbers <= set(part.tolist())


def test_the_draw_and_the_seed_say_which_samples():
    def batches(seed):
        gradients = line_gradients(np.ones((40, 1)), 2.0 ** np.arange(40), [np.arange(40)], seed=seed)
        return [sampled(gradients, 0, 10, draw) for draw in range(5)]

    assert batches(0) == batches(0)
    assert all(a != b for a, b in zip(batches(0), batches(1), strict=True))
    assert len({frozenset(batch) for batch in batches(0)}) == 5


def test_a_small_client_gives_all_it_has():
    gradients = line_gradients(np.ones((3, 1)), [1.0, 2.0, 6.0], [np.arange(3)])
    value, gradient = gradients.at(doubles([0.0]), 0, 100, 0)
    assert float(gradient) == pytest.approx(-3.0)
    assert value == pytest.approx((1.0 + 4.0 + 36.0) / 6.0)


# --- Drift


@given(
    st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(-3.0, 3.0)), min_size=1, max_size=5),
    st.floats(4.0, 6.0),
    st.floats(0.001, 0.1),
)
@settings(max_examples=40, deadline=None)
def test_drift_on_quadratics_is_exact(clients, w, rate):
    curvature, optimum = np.array(clients).T
    drift = estimate_drift(one_parameter(curvature, optimum), doubles([w]), rate, batch=2, draw=0)
    slopes = curvature * (w - optimum)
    assert drift.smoothness == pytest.approx(curvature.mean(), rel=1e-8)
    assert drift.lipschitz == pytest.approx(np.mean(slopes * np.abs(1.0 - rate * curvature / 2.0)), rel=1e-8)
    assert drift.divergence == pytest.approx(np.mean(np.abs(slopes - slopes.mean())), rel=1e-8, abs=1e-12)


def test_drift_of_several_parameters_uses_norms():
    inputs, targets = [[2.0, 0.0], [0.0, 4.0]], [0.0, 0.0]
    drift = estimate_drift(line_gradients(inputs, targets, [[0], [1]]), doubles([3.0, 1.0]), 0.01, batch=1, draw=0)
    first, second = np.array([12.0, 0.0]), np.array([0.0, 16.0])
    assert drift.smoothness == pytest.approx((4.0 + 16.0) / 2.0)
    assert drift.divergence == pytest.approx(np.linalg.norm(first - second) / 2.0)
    assert drift.lipschitz == pytest.approx((12.0 * (1.0 - 0.02) + 16.0 * (1.0 - 0.08)) / 2.0)


def test_a_client_at_its_optimum_neither_moves_nor_divides_by_zero():
    drift = estimate_drift(one_parameter([2.0, 2.0], [1.0, 3.0]), doubles([1.0]), 0.1, batch=2, draw=0)
    assert (drift.lipschitz, drift.smoothness, drift.divergence) == pytest.approx((4.0 * 0.9 / 2.0, 1.0, 2.0))


# --- Constants of Theorem 1


def balanced(curvature, optimum, spread, clients=3):
    """a/2 (w - t_i)^2 with half of the t_i above and half below: every sample's gradient is a s from the mean one."""
    root = math.sqrt(curvature)
    optima = np.tile([optimum - spread, optimum + spread], clients * 8)
    parts = np.arange(optima.size).reshape(clients, -1)
    return line_gradients(np.full((optima.size, 1), root), root * optima, parts)


def test_constants_of_a_quadratic_are_those_of_the_book():
    a, t, s, w = 3.0, 1.0, 0.5, 2.0
    found, squared = estimate_constants(balanced(a, t, s), doubles([w]), batch=1, learning_rate=0.01)
    slope = a * (w - t)
    assert squared == pytest.approx(slope**2)
    assert found.smoothness == pytest.approx(a)
    assert found.sigma == pytest.approx(a * s)
    assert found.gradient_bound == pytest.approx(math.hypot(a * s, slope))
    assert found.initial_gap == pytest.approx(0.5 * a * ((w - t) ** 2 + s**2))
    assert found.batch == 1.0


def test_sigma_is_of_single_samples_whatever_the_batch():
    rng = np.random.default_rng(3)
    targets = rng.normal(scale=2.0, size=30_000)
    gradients = line_gradients(np.ones((targets.size, 1)), targets, np.arange(targets.size).reshape(60, -1))
    for batch in (1, 4, 16):
        found, _ = estimate_constants(gradients, doubles([1.0]), batch=batch, learning_rate=0.1, points=1)
        assert found.sigma == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("points", [1, 3, 5])
@pytest.mark.parametrize("start", [2.0, -2.0])
def test_smoothness_is_the_largest_along_a_descent(start, points):
    gradients = line_gradients([[1.0], [1.0]], [0.0, 1.0], [[0], [1]], loss=quartic)

    def slope(w):
        return np.mean([4.0 * w**3, 4.0 * (w - 1.0) ** 3])

    rate, w, ratios = -0.02, start, []  # uphill, where it steepens, so that the largest is not the first
    for _ in range(points):
        ratios.append((slope(w - rate * slope(w)) - slope(w)) / (-rate * slope(w)))
        w -= rate * slope(w)
    assert np.all(np.diff(ratios) > 0.0)
    found, _ = estimate_constants(gradients, doubles([start]), batch=1, learning_rate=rate, points=points)
    assert found.smoothness == pytest.approx(max(ratios), rel=1e-9)
    down, _ = estimate_constants(gradients, doubles([start]), batch=1, learning_rate=-rate, points=points)
    first = (slope(start + rate * slope(start)) - slope(start)) / (rate * slope(start))
    assert down.smoothness == pytest.approx(first, rel=1e-9)


# --- Adaptive local steps


def wang_bound(tau, drift, learning_rate, c, b, budget, phi):
    """G(tau) as printed, with many digits."""
    with mpmath.workdps(60):
        eta, beta, delta, rho = (
            mpmath.mpf(x) for x in (learning_rate, drift.smoothness, drift.divergence, drift.lipschitz)
        )
        c, b, phi, left = mpmath.mpf(c), mpmath.mpf(b), mpmath.mpf(phi), mpmath.mpf(budget) - b - c
        h = delta / beta * ((eta * beta + 1) ** tau - 1) - eta * delta * tau if beta else mpmath.mpf(0)
        if tau == 1:
            h = mpmath.mpf(0)  # as it is in exact arithmetic
        first = (c * tau + b) / (2 * eta * phi * left * tau)
        root = (c * tau + b) ** 2 / (4 * eta**2 * phi**2 * left**2 * tau**2) + rho * h / (eta * phi * tau)
        return first + mpmath.sqrt(root) + rho * h


def choose(drift, **given):
    usual = {"learning_rate": 0.1, "step_joules": 1.0, "round_joules": 1.0, "budget_joules": 1e4}
    return adaptive_local_steps(drift, **usual | {"last": 10, "largest": 50} | given)


def positive(low, high):
    """Over orders of magnitude."""
    return st.floats(math.log10(low), math.log10(high)).map(lambda exponent: 10.0**exponent)


DRIFTS = st.builds(
    Drift,
    lipschitz=st.just(0.0) | positive(1e-3, 1e3),
    smoothness=st.just(0.0) | positive(1e-4, 1e4),
    divergence=st.just(0.0) | positive(1e-6, 1e3),
)


@given(
    DRIFTS,
    positive(1e-3, 1.0),
    positive(1e-6, 1e3),
    positive(1e-6, 1e6),
    positive(3.0, 1e6),
    st.integers(1, 12),
    st.integers(1, 60),
)
@settings(max_examples=200, deadline=None)
def test_no_allowed_h_has_a_smaller_bound_of_wang(drift, rate, c, b, rounds, last, largest):
    budget = rounds * (c + b)
    chosen = adaptive_local_steps(
        drift, learning_rate=rate, step_joules=c, round_joules=b, budget_joules=budget, last=last, largest=largest
    )
    allowed = range(1, min(10 * last, largest) + 1)
    assert chosen in allowed
    bounds = {tau: wang_bound(tau, drift, rate, c, b, budget, 0.025) for tau in allowed}
    assert bounds[chosen] <= min(bounds.values()) * (1 + 1e-9)


@pytest.mark.parametrize(("upload", "budget"), [(5.0, 9.0), (20.0, 31.5)])
def test_the_last_step_and_upload_are_kept_back_from_the_budget(upload, budget):
    drift = Drift(lipschitz=1.0, smoothness=2.0, divergence=0.3)

    def best(budget):
        return min(range(1, 51), key=lambda tau: wang_bound(tau, drift, 0.1, 1.0, upload, budget, 0.025))

    assert best(budget) not in (best(budget + upload), best(budget + 1.0)), "the example must tell them apart"
    assert choose(drift, round_joules=upload, budget_joules=budget) == best(budget)


def test_the_control_parameter_is_wangs_phi():
    drift = Drift(lipschitz=1.0, smoothness=2.0, divergence=0.3)
    chosen = [choose(drift, round_joules=50.0, control=phi) for phi in (1e-4, 0.025, 1.0)]
    for phi, own in zip((1e-4, 0.025, 1.0), chosen, strict=True):
        assert own == min(range(1, 51), key=lambda tau: wang_bound(tau, drift, 0.1, 1.0, 50.0, 1e4, phi))
    assert len(set(chosen)) > 1


@given(DRIFTS, positive(1e-3, 1.0), positive(1e-3, 1e3), st.floats(1.0, 1e3))
@settings(max_examples=100, deadline=None)
def test_dearer_uploads_never_lower_h_where_clients_agree(drift, rate, upload, factor):
    agreed = Drift(drift.lipschitz, drift.smoothness, 0.0)
    cheap, dear = (
        choose(agreed, learning_rate=rate, round_joules=b, budget_joules=1e9) for b in (upload, upload * factor)
    )
    assert dear >= cheap


def test_clients_that_agree_send_as_seldom_as_allowed():
    agreed = Drift(lipschitz=1.0, smoothness=1.0, divergence=0.0)
    assert choose(agreed, last=1) == 10
    assert choose(agreed, last=3) == 30
    assert choose(agreed, last=50) == 50
    assert choose(agreed, last=50, largest=7) == 7


def test_clients_that_disagree_wildly_take_one_step():
    assert choose(Drift(lipschitz=100.0, smoothness=10.0, divergence=1000.0)) == 1


@pytest.mark.parametrize("budget", [-5.0, 0.0, 1.0, 2.0])
def test_a_spent_budget_still_gives_a_choice(budget):
    assert choose(Drift(lipschitz=1.0, smoothness=1.0, divergence=0.1), budget_joules=budget) in range(1, 51)


@given(
    st.sampled_from([1e6, 1e9, 1e30, 1e300]),
    st.just(0.0) | positive(1e-6, 1e6),
    st.just(0.0) | positive(1e-6, 1e6),
)
@example(1e7, 0.0, 1.0)
@example(1e7, 1.0, 0.0)
@settings(max_examples=60, deadline=None)
def test_however_large_the_smoothness_there_is_a_best_h_and_no_warning(smoothness, divergence, lipschitz):
    drift = Drift(lipschitz=lipschitz, smoothness=smoothness, divergence=divergence)
    bounds = {tau: wang_bound(tau, drift, 0.1, 1.0, 1.0, 1e4, 0.025) for tau in range(1, 51)}
    assert bounds[choose(drift)] <= min(bounds.values()) * (1 + 1e-9)
