"""Every option of a run may be set in [training], with the default and the limits that it has in Python."""

import math
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pydantic
import pytest

from fewjoules.engine.algorithm.declared import Choice, Flag, MetricTarget, Number, Rounds, Whole
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.errors import InvalidInputError
from fewjoules.scenario.schema.sentences import validate
from fewjoules.scenario.schema.training import TrainingTable

SAID_ELSEWHERE = {"local_steps", "sparsity", "failures", "availability"}  # by plans and files
OPTIONS = {one.name: one for one in fields(TrainingOptions) if one.name not in SAID_ELSEWHERE}


def edges(check):
    """Values that an option may just have, and values that it may just not have."""
    if isinstance(check, Number):
        outside = [math.nan, math.inf, "word", True, check.low if check.above else math.nextafter(check.low, -math.inf)]
        inside = [math.nextafter(check.low, math.inf) if check.above else check.low]
        if math.isfinite(check.high):
            inside.append(math.nextafter(check.high, -math.inf) if check.below else check.high)
            outside.append(check.high if check.below else math.nextafter(check.high, math.inf))
        return inside, outside
    if isinstance(check, Whole):
        return [check.low, check.high], [check.low - 1, check.high + 1, check.low + 0.5, "word", True]
    if isinstance(check, Choice):
        return list(check.names), ["word", 3, list(check.names)]
    if isinstance(check, Flag):
        return [True, False], ["yes", 1, 0.0]
    if isinstance(check, MetricTarget):
        return ["f1 >= 0.5", "error <= -1e-3"], ["f1", "f1 > 0.5", ">= 0.5", "f1 >= nan", 0.5, True]
    assert isinstance(check, Rounds)
    return [[1], [check.high, 1]], [[0], [check.high + 1], [1.5], 3, ["word"]]


CASES = {name: edges(one.metadata["check"]) for name, one in OPTIONS.items()}


def test_every_option_is_a_key():
    assert set(OPTIONS) <= set(TrainingTable.model_fields)
    assert not SAID_ELSEWHERE & set(TrainingTable.model_fields)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_a_file_leaves_out_is_the_same_as_in_python(name):
    option, default = OPTIONS[name], TrainingTable.model_fields[name].default
    if option.default is MISSING:
        assert default is None  # a file that is only planned may do without
    else:
        assert default == (list(option.default) if isinstance(option.default, tuple) else option.default)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (inside, _) in CASES.items() for value in inside], ids=str
)
def test_what_python_takes_a_file_takes(name, value):
    OPTIONS[name].metadata["check"].require(name, value)
    assert getattr(TrainingTable.model_validate({name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (_, outside) in CASES.items() for value in outside], ids=str
)
def test_what_python_refuses_a_file_refuses(name, value):
    with pytest.raises(InvalidInputError, match=name):
        OPTIONS[name].metadata["check"].require(name, value)
    with pytest.raises(pydantic.ValidationError, match=name):
        TrainingTable.model_validate({name: value})


def test_all_local_data_is_a_word_in_a_file():
    table = TrainingTable.model_validate({"learning_rate": 0.1, "batch_size": "all"})
    assert table.options(Path())["batch_size"] is None


def test_only_what_a_file_states_reaches_the_run():
    table = TrainingTable.model_validate({"data": "digits", "learning_rate": 0.1, "seed": 3})
    assert table.options(Path()) == {"learning_rate": 0.1, "seed": 3, "failures": {}}


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("learning_rate", 1e39, "learning_rate must be at most 3e+38, got 1e+39"),
        ("learning_rate", 0.0, "learning_rate must be above 0, got 0.0"),
        ("adam_epsilon", 1e30, "adam_epsilon must be at most 1e+19, got 1e+30"),
        ("momentum", 1.0, "momentum must be below 1, got 1.0"),
        ("rounds", 0, "rounds must be at least 1, got 0"),
        ("rounds", 10**8, "rounds must be at most 10000000, got 100000000"),
    ],
)
def test_limits_are_written_in_few_digits(key, value, sentence):
    with pytest.raises(InvalidInputError, match=f"^{re.escape(sentence)}$"):
        validate(TrainingTable, {key: value})
