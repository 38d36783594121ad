"""Step sizes of every local step against the formulas written out."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.engine.algorithm.options import LARGEST_RATE, TrainingOptions
from fewjoules.engine.algorithm.schedule import learning_rates

rates = st.floats(1e-6, 1e3)
small = st.integers(1, 12)


def rates_of(number, **given_options):
    usual = {"local_steps": 1, "sparsity": [1.0], "rounds": 10, "learning_rate": 0.4}
    return learning_rates(TrainingOptions(**usual | given_options), number)


@given(rates, small, small)
def test_a_constant_rate_is_the_rate_at_every_step(rate, local_steps, number):
    assert rates_of(number, learning_rate=rate, local_steps=local_steps, rounds=20).tolist() == [rate] * local_steps


@given(rates, small, small, st.data())
def test_a_cosine_falls_by_every_step_of_the_run(rate, local_steps, rounds, data):
    """Half a period over all steps: step t of T has rate * (1 + cos(pi t / T)) / 2."""
    number = data.draw(st.integers(1, rounds))
    found = rates_of(number, schedule="cosine", learning_rate=rate, local_steps=local_steps, rounds=rounds)
    total = rounds * local_steps
    first = (number - 1) * local_steps
    expected = [rate * (1.0 + math.cos(math.pi * t / total)) / 2.0 for t in range(first, first + local_steps)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@given(rates, small, small)
def test_a_cosine_starts_at_the_rate_and_falls_at_every_step_but_never_to_zero(rate, local_steps, rounds):
    given_options = {"schedule": "cosine", "learning_rate": rate, "local_steps": local_steps, "rounds": rounds}
    whole = np.concatenate([rates_of(number, **given_options) for number in range(1, rounds + 1)])
    assert whole[0] == rate
    assert np.all(np.diff(whole) < 0.0)
    assert whole[-1] > 0.0


@given(rates, st.floats(0.01, 2.0), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(1, 20))
def test_a_step_schedule_is_multiplied_once_for_each_decay_round_that_has_passed(rate, factor, after, number):
    found = rates_of(
        number, schedule="step", decay_rounds=tuple(after), decay_factor=factor, learning_rate=rate, local_steps=3
    )
    passed = sum(1 for last in after if number > last)
    np.testing.assert_allclose(found, [rate * factor**passed] * 3, rtol=1e-12)


@pytest.mark.parametrize(("number", "rate"), [(1, 0.4), (3, 0.4), (4, 0.04), (7, 0.04), (8, 0.004)])
def test_a_rate_decays_after_its_round_and_not_in_it(number, rate):
    found = rates_of(number, schedule="step", decay_rounds=(3, 7))
    np.testing.assert_allclose(found, [rate], rtol=1e-12)


def test_a_rate_that_grows_stays_within_float32():
    many = tuple(range(1, 10))
    assert rates_of(10, schedule="step", decay_rounds=many, decay_factor=1e300).tolist() == [LARGEST_RATE]
    assert np.isfinite(np.float32(LARGEST_RATE))


SCHEDULES = [
    {},
    {"schedule": "cosine"},
    {"schedule": "step", "decay_rounds": (1, 4)},
]


@given(st.sampled_from(SCHEDULES), st.integers(0, 12), st.integers(1, 12), st.integers(1, 3))
def test_a_warm_up_scales_the_schedule_by_the_share_of_its_rounds_that_have_come(schedule, warmup, number, steps):
    given_options = schedule | {"rounds": 12, "local_steps": steps}
    plain, warmed = rates_of(number, **given_options), rates_of(number, warmup_rounds=warmup, **given_options)
    share = number / warmup if number < warmup else 1.0
    np.testing.assert_allclose(warmed, share * plain, rtol=1e-15)


def test_the_first_round_of_a_warm_up_has_a_small_rate_and_the_last_the_whole():
    found = [rates_of(number, warmup_rounds=4)[0] for number in (1, 2, 3, 4, 5)]
    np.testing.assert_allclose(found, [0.1, 0.2, 0.3, 0.4, 0.4])
