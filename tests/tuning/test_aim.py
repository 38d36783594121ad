import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.tuning.aim import Aim
from tests.tuning.curves import result_of

ACCURACY = Aim("accuracy", 0.9)
LOSS = Aim("loss", 0.3)
PERPLEXITY = Aim("perplexity", 20.0)
STEPS = np.arange(10, 410, 10)


@pytest.mark.parametrize(("aim", "metric"), [(ACCURACY, 0.7), (LOSS, 2.0), (PERPLEXITY, math.exp(2.0))])
def test_the_metric_of_a_model(aim, metric):
    assert aim.of(2.0, 0.7) == pytest.approx(metric)


def test_the_perplexity_of_a_huge_loss_is_finite():
    assert math.isfinite(PERPLEXITY.of(1e6, 0.0))


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_progress_is_nothing_at_the_start_and_all_at_the_target(start, value):
    for target in (-0.5, 1.5):
        aim = Aim("accuracy", target)
        assert aim.progress(target, start) == 1.0
        assert aim.progress(start, start) == 0.0
        assert aim.progress(start + value * (target - start), start) == pytest.approx(value, abs=1e-9)
    assert Aim("accuracy", start).progress(value, start) == 1.0


@pytest.mark.parametrize(
    ("aim", "values", "best", "steps"),
    [
        (ACCURACY, (0.5, 0.95, 0.7), 0.95, 20.0),
        (ACCURACY, (0.5, math.nan, 0.7), 0.7, None),
        (LOSS, (0.5, 0.3, 0.7), 0.3, 20.0),
        (LOSS, (math.nan, math.inf, math.nan), math.inf, None),
        (ACCURACY, (), -math.inf, None),
    ],
)
def test_the_best_value_and_the_steps_to_the_target(aim, values, best, steps):
    result = result_of((10, 20, 30)[: len(values)], values, values, rounds=6)
    assert aim.best(result) == best
    assert aim.steps_to_target(result) == steps


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=20))
def test_a_target_that_was_reached_takes_the_steps_it_took(values):
    steps = [10 * (at + 1) for at in range(len(values))]
    result = result_of(steps, values, values)
    aim = Aim("accuracy", max(values))
    assert aim.expected_steps(result) == aim.steps_to_target(result) == steps[values.index(max(values))]


@pytest.mark.parametrize("exponent", [0.2, 0.5, 1.0])
def test_a_power_law_is_met_between_the_two_extrapolations(exponent):
    """Their geometric mean: the power law itself is exact, the line in ln(steps) comes too early."""
    losses = 2.0 * (STEPS / 10.0) ** -exponent
    aim = Aim("loss", 0.8 * float(losses[-1]))
    exact = 400.0 * 0.8 ** (-1.0 / exponent)
    assert 400.0 <= aim.expected_steps(result_of(STEPS, losses)) <= 1.0001 * exact


def test_a_line_in_ln_steps_is_met_between_the_two_extrapolations():
    accuracies = 0.1 + 0.1 * np.log(STEPS)
    exact = math.exp(8.0)
    aim = Aim("accuracy", 0.9)
    assert exact <= aim.expected_steps(result_of(STEPS, 1.0 - accuracies, accuracies)) <= 10.0 * exact


def test_errors_of_the_slope_make_a_line_meet_the_target_earlier_or_later():
    signs = np.where(np.arange(len(STEPS)) % 2, -1.0, 1.0)
    losses = 2.0 * (STEPS / 10.0) ** -0.3 * np.exp(0.02 * signs)
    result = result_of(STEPS, losses)
    steps = [LOSS.expected_steps(result, errors=errors) for errors in (2.0, 1.0, 0.0, -1.0, -2.0)]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("aim", [ACCURACY, LOSS, PERPLEXITY])
def test_a_curve_that_goes_away_from_the_target_never_meets_it(aim):
    away = 0.8 - 0.001 * STEPS if aim.rises else aim.target + 1.0 + 0.001 * STEPS
    assert aim.expected_steps(result_of(STEPS, away)) == math.inf


def test_a_flat_curve_never_meets_the_target():
    assert ACCURACY.expected_steps(result_of(STEPS, np.full(STEPS.size, 0.7))) == math.inf


@pytest.mark.parametrize("aim", [ACCURACY, Aim("loss", 0.1), Aim("perplexity", 1.1)])
def test_a_target_just_ahead_of_a_curve_that_levels_off_is_near(aim):
    way = 1.0 - np.exp(-STEPS / 80.0)
    reached = float(way[-1])
    values = {"accuracy": 0.8999 * way / reached, "loss": 1.0001 - 0.9 * way / reached}.get(aim.metric)
    values = 2.1001 - way / reached if values is None else values
    result = result_of(STEPS, values)
    assert aim.steps_to_target(result) is None
    assert 399.99 <= aim.expected_steps(result) <= 800.0


@given(st.integers(1, 5), st.floats(0.01, 10.0))
def test_more_of_the_way_never_takes_fewer_steps(further, exponent):
    losses = 2.0 * (STEPS / 10.0) ** (-0.1 * exponent)
    near, far = (Aim("loss", part * float(losses[-1])) for part in (0.99, 0.99 ** (1 + further)))
    result = result_of(STEPS, losses)
    assert near.expected_steps(result) <= far.expected_steps(result)


@pytest.mark.parametrize("values", [(), (0.5,), (math.nan, math.nan, 0.5)])
def test_too_short_a_curve_tells_nothing(values):
    result = result_of((10, 20, 30)[: len(values)], values, rounds=6)
    assert ACCURACY.expected_steps(result) == math.inf


def test_a_curve_that_begins_with_the_untrained_model_is_followed():
    values = np.array([0.1, 0.5, 0.6])
    assert ACCURACY.expected_steps(result_of([0, 10, 20], values)) > 20.0
    assert ACCURACY.expected_steps(result_of([0], values[:1])) == math.inf


@pytest.mark.parametrize(
    ("own", "like"),
    [(Aim("f1", 0.9, upwards=True), ACCURACY), (Aim("error", 0.3, upwards=False), LOSS)],
    ids=["rising", "falling"],
)
def test_a_metric_of_the_users_own_is_extrapolated_as_an_accuracy_or_as_a_loss(own, like):
    curve = 0.5 + 0.1 * np.log(STEPS / 10.0) / np.log(40.0) if like is ACCURACY else 2.0 * (STEPS / 10.0) ** -0.4
    result = result_of(STEPS, curve, curve)
    assert own.of(2.0, 0.7, 0.4) == 0.4
    assert math.isnan(own.of(2.0, 0.7))
    assert (own.rises, own.best(result)) == (like.rises, like.best(result))
    assert own.expected_steps(result) == like.expected_steps(result) < math.inf


def test_a_metric_of_another_scale_is_extrapolated_as_it_is():
    aim, line = Aim("score", 30.0, upwards=True), 10.0 + 2.0 * np.log(STEPS / 400.0)
    assert aim.expected_steps(result_of(STEPS, line, line)) == pytest.approx(400.0 * math.exp(10.0), rel=1e-6)
