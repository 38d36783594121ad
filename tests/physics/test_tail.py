"""Tails: the sum over a fleet by one sort against each device on its own."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.physics.fleet import Fleet
from fewjoules.physics.tail import planned_tail_joules, tail_joules, total_tail_joules

NUMBERS = st.floats(0.0, 100.0)


@st.composite
def fleets(draw):
    devices = draw(st.integers(1, 6))
    names = ("tail_watts", "tail_seconds", "promotion_joules", "seconds_per_step")
    columns = {name: draw(st.lists(NUMBERS, min_size=devices, max_size=devices)) for name in names}
    return Fleet(joules_per_bit=[1e-9] * devices, joules_per_step=1.0, downlink_joules_per_bit=1e-9, **columns)


@given(fleets(), st.booleans())
def test_the_sum_for_many_h_is_the_sum_over_devices_for_each(fleet, download):
    steps = np.array([1.0, 2.0, 3.0, 10.0, 1000.0])
    total = total_tail_joules(fleet, fleet.seconds_per_step, steps, download)
    each = [planned_tail_joules(fleet, fleet.seconds_per_step, int(h), download).sum() for h in steps]
    np.testing.assert_allclose(total, each, rtol=1e-12, atol=1e-9)


@given(fleets(), st.integers(1, 50), st.booleans())
def test_a_plan_and_the_ledger_count_the_same_tails(fleet, steps, download):
    gap = steps * fleet.seconds_per_step
    clear = np.abs(gap - fleet.tail_seconds) > 1e-9 * (1.0 + gap)  # where rounding decides, either is right
    planned = planned_tail_joules(fleet, fleet.seconds_per_step, steps, download)
    booked = tail_joules(fleet, slice(None), gap, download)
    np.testing.assert_allclose(planned[clear], booked[clear], rtol=1e-12)


@given(fleets(), st.integers(1, 50))
def test_a_round_pays_one_to_two_tails_and_promotions(fleet, steps):
    one = fleet.tail_watts * fleet.tail_seconds + fleet.promotion_joules
    paid = planned_tail_joules(fleet, fleet.seconds_per_step, steps, True)
    assert np.all(paid >= one * (1 - 1e-12))
    assert np.all(paid <= 2.0 * one * (1 + 1e-12))
