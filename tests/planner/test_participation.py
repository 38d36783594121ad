"""Planned participation: probabilities that cost the fewest joules for their variance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fewjoules.planner.participation import LEAST_SHARE, added_variance, inclusion_probabilities

QUICK = settings(max_examples=100, deadline=None)


@st.composite
def clients(draw, most=30):
    """Weights, costs that may be nothing, and the size of a cohort."""
    count = draw(st.integers(2, most))
    importance = draw(st.lists(st.floats(0.01, 100.0), min_size=count, max_size=count))
    costs = draw(st.lists(st.just(0.0) | st.floats(1e-6, 1e6), min_size=count, max_size=count))
    return np.array(importance), np.array(costs), draw(st.integers(1, count))


@QUICK
@given(clients())
def test_probabilities_sum_to_the_size_of_the_cohort_and_stay_within_their_bounds(case):
    importance, costs, size = case
    found = inclusion_probabilities(importance, costs, size)
    assert found.sum() == pytest.approx(size, rel=1e-12)
    assert np.all(found <= 1.0)
    assert np.all(found >= LEAST_SHARE * size / importance.size * (1 - 1e-12))


@QUICK
@given(clients(), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_probabilities_depend_on_neither_the_unit_of_joules_nor_the_sum_of_the_weights(case, unit, factor):
    importance, costs, size = case
    scaled = inclusion_probabilities(factor * importance, unit * costs, size)
    np.testing.assert_allclose(scaled, inclusion_probabilities(importance, costs, size), rtol=1e-9)


@QUICK
@given(clients())
def test_of_two_clients_of_one_weight_the_dearer_is_not_drawn_more_often(case):
    _, costs, size = case
    found = inclusion_probabilities(np.ones(costs.size), costs, size)
    order = np.argsort(costs)
    assert np.all(np.diff(found[order]) <= 1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 7), st.data())
def test_no_draw_of_the_same_variance_costs_less(count, data):
    importance = np.array(data.draw(st.lists(st.floats(0.3, 3.0), min_size=count, max_size=count)))
    costs = np.array(data.draw(st.lists(st.floats(0.02, 50.0), min_size=count, max_size=count)))
    size = data.draw(st.integers(1, count - 1))
    found = inclusion_probabilities(importance, costs, size)
    shares = importance / importance.sum()
    variance, joules = np.sum(shares**2 / found), costs @ found
    searched = minimize(
        lambda pi: costs @ pi / joules,
        np.minimum(1.0, found * 1.1),
        jac=lambda pi: costs / joules,
        bounds=[(LEAST_SHARE * size / count, 1.0)] * count,
        constraints={
            "type": "ineq",
            "fun": lambda pi: 1.0 - np.sum(shares**2 / pi) / variance,
            "jac": lambda pi: shares**2 / pi**2 / variance,
        },
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    reached = np.sum(shares**2 / searched.x) <= variance * (1 + 1e-6)
    assert not reached or searched.fun >= 1.0 - 1e-5
    if searched.success and reached:
        np.testing.assert_allclose(searched.x, found, rtol=2e-2, atol=2e-3)


def test_where_nothing_caps_them_probabilities_fall_with_the_root_of_the_cost():
    found = inclusion_probabilities(np.array([1.0, 2.0, 1.0]), np.array([1.0, 4.0, 16.0]), 1)
    np.testing.assert_allclose(found, np.array([4.0, 4.0, 1.0]) / 9.0)


def test_the_added_variance_of_a_uniform_draw_is_what_the_rounds_law_counts():
    uniform = np.full(24, 6 / 24)
    assert added_variance(np.ones(24), uniform) == pytest.approx(24 / 6 - 1)
    assert added_variance(np.ones(24), np.ones(24)) == 0.0
