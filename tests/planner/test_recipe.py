"""Recipes name options that training knows, hold plain values, and are written and read without a change."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given

import fewjoules as fj
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.planner.recipe import MESSAGE_OPTIONS, OPTIMISER_OPTIONS
from tests.scenarios import without_tails
from tests.strategies import recipes

NESTEROV = {"learning_rate": 0.2, "outer": "nesterov", "outer_momentum": 0.9}


def test_every_option_of_a_recipe_is_an_option_of_a_training():
    known = set(TrainingOptions.__dataclass_fields__)
    assert set(OPTIMISER_OPTIONS) | set(MESSAGE_OPTIONS) <= known
    assert set(OPTIMISER_OPTIONS).isdisjoint(MESSAGE_OPTIONS)


@given(recipes())
def test_a_recipe_is_read_back_as_it_was_written(recipe):
    assert fj.Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@given(recipes())
def test_the_options_of_a_drawn_recipe_can_be_trained_with(recipe):
    options = TrainingOptions.of(**recipe.options(), local_steps=1, sparsity=[1.0], rounds=1)
    assert {name: getattr(options, name) for name in recipe.options()} == recipe.options()


@given(recipes())
def test_a_recipe_is_described_in_one_line_with_its_step_size(recipe):
    line = recipe.describe()
    assert "\n" not in line
    assert f"step size {recipe.optimiser['learning_rate']:g}" in line


@pytest.mark.parametrize(
    ("optimiser", "message", "words"),
    [
        (NESTEROV, {"compressor": "ternary"}, "Nesterov 0.9 on the server, step size 0.2, ternary values"),
        ({"learning_rate": 1}, {}, "step size 1"),
        ({"learning_rate": 0.1, "averaging": 0.0}, {}, "step size 0.1"),
        ({"learning_rate": 0.1, "averaging": 0.05}, {}, "step size 0.1, the mean of the last 5 % of rounds"),
        ({"learning_rate": 0.1, "averaging": "half"}, {}, "step size 0.1, mean half"),
        ({"learning_rate": 0.1, "averaging": 0.125}, {}, "step size 0.1, the mean of the last 12.5 % of rounds"),
        (
            {"learning_rate": 0.1, "inner": "adamw", "schedule": "cosine", "batch_size": None},
            {"values": "int8", "downlink_values": "two-bit"},
            "AdamW on the devices, step size 0.1, falling to zero, all samples at every step, int8 values, "
            "two-bit values from the server",
        ),
        (
            {"learning_rate": 0.1, "momentum": 0.5, "error_feedback": False},
            {"compressor": "random-k", "values": "qsgd", "levels": 7},
            "momentum 0.5 on the devices, step size 0.1, no error feedback, random-k entries, qsgd values, 7 levels",
        ),
    ],
)
def test_a_recipe_is_described_in_plain_words(optimiser, message, words):
    assert fj.Recipe("x", optimiser, message).describe() == words


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "the name of a recipe must be a name of 1 to 200 printable characters, got ''"),
        ({"name": 7}, "the name of a recipe must be a name"),
        ({"optimiser": {}}, r"the optimiser of a recipe must have learning_rate, got \[\]"),
        ({"optimiser": [1]}, r"the optimiser of a recipe must be a table of options, got \[1\]"),
        (
            {"optimiser": NESTEROV | {"luck": 1}},
            "the optimiser of a recipe knows the options learning_rate.*got 'luck'",
        ),
        ({"optimiser": NESTEROV | {"values": "int8"}}, "the optimiser of a recipe knows .*, got 'values'"),
        ({"message": {"sparsity": 2.0}}, "the message of a recipe knows the options compressor.*, got 'sparsity'"),
        ({"optimiser": {"learning_rate": float("nan")}}, "learning_rate of a recipe must be a finite number.*got nan"),
        ({"optimiser": {"learning_rate": None}}, "learning_rate of a recipe must be a finite number.*got None"),
        ({"optimiser": {"learning_rate": [0.1]}}, r"learning_rate of a recipe must be a finite number.*got \[0.1\]"),
        ({"optimiser": NESTEROV | {"decay_rounds": [1.5]}}, "decay_rounds of a recipe must be a list of rounds"),
        ({"plan": "plan.json"}, r"the plan of a recipe must be a fewjoules\.Plan, got str"),
    ],
)
def test_a_wrong_recipe_is_refused_by_name(fields, message):
    with pytest.raises(fj.InvalidInputError, match=message):
        fj.Recipe(**{"name": "x", "optimiser": NESTEROV} | fields)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"name": "x", "optimiser": NESTEROV},
            r"exactly the keys name, optimiser, message, got \['name', 'optimiser'\]",
        ),
        ({"name": "x", "optimiser": NESTEROV, "message": {}, "plan": None}, "exactly the keys .*'plan'"),
        (None, "exactly the keys name, optimiser, message, got None"),
    ],
)
def test_an_entry_with_other_keys_is_refused(entry, message):
    with pytest.raises(fj.InvalidInputError, match=message):
        fj.Recipe.from_dict(entry)


def test_numbers_of_numpy_are_taken_as_plain_ones():
    recipe = fj.Recipe("x", {"learning_rate": np.float32(0.5), "batch_size": np.int64(8)})
    assert json.dumps(recipe.to_dict()["optimiser"]) == '{"learning_rate": 0.5, "batch_size": 8}'


def test_a_recipe_cannot_be_changed():
    given_options = dict(NESTEROV)
    recipe = fj.Recipe("x", given_options)
    given_options["learning_rate"] = 9.0
    assert recipe.optimiser["learning_rate"] == 0.2
    with pytest.raises(TypeError):
        recipe.optimiser["learning_rate"] = 9.0


def test_the_plan_of_a_recipe_must_not_carry_another_one():
    plan = dataclasses.replace(fj.solve(without_tails().problem()), recipe=fj.Recipe("x", NESTEROV))
    assert fj.Recipe("x", NESTEROV, plan=plan).plan is plan
    with pytest.raises(fj.InvalidInputError, match="the plan of recipe 'y' must carry the same options or none"):
        fj.Recipe("y", {"learning_rate": 0.3}, plan=plan)
