"""The server's frontier with devices that were away: the global minimum of a function that is not convex."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.physics.message_size import least_entry_bits
from fewjoules.planner.catch_up import CatchUpFrontier, received_sparsity
from fewjoules.planner.frontier import Frontier
from tests.strategies import magnitudes

D = 13_706


@st.composite
def frontiers(draw):
    """A frontier, its costs by hand, and its limits."""
    exponent, participation = draw(st.floats(0.05, 3.0)), draw(st.sampled_from([0.001, 0.05, 0.3, 0.9]))
    lower = draw(st.sampled_from([1.0, 3.0, 50.0]))
    upper, cost = lower * draw(magnitudes(0, 4)), draw(magnitudes(-9, -3))
    least = least_entry_bits(float(received_sparsity(lower, participation)), exponent, batteries=False)
    kappa = least + draw(st.sampled_from([0.0, 1.0, 30.0]))
    shape = {"parameters": D, "entry_bits": kappa, "exponent": exponent, "lower": lower, "upper": upper}

    def joules(delta):
        held = 1.0 + participation * (delta - 1.0)
        return cost * D / held * (np.log2(held) + kappa)

    return CatchUpFrontier(cost, participation=participation, **shape), joules, exponent, (lower, upper)


@settings(max_examples=200, deadline=None)
@given(frontiers(), st.floats(-0.2, 1.2))
def test_no_sparsity_lies_below_the_tangent(case, place):
    frontier, joules, exponent, (lower, upper) = case
    low, high = frontier.log_multiplier_range
    log = low + place * max(high - low, 1.0)
    point, delta = frontier.points(log), frontier.sparsity(log)[0]
    assert lower * (1 - 1e-12) <= delta <= upper * (1 + 1e-12)
    assert point.mean_power[0] == pytest.approx(delta**exponent, rel=1e-12)
    assert point.radio_joules[0] == pytest.approx(joules(delta), rel=1e-9)
    every = np.geomspace(lower, upper, 5000)
    values = joules(every) + np.exp(log) * every**exponent
    touched = point.radio_joules[0] + np.exp(log) * point.mean_power[0]
    assert touched <= values.min() * (1 + 1e-12)
    if place <= 0.0:
        assert delta == pytest.approx(upper, rel=1e-9)
    if place >= 1.0:
        assert delta == pytest.approx(lower, rel=1e-9)


def test_with_everyone_the_frontier_is_that_of_a_device():
    shape = {"parameters": D, "entry_bits": 33.0, "exponent": 0.5, "lower": 1.0, "upper": 400.0}
    ours, usual = CatchUpFrontier(1e-6, participation=1.0, **shape), Frontier(np.array([1e-6]), **shape)
    low, high = usual.log_multiplier_range
    assert ours.log_multiplier_range == pytest.approx((low, high))
    for log in np.linspace(low + 1e-6, high - 1e-6, 17):
        np.testing.assert_allclose(ours.sparsity(log), usual.sparsity(log), rtol=1e-7)


@given(st.floats(1.0, 1e6), st.sampled_from([0.001, 0.1, 0.5, 1.0]))
def test_what_is_received_is_between_the_whole_model_and_the_last_change(sparsity, participation):
    assert 1.0 <= received_sparsity(sparsity, participation) <= sparsity * (1 + 1e-12)


def test_a_participation_that_cannot_be_is_refused():
    with pytest.raises(fj.InvalidInputError, match="downlink participation must be a finite number above 0"):
        fj.Downlink(participation=0.0)
