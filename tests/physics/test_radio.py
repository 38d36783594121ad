"""Bits of a message against exact binomials; joules and seconds against their definitions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.errors import InvalidInputError
from fewjoules.physics.message_size import MessageSize
from fewjoules.physics.radio import Radio, exact_message_bits, position_bits


@given(st.integers(1, 3000).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, d))))
def test_position_bits_are_the_logarithm_of_the_binomial(sizes):
    d, k = sizes
    assert float(position_bits(d, k)) == pytest.approx(math.log2(math.comb(d, k)), rel=1e-13, abs=1e-12)


@pytest.mark.parametrize(("d", "k"), [(10**9, 1), (10**9, 2), (25_000_000, 2500), (431_080, 431_079)])
def test_position_bits_keep_their_digits_for_large_models(d, k):
    exact = math.log2(math.comb(d, min(k, d - k)))
    assert float(position_bits(d, k)) == pytest.approx(exact, rel=1e-12)


def test_formula_25_is_low_by_the_bits_that_its_derivation_drops():
    d, delta = 431_080, 1000.0
    k = round(d / delta)
    missing = float(exact_message_bits(d, k, 32) - MessageSize.formula_25(32).bits(d, d / k)) / k
    assert missing == pytest.approx(math.log2(math.e), abs=0.02)


def test_radio_costs_follow_equation_17():
    radio = Radio(power_watts=0.2, rate_bits_per_second=4e6, overhead_scale=1.5, overhead_bits=800.0)
    sent_bits = 1.5 * 1e6 + 800.0
    assert radio.joules_per_bit * 1e6 + radio.message_joules == pytest.approx(0.2 * sent_bits / 4e6, rel=1e-15)
    assert radio.seconds_per_bit * 1e6 + radio.message_seconds == pytest.approx(sent_bits / 4e6, rel=1e-15)


@pytest.mark.parametrize("wrong", [{"power_watts": -1.0}, {"rate_bits_per_second": 0.0}, {"overhead_bits": math.nan}])
def test_an_impossible_radio_is_refused_by_name(wrong):
    good = {"power_watts": 1.0, "rate_bits_per_second": 1.0}
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        Radio(**(good | wrong))
