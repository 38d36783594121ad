import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.physics.message_fit import MessageObservation
from fewjoules.tuning.pilot import PilotResult, PilotSpec
from tests.tuning.curves import result_of, spec_of

STEPS = np.arange(10, 1010, 10)


def test_the_steps_to_a_loss_of_an_exponential_curve_are_exact():
    result = result_of(STEPS, 3.0 * np.exp(-STEPS / 200.0))
    for level in (2.5, 1.0, 0.1):
        assert result.steps_to_loss(level) == pytest.approx(200.0 * math.log(3.0 / level))


def test_the_steps_to_a_loss_of_a_power_law_are_right_within_an_evaluation():
    result = result_of(STEPS, 5.0 * STEPS**-0.5)
    for level in (1.0, 0.3, 0.2):
        assert result.steps_to_loss(level) == pytest.approx((5.0 / level) ** 2, abs=1.0)


def test_a_loss_that_rises_again_was_still_reached():
    result = result_of([10, 20, 30, 40], [2.0, 1.0, 3.0, 0.5])
    assert result.steps_to_loss(1.0) == pytest.approx(20.0)
    assert result.steps_to_loss(2.0) == 10.0
    assert 30.0 < result.steps_to_loss(0.9) < 40.0
    assert result.steps_to_loss(0.4) is None


@pytest.mark.parametrize(
    ("losses", "level", "steps"),
    [((2.0, 0.0), 0.0, 20.0), ((2.0, 0.0), 1e-12, 20.0), ((math.inf, 1.0), 1.0, 20.0), ((math.nan, 1.0), 1.0, 20.0)],
)
def test_odd_losses_are_reached_at_an_evaluation_at_the_latest(losses, level, steps):
    assert 10.0 < result_of([10, 20], losses).steps_to_loss(level) <= steps


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20), st.floats(1e-6, 1e3))
def test_a_loss_is_reached_between_the_evaluations_around_it(losses, level):
    steps = [10 * (at + 1) for at in range(len(losses))]
    taken = result_of(steps, losses).steps_to_loss(level)
    first = next((at for at, loss in enumerate(losses) if loss <= level), None)
    if first is None:
        assert taken is None
    else:
        assert steps[first] - 10.0 * (first > 0) <= taken <= steps[first]


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20), st.floats(0.0, 250.0))
def test_the_loss_after_some_steps_was_reached_by_then(losses, after):
    steps = [10 * (at + 1) for at in range(len(losses))]
    result = result_of(steps, losses)
    level = result.loss_after(after)
    assert result.steps_to_loss(level) <= max(after, 10.0)


def test_the_final_loss_is_the_least_of_the_second_half():
    result = result_of([20, 40, 60, 80, 90, 100], [9.0, 1.0, 7.0, 6.0, 2.0, 4.0])
    assert result.final_loss() == 2.0


@pytest.mark.parametrize(
    ("losses", "diverged", "alive"),
    [
        ((2.0, 1.0), False, True),
        ((2.0, 6.0), False, True),
        ((2.0, 6.1), False, False),
        ((-1.0, -2.0), False, True),
        ((-1.0, 1.0), False, True),
        ((-1.0, 1.1), False, False),
        ((2.0, 1.0), True, False),
        ((2.0, math.nan), False, False),
        ((2.0, math.inf), False, False),
        ((math.inf, math.inf), False, False),
    ],
)
def test_a_run_is_alive_while_its_loss_is_finite_and_has_not_blown_up(losses, diverged, alive):
    result = result_of([10, 20], losses, diverged=diverged)
    assert result.alive is alive
    assert math.isfinite(result.final_loss()) is alive


def test_a_run_without_evaluations_is_not_alive():
    result = result_of((), (), rounds=0)
    assert not result.alive
    assert result.final_loss() == math.inf
    assert result.steps_to_loss(1.0) is None
    assert result.loss_after(10.0) == math.inf


OPTIONS = st.dictionaries(
    st.text(max_size=8), st.booleans() | st.integers(-5, 5) | st.floats(0.0, 1.0) | st.text(max_size=5), max_size=3
)
SPECS = st.builds(
    PilotSpec,
    options=OPTIONS,
    local_steps=st.integers(1, 100),
    sparsity=st.lists(st.floats(1.0, 1e6), min_size=1, max_size=4).map(tuple),
    steps=st.integers(1, 10_000),
    downlink_sparsity=st.none() | st.floats(1.0, 1e6),
    to_target=st.booleans(),
    level=st.none() | st.floats(0.0, 10.0),
)
MESSAGES = st.builds(
    MessageObservation,
    values=st.sampled_from(["float32", "ternary"]),
    sparsity=st.floats(2.0, 1e4),
    bits=st.floats(1.0, 1e9),
    weight=st.floats(0.1, 100.0),
)


@st.composite
def results(draw):
    points = draw(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0.0, 1e9), st.floats(0.0, 1e9)), max_size=5))
    return PilotResult(
        spec=draw(SPECS),
        rounds=draw(st.integers(0, 1000)),
        steps=tuple(one for one, _, _ in points),
        losses=tuple(one for _, one, _ in points),
        metrics=tuple(one for _, _, one in points),
        reached=draw(st.booleans()),
        diverged=draw(st.booleans()),
        messages=tuple(draw(st.lists(MESSAGES, max_size=3))),
    )


@given(results())
def test_a_result_comes_back_from_json_as_it_was(result):
    assert PilotResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_metrics_that_are_not_known_are_null_in_json():
    result = result_of([10, 20], [2.0, 1.0], [math.nan, 0.5])
    written = json.dumps(result.to_dict(), allow_nan=False)
    read = PilotResult.from_dict(json.loads(written))
    assert math.isnan(read.metrics[0])
    assert read.metrics[1] == 0.5


@given(SPECS, SPECS)
def test_keys_are_the_same_exactly_where_pilots_are(one, other):
    assert (one.key == other.key) == (one == other)
    assert one.key == PilotSpec(**vars(one)).key


def test_the_key_of_a_training_does_not_tell_when_it_ends():
    key = spec_of().training_key
    assert spec_of(steps=999, to_target=True, level=0.3).training_key == key
    for other in ({"local_steps": 6}, {"sparsity": (8.0, 9.0)}, {"downlink_sparsity": 2.0}, {"options": {}}):
        assert spec_of(**other).training_key != key


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_steps_are_rounded_up_to_whole_rounds(steps, local_steps):
    rounds = spec_of(steps=steps, local_steps=local_steps).rounds
    assert (rounds - 1) * local_steps < steps <= rounds * local_steps
