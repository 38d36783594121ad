"""The steps to the target of a pilot that a budget has ended before it got there."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.errors import TargetOutOfReachError
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.extrapolation import GUESS_DEVIATION, Extrapolation, extrapolated, note_of
from tests.tuning.curves import result_of, spec_of
from tests.tuning.worlds import World, tuner_of

LOSS = Aim("loss", 0.3)
ACCURACY = Aim("accuracy", 0.9)
START = 2.3


def searching(aim):
    """A search at its start, with this aim."""
    tuner = tuner_of(World.random(0))
    tuner.aim = aim
    search = tuner._begun()
    search.pilots.append(result_of((10,), (START,)))
    return search


def power_law(steps, exponent, scatter=0.0):
    """A loss that falls from its start by a power law, with a scatter of its logarithm that alternates."""
    signs = np.where(np.arange(len(steps)) % 2, -1.0, 1.0)
    return START * (1.0 + np.asarray(steps) / 10.0) ** -exponent * np.exp(scatter * signs)


@given(st.integers(5, 30), st.floats(0.3, 1.5), st.floats(0.0, 0.05))
def test_a_range_contains_what_is_expected_and_never_what_was_taken_already(count, exponent, scatter):
    steps = 10 * np.arange(1, count + 1)
    losses = np.maximum(power_law(steps, exponent, scatter), 1.0001 * LOSS.target)
    pilot = result_of(steps, losses)
    try:
        found = extrapolated(searching(LOSS), pilot, START)
    except TargetOutOfReachError:
        return
    assert pilot.local_steps_taken <= found.least <= found.steps <= found.most <= 200 * pilot.local_steps_taken
    assert found.deviation >= GUESS_DEVIATION


@pytest.mark.parametrize("exponent", [0.4, 0.6])
def test_a_power_law_is_met_within_a_factor_of_two(exponent):
    steps = 10 * np.arange(1, 16)
    exact = 10.0 * ((START / LOSS.target) ** (1.0 / exponent) - 1.0)
    found = extrapolated(searching(LOSS), result_of(steps, power_law(steps, exponent)), START)
    assert exact > 150.0
    assert 0.5 < found.steps / exact < 2.0


def test_more_scatter_leaves_more_uncertain():
    steps = 10 * np.arange(1, 16)
    clear, noisy = (
        extrapolated(searching(LOSS), result_of(steps, power_law(steps, 0.6, scatter)), START)
        for scatter in (0.001, 0.1)
    )
    assert clear.most / clear.least < noisy.most / noisy.least
    assert clear.deviation == pytest.approx(GUESS_DEVIATION)


def test_a_line_that_fits_well_still_leaves_a_range():
    steps = 10 * np.arange(1, 16)
    found = extrapolated(searching(LOSS), result_of(steps, power_law(steps, 0.6)), START)
    assert found.most / found.steps == pytest.approx(math.exp(2.0 * GUESS_DEVIATION))
    assert found.least == pytest.approx(max(found.steps / math.exp(2.0 * GUESS_DEVIATION), 150.0))


def test_the_deviation_is_a_quarter_of_the_range_in_logarithms():
    assert Extrapolation(10.0, 1.0, math.exp(4.0)).deviation == pytest.approx(1.0)


def test_few_evaluations_are_read_between_the_first_pace_and_the_line():
    """Of an accuracy on its way from 0.1 to 0.9, in the logarithm of its odds."""
    search, pilot = searching(ACCURACY), result_of((10, 20, 30), (2.2, 2.1, 2.0), (0.15, 0.3, 0.4))
    pace = 30 * math.log(81.0) / (math.log(0.4 / 0.6) + math.log(9.0))
    assert ACCURACY.steps_at_first_pace(pilot, 0.1) == pytest.approx(pace)
    found = extrapolated(search, pilot, 0.1)
    line = ACCURACY.expected_steps(pilot)
    assert pace < line
    assert found.steps == pytest.approx(math.sqrt(pace * line))
    assert found.least <= pace < line <= found.most


def test_the_first_pace_is_that_to_the_best_value_and_none_without_progress():
    rising = result_of((10, 20, 30), (2.0, 1.0, 1.5))
    assert LOSS.steps_at_first_pace(rising, START) == pytest.approx(
        20.0 * math.log(START / LOSS.target) / math.log(START)
    )
    for values in ((START, 2.4, 2.5), (math.nan, math.nan, math.nan)):
        assert LOSS.steps_at_first_pace(result_of((10, 20, 30), values), START) == math.inf


def test_curves_that_are_too_short_to_be_judged_ask_for_a_larger_budget():
    with pytest.raises(TargetOutOfReachError, match=r"before a curve could be judged: .*2\.3 .*a larger budget$"):
        extrapolated(searching(LOSS), result_of((10, 20), (2.4, 2.5)), START)


@pytest.mark.parametrize("losses", [np.full(20, 2.0), np.linspace(2.0, 2.2, 20)])
def test_long_curves_that_stand_still_are_out_of_reach(losses):
    steps = 10 * np.arange(1, 21)
    with pytest.raises(TargetOutOfReachError, match=r"seems out of reach: .*no curve gets better any more"):
        extrapolated(searching(LOSS), result_of(steps, losses), START)


def test_the_note_says_how_far_the_pilot_went_and_how_far_the_target_may_be():
    pilot = result_of((10, 20), (2.0, 1.9), spec=spec_of(local_steps=10))
    note = note_of(pilot, Extrapolation(1234.4, 800.0, 2000.0))
    assert "from 20 local steps: the target is expected after 1,234, and may come after 800 to 2,000." in note
    assert note_of(pilot, Extrapolation(1234.4, 800.0, 4000.0)).endswith("800 to 4,000 or more.")
