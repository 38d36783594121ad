"""Ties within the noise of seeds: SciPy gives the same answers, and nothing depends on units or on the order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from fewjoules.reports.ties import LEVEL, p_values, tied_with_best


@st.composite
def comparisons(draw):
    """Joules of 2 to 6 schemes with 3 to 8 seeds; some schemes differ by much, some by little."""
    schemes, seeds = draw(st.integers(2, 6)), draw(st.integers(3, 8))
    noise = draw(arrays(np.float64, (schemes, seeds), elements=st.floats(-0.2, 0.2)))
    levels = draw(arrays(np.float64, (schemes, 1), elements=st.floats(0.0, 2.0)))
    return 10.0 * np.exp(noise + levels)


def best_of(joules):
    return int(joules.mean(axis=1).argmin())


def holm(found, best):
    """Holm's method as a table states it: adjusted p values, made monotone from the smallest on."""
    others = sorted((p, place) for place, p in enumerate(found) if place != best)
    adjusted, largest = {best: 1.0}, 0.0
    for rank, (p, place) in enumerate(others):
        largest = max(largest, min(1.0, (len(others) - rank) * p))
        adjusted[place] = largest
    return [adjusted[place] for place in range(len(found))]


@given(comparisons())
def test_the_test_is_scipys_paired_t_test_of_the_logarithms(joules):
    best = best_of(joules)
    found = p_values(joules, best)
    for place, own in enumerate(joules):
        differences = np.log(own) - np.log(joules[best])
        if differences.mean() > 1e-9 and differences.std() > 1e-9:
            expected = stats.ttest_rel(np.log(own), np.log(joules[best])).pvalue
            assert found[place] == pytest.approx(expected, rel=1e-5)


@given(comparisons())
def test_a_scheme_is_told_from_the_best_where_its_adjusted_p_value_is_at_most_the_level(joules):
    best = best_of(joules)
    adjusted = holm(p_values(joules, best), best)
    for value, tied in zip(adjusted, tied_with_best(joules, best), strict=True):
        if abs(value - LEVEL) > 1e-12:
            assert tied == (value > LEVEL)


def test_two_schemes_are_told_apart_beyond_the_quantile_of_the_t_distribution():
    noise = np.array([-0.02, 0.01, 0.04, -0.03, 0.0])
    reach = stats.t.ppf(0.975, 4) * noise.std(ddof=1) / np.sqrt(5)
    for share, tied in ((0.99, True), (1.01, False)):
        more = share * reach - noise.mean() + noise
        assert tied_with_best(8.0 * np.exp([np.zeros(5), more]), 0).tolist() == [True, tied]


@given(comparisons(), st.integers(-30, 30))
def test_the_unit_of_the_joules_does_not_matter(joules, power):
    best = best_of(joules)
    assert (tied_with_best(2.0**power * joules, best) == tied_with_best(joules, best)).all()


@given(comparisons(), st.data())
def test_a_seed_that_is_dearer_for_every_scheme_changes_nothing(joules, data):
    factors = 2.0 ** data.draw(arrays(np.float64, joules.shape[1], elements=st.integers(-9, 9).map(float)))
    assert (p_values(factors * joules, 0) == p_values(joules, 0)).all()


@given(comparisons(), st.randoms())
def test_the_order_of_the_schemes_does_not_matter(joules, random):
    order = list(range(len(joules)))
    random.shuffle(order)
    best = best_of(joules)
    assert (tied_with_best(joules[order], order.index(best)) == tied_with_best(joules, best)[order]).all()


@given(comparisons(), st.randoms())
def test_the_order_of_the_seeds_does_not_matter(joules, random):
    order = list(range(joules.shape[1]))
    random.shuffle(order)
    noisy = np.log(joules / joules[0]).std(axis=1) > 1e-6
    np.testing.assert_allclose(p_values(joules[:, order], 0)[noisy], p_values(joules, 0)[noisy], rtol=1e-6)


def test_equal_joules_are_tied_and_a_constant_factor_is_no_noise():
    joules = np.array([[3.0, 4.0, 5.0], [3.0, 4.0, 5.0], [6.0, 8.0, 10.0]])
    assert tied_with_best(joules, 0).tolist() == [True, True, False]
