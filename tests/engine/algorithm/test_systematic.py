"""Draws with exact probabilities: every start of the draw is enumerated."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.engine.algorithm.systematic import UNITS, draw, in_units, laid_out

QUICK = settings(max_examples=80, deadline=None)


@st.composite
def designs(draw, most=12):
    """Probabilities that sum to about a whole number, in units, and that number."""
    count = draw(st.integers(1, most))
    size = draw(st.integers(1, count))
    wishes = np.array(draw(st.lists(st.floats(0.01, 1.0), min_size=count, max_size=count)))
    for _ in range(200):  # scaled up, and cut at 1, until they have the size
        wishes = np.minimum(1.0, wishes * size / wishes.sum())
    return in_units(wishes, size), size


def outcomes(units, order, size):
    """Every different cohort of an order with the number of starts that draw it."""
    changes = sorted({0, *(int(end) % UNITS for end in np.cumsum(units[order]))})
    for start, end in zip(changes, [*changes[1:], UNITS], strict=True):
        first, last = (laid_out(units, order, size, at) for at in (start, end - 1))
        assert np.array_equal(first, last)
        yield first, end - start


@QUICK
@given(designs(), st.randoms(use_true_random=False))
def test_each_client_is_drawn_by_exactly_as_many_starts_as_it_has_units(design, shuffle):
    units, size = design
    assert units.sum() == size * UNITS
    assert 1 <= units.min() <= units.max() <= UNITS
    order = np.array(shuffle.sample(range(units.size), units.size))
    drawn = np.zeros(units.size, dtype=np.int64)
    for cohort, starts in outcomes(units, order, size):
        assert len(set(cohort.tolist())) == size
        drawn[cohort] += starts
    np.testing.assert_array_equal(drawn, units)


@QUICK
@given(designs(most=8), st.data())
def test_the_weighted_sum_of_a_cohort_is_unbiased_to_the_last_bit(design, data):
    units, size = design
    parts = [Fraction(one) for one in data.draw(st.lists(st.integers(1, 9), min_size=len(units), max_size=len(units)))]
    values = data.draw(st.lists(st.integers(-50, 50), min_size=len(units), max_size=len(units)))
    order = np.arange(units.size)
    mean = sum(
        starts * sum(parts[m] * values[m] * UNITS / int(units[m]) for m in cohort.tolist())
        for cohort, starts in outcomes(units, order, size)
    )
    assert mean / UNITS == sum(part * value for part, value in zip(parts, values, strict=True))


def test_draws_follow_their_probabilities_and_their_seed():
    units = in_units(np.array([0.1, 0.9, 0.5, 0.3, 0.2]), 2)
    rng = np.random.default_rng(0)
    drawn = np.bincount(np.concatenate([draw(units, 2, rng) for _ in range(4000)]), minlength=5) / 4000
    np.testing.assert_allclose(drawn, [0.1, 0.9, 0.5, 0.3, 0.2], atol=0.04)
    again = [draw(units, 2, np.random.default_rng(3)).tolist() for _ in range(2)]
    assert again[0] == again[1]


def test_a_size_that_rounding_missed_is_met_to_the_unit():
    for error in (1e-9, -1e-9):
        units = in_units(np.array([1.0, 0.5 + error, 0.5]), 2)
        assert units.sum() == 2 * UNITS
        assert units.max() == UNITS
