"""The levers from the paper's plan to fewest: each adds one change, and one that changes nothing is left out."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from fewjoules.errors import InvalidInputError
from fewjoules.runs.levers import lever_entries
from fewjoules.runs.task import prepare
from fewjoules.scenario import Scenario
from fewjoules.scenario.planning import ScenarioPlans
from tests.scenario.test_training_scenario import RATE, SCENARIO
from tests.test_recipe_cli import WITHOUT_LAW

RECIPE = """
[recipe]
name = "adamw"
plain_learning_rate = 0.3
optimiser = {learning_rate = 0.01, inner = "adamw", residual_decay = 0.95}
message = {values = "int8"}
rounds = {kind = "power-law", tau = 12.0, c = 0.02, a = 0.3, q = 0.9}
"""
ALIKE = RECIPE.replace("c = 0.02, a = 0.3, q = 0.9", "c = 0.0043, a = 0.5, q = 0.6")


def scenario_of(text):
    return Scenario.from_text(text, "scenario.toml", Path())


def levers_of(text):
    """The levers of a scenario with the options that each trains with, by name."""
    scenario = scenario_of(text)
    planning = ScenarioPlans(scenario)
    task = prepare(scenario, torch.device("cpu"))
    entries = lever_entries(scenario, planning.plan("flexible"), planning.plan("fewest"))
    return {entry.name: (entry, entry.options(task)) for entry in entries}


def test_each_lever_adds_one_change_to_the_one_before():
    levers = levers_of(SCENARIO + RECIPE)
    assert list(levers) == ["flexible", "step-size", "optimiser", "values", "fewest"]
    before = {name: options.to_dict() for name, (_, options) in levers.items()}
    changed = [
        {key for key in before[one] if before[one][key] != before[other][key]}
        for one, other in itertools.pairwise(levers)
    ]
    assert changed[0] == {"learning_rate"}
    assert changed[1] == {"learning_rate", "inner", "momentum", "momentum_state", "residual_decay"}
    assert changed[2] == {"values"}
    assert changed[3] <= {"local_steps", "sparsity", "downlink_sparsity", "rounds"}
    assert changed[3]
    rates = [options.learning_rate for _, options in levers.values()]
    assert rates == [0.1, 0.3, 0.01, 0.01, 0.01]


@pytest.mark.parametrize(
    ("training", "recipe", "left"),
    [
        (None, 0.05, [0.0, 0.0, 0.0, 0.05, 0.05, 0.05]),
        (0.2, 0.05, [0.2, 0.0, 0.0, 0.05, 0.05, 0.05]),
        (0.2, None, [0.2, 0.0, 0.0, 0.2, 0.2, 0.2]),
        (0.2, 0.0, [0.2, 0.0, 0.0, None, 0.0, 0.0]),
    ],
    ids=["of the recipe", "of both", "of the training", "none in the recipe"],
)
def test_the_mean_of_models_is_a_lever_of_its_own(training, recipe, left):
    own = "" if training is None else f"averaging = {training}\n"
    of_recipe = "" if recipe is None else f"averaging = {recipe}, "
    text = SCENARIO.replace(RATE, own + RATE) + RECIPE.replace('"adamw", ', f'"adamw", {of_recipe}')
    levers = {name: options.averaging for name, (_, options) in levers_of(text).items()}
    names = ["flexible", "step-size", "optimiser", "averaging", "values", "fewest"]
    assert levers == {name: value for name, value in zip(names, left, strict=True) if value is not None}


def test_only_the_ends_have_plans_that_predict():
    levers = levers_of(SCENARIO + RECIPE)
    plans = {name: entry.plan for name, (entry, _) in levers.items()}
    assert {name for name, plan in plans.items() if plan is not None} == {"flexible", "fewest"}
    for name in ("step-size", "optimiser", "values"):
        assert levers[name][0].local_steps == plans["flexible"].local_steps
        np.testing.assert_array_equal(levers[name][0].sparsity, plans["flexible"].sparsity)


def test_the_step_size_is_that_of_plain_sgd_whatever_the_training_uses():
    text = SCENARIO.replace(RATE, 'learning_rate = 0.1\ninner = "momentum"\nouter = "nesterov"\nresidual_decay = 0.5')
    options = levers_of(text + RECIPE)["step-size"][1]
    assert (options.inner, options.outer, options.residual_decay) == ("sgd", "none", 1.0)


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("plain_learning_rate = 0.3\n", "", ["flexible", "optimiser", "values", "fewest"]),
        ("plain_learning_rate = 0.3", "plain_learning_rate = 0.1", ["flexible", "optimiser", "values", "fewest"]),
        ('message = {values = "int8"}', "", ["flexible", "step-size", "optimiser", "fewest"]),
        (
            'learning_rate = 0.01, inner = "adamw", residual_decay = 0.95',
            "learning_rate = 0.3",
            ["flexible", "step-size", "values", "fewest"],
        ),
    ],
    ids=["not told", "that of the training", "no message", "that of plain SGD"],
)
def test_a_lever_that_changes_nothing_or_is_not_told_is_left_out(old, new, left):
    assert old in RECIPE
    assert list(levers_of(SCENARIO + RECIPE.replace(old, new))) == left


def test_fewest_is_left_out_where_planning_anew_changes_nothing():
    """A law that differs by a factor has the same plan."""
    assert ALIKE != RECIPE
    assert list(levers_of(SCENARIO + ALIKE)) == ["flexible", "step-size", "optimiser", "values"]


@pytest.mark.parametrize(
    ("text", "missing"), [(SCENARIO, "no [recipe]"), (WITHOUT_LAW + RECIPE, "no [rounds]")], ids=["recipe", "rounds"]
)
def test_a_scenario_without_an_end_of_the_levers_is_refused(text, missing):
    plan = ScenarioPlans(scenario_of(SCENARIO)).plan("flexible")
    with pytest.raises(InvalidInputError, match=r"^scenario.toml: --schemes levers needs \[rounds\]") as refusal:
        lever_entries(scenario_of(text), plan, None)
    assert missing in str(refusal.value)
