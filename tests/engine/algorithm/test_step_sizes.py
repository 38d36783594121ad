"""Step sizes by a function of the round: the same runs as by the schedules, and what is refused."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import plan_round
from fewjoules.engine.algorithm.schedule import learning_rates
from fewjoules.errors import InvalidInputError
from tests.reference import training as reference

CLIENTS = reference.made_up_clients([5, 3, 4], 4, 3, 1)
ROUNDS, STEPS = 5, 3


def options(learning_rate, **changes):
    given = {"local_steps": STEPS, "sparsity": [2.0, 2.0, 2.0], "rounds": ROUNDS, "learning_rate": learning_rate}
    return TrainingOptions(**given | changes)


def train(**changes):
    given = {"local_steps": STEPS, "sparsity": 2.0, "rounds": ROUNDS, "batch_size": 2, "device": "cpu"}
    model = reference.seeded_module(reference.SoftmaxRegression(4, 3), 1)
    return fj.train(model, clients=CLIENTS, **given | changes)


def cosine(number):
    steps = np.arange((number - 1) * STEPS, number * STEPS)
    return 0.3 * 0.5 * (1.0 + np.cos(np.pi * steps / (ROUNDS * STEPS)))


@pytest.mark.parametrize(
    ("function", "schedule"),
    [
        (lambda _number: 0.3, {}),
        (lambda _number: [0.3] * STEPS, {}),
        (cosine, {"schedule": "cosine"}),
        (lambda number: 0.3 * 0.1 ** (number > 2), {"schedule": "step", "decay_rounds": (2,)}),
        (lambda number: 0.3 * min(1.0, number / 4), {"warmup_rounds": 4}),
    ],
    ids=["constant", "constant in each step", "cosine", "step", "warm-up"],
)
def test_a_function_trains_the_very_run_of_the_schedule_that_it_computes(function, schedule):
    ours, usual = train(learning_rate=function), train(learning_rate=0.3, **schedule)
    assert ours.metrics.tobytes() == usual.metrics.tobytes()
    assert ours.ledger.tobytes() == usual.ledger.tobytes()


@given(st.lists(st.one_of(st.floats(0.0, 9.0), st.lists(st.floats(0.0, 9.0), min_size=3, max_size=3)), min_size=1))
def test_every_round_gets_what_the_function_says_for_it(told):
    chosen = options(lambda number: told[number - 1], rounds=len(told))
    for number, one in enumerate(told, start=1):
        assert learning_rates(chosen, number).tolist() == (one if isinstance(one, list) else [one] * STEPS)


def test_the_guard_halves_what_a_function_says():
    sizes, nobody = np.array([4, 4, 4]), np.zeros(3, dtype=np.int64)
    plan = plan_round(options(lambda number: [number, 2.0, 3.0]), np.ones(3, int), sizes, nobody, 2, step_scale=0.5)
    assert plan.rates.tolist() == [1.0, 1.0, 1.5]


def test_a_function_is_asked_once_for_every_round_and_anew_for_more_rounds():
    asked = []

    def rate(number):
        asked.append(number)
        return 0.1

    chosen = options(rate)
    assert learning_rates(replace(chosen, seed=4), 5).tolist() == [0.1] * STEPS
    assert asked == [1, 2, 3, 4, 5]
    assert learning_rates(replace(chosen, rounds=6), 6).tolist() == [0.1] * STEPS
    assert asked[5:] == [1, 2, 3, 4, 5, 6]


def test_options_with_a_function_are_plain_values_that_tell_its_step_sizes_apart():
    told = [options(rate).to_dict() for rate in (lambda _n: 0.1, lambda _n: [0.1] * STEPS, lambda n: 0.1 + (n == 3))]
    assert json.loads(json.dumps(told)) == told
    assert told[0] == told[1]
    assert told[0] != told[2]


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda number: 0.1 - 0.05 * number, r"learning_rate\(3\) must be from 0 to 3e\+38, got -0.05"),
        (lambda number: math.nan if number == 2 else 1.0, r"learning_rate\(2\) must be from 0 .*got nan"),
        (lambda _number: None, r"learning_rate\(1\) must be from 0 .*got None"),
        (lambda _number: [0.1, 0.1], r"learning_rate\(1\) must be a number, or one for each of 3 local steps"),
        (lambda number: 0.1 if number < 4 else [0.1] * 9, r"learning_rate\(4\) must be a number, or one for each of 3"),
        (lambda _number: "fast", r"learning_rate\(1\) must be a number.*got 'fast'"),
    ],
)
def test_what_is_no_step_size_is_refused_with_its_round(function, says):
    with pytest.raises(InvalidInputError, match=says):
        options(function)


@pytest.mark.parametrize("changes", [{"schedule": "cosine"}, {"warmup_rounds": 2}])
def test_a_function_goes_without_a_schedule(changes):
    with pytest.raises(InvalidInputError, match="learning_rate as a function goes with schedule = 'constant'"):
        options(lambda _number: 0.1, **changes)
