"""The law of the bits of a message: formula (25), what it sums, and where plans can use it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.physics.message_size import MessageSize, least_entry_bits


def test_formula_25_at_sparsity_one_is_dense():
    assert float(MessageSize.formula_25(32).bits(1000, 1.0)) == 1000 * 33


@given(st.floats(0, 1e6), st.floats(0.01, 10), st.floats(-5, 70), st.floats(1, 1e6), st.integers(1, 10**12))
def test_bits_are_fixed_ones_and_those_of_the_entries(fixed, scale, entry, delta, parameters):
    law = MessageSize(fixed_bits=fixed, scale=scale, entry_bits=entry)
    entries = parameters / delta
    positions, rest = scale * entries * math.log2(delta), scale * entries * entry
    tolerance = 1e-12 * (fixed + positions + abs(rest))
    assert float(law.bits(parameters, delta)) == pytest.approx(fixed + positions + rest, abs=tolerance)
    assert float(law.sparsity_bits(parameters, delta)) == pytest.approx(positions + rest, abs=tolerance)


@given(st.floats(1.0, 50.0), st.floats(0.1, 5.0), st.floats(0.0, 10.0))
def test_a_law_to_plan_with_falls_and_is_convex_in_the_power_of_the_sparsity(least, exponent, more):
    law = MessageSize(entry_bits=least_entry_bits(least, exponent, batteries=False) + more)
    power = np.linspace(least**exponent, (100.0 * least) ** exponent, 500)
    bits = law.bits(1.0, power ** (1.0 / exponent))
    assert np.all(np.diff(bits) < 0.0)
    assert np.all(np.diff(bits, 2) >= -1e-13 * bits[0])


@pytest.mark.parametrize("exponent", [0.3, 1.0, 2.0])
def test_a_law_just_below_the_condition_is_not_convex_there(exponent):
    law = MessageSize(entry_bits=least_entry_bits(4.0, exponent, batteries=False) - 0.01)
    power = 4.0**exponent * (1.0 + 1e-4 * np.arange(3))
    assert np.diff(law.bits(1e6, power ** (1.0 / exponent)), 2)[0] < 0.0


@given(st.floats(1.0, 50.0), st.floats(0.0, 10.0))
def test_with_batteries_the_sparsity_is_convex_in_the_share_of_a_bit(least, more):
    """delta = u (log2 delta + entry_bits): u is concave in delta, so delta is convex in u."""
    law = MessageSize(entry_bits=least_entry_bits(least, 0.5, batteries=True) + more)
    delta = np.linspace(least, 100.0 * least, 500)
    share = 1.0 / law.bits(1.0, delta)
    assert np.all(np.diff(share) > 0.0)
    assert np.all(np.diff(share, 2) <= 1e-13 * share[-1])


@pytest.mark.parametrize("exponent", [0.3, 2.0])
def test_laws_for_batteries_suit_every_exponent(exponent):
    assert least_entry_bits() == least_entry_bits(1.0, exponent, batteries=True) == 2.886
    assert least_entry_bits(1.0, exponent, batteries=False) < 2.886


@pytest.mark.parametrize(
    ("constants", "says"),
    [
        ({"fixed_bits": -1.0}, "fixed_bits must be a finite number at least 0 and at most 1e+15, got -1.0"),
        ({"scale": 0.0}, "scale must be a finite number above 0 and at most 1e+06, got 0.0"),
        ({"entry_bits": math.nan}, "entry_bits must be a finite number"),
        ({"entry_bits": "three"}, "got 'three'"),
    ],
)
def test_a_law_that_no_message_has_is_refused(constants, says):
    with pytest.raises(fj.InvalidInputError) as caught:
        MessageSize(**{"entry_bits": 3.0} | constants)
    assert says in str(caught.value)
