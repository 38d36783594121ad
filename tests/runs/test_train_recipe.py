"""``fewjoules.train`` with a recipe: its options and its plan are used, and arguments beside it win."""

from dataclasses import replace

import numpy as np
import pytest

import fewjoules as fj
from tests.runs.test_train_api import CLIENTS, linear, made_plan

OPTIMISER = {"learning_rate": 0.3, "inner": "momentum", "momentum": 0.5, "batch_size": 2, "batch_growth": 1.2}
MESSAGE = {"compressor": "ternary"}
FIXED = {"local_steps": 2, "sparsity": 2.0, "rounds": 3}


def train(**options):
    return fj.train(linear(), clients=CLIENTS, device="cpu", **options)


def same(first, second):
    return first.ledger.tobytes() == second.ledger.tobytes() and all(
        np.array_equal(a.detach(), b.detach())
        for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True)
    )


def test_a_recipe_gives_all_its_options():
    assert same(train(recipe=fj.Recipe("x", OPTIMISER, MESSAGE), **FIXED), train(**OPTIMISER, **MESSAGE, **FIXED))


def test_what_a_recipe_leaves_out_is_as_usual():
    assert same(train(recipe=fj.Recipe("x", {"learning_rate": 0.3}), **FIXED), train(learning_rate=0.3, **FIXED))


@pytest.mark.parametrize(
    "own",
    [
        {"learning_rate": 0.1},
        {"batch_size": None},
        {"batch_size": 1},
        {"batch_growth": 1.0},
        {"error_feedback": False},
        {"momentum": 0.1},
        {"compressor": "top-k"},
    ],
    ids=str,
)
def test_arguments_beside_a_recipe_win(own):
    recipe = fj.Recipe("x", OPTIMISER, MESSAGE)
    run = train(recipe=recipe, **own, **FIXED)
    assert same(run, train(**recipe.options() | own, **FIXED))
    assert not same(run, train(recipe=recipe, **FIXED))


def test_an_optimiser_beside_a_recipe_leaves_the_constants_of_the_other_one_behind():
    run = train(recipe=fj.Recipe("x", OPTIMISER), inner="sgd", **FIXED)
    others = {name: value for name, value in OPTIMISER.items() if name not in ("inner", "momentum")}
    assert same(run, train(**others, **FIXED))


def test_the_plan_of_a_recipe_gives_local_steps_sparsity_and_rounds():
    plan = made_plan()
    recipe = fj.Recipe("x", {"learning_rate": 0.3}, plan=plan)
    assert same(train(recipe=recipe), train(plan=plan, learning_rate=0.3))
    assert np.all(train(recipe=recipe, local_steps=5).ledger["local_steps"] == 5)
    assert np.all(train(recipe=recipe, sparsity=15.0).ledger["entries"] == 1)
    assert train(recipe=recipe, rounds=2).metrics.size == 2


def test_a_plan_brings_its_recipe_along():
    plan = replace(made_plan(), recipe=fj.Recipe("x", OPTIMISER))
    assert same(train(plan=plan), train(plan=replace(plan, recipe=None), **OPTIMISER))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (FIXED, "learning_rate must be a finite number above 0 unless a recipe gives it, got None"),
        ({"recipe": {"learning_rate": 0.1}, **FIXED}, r"recipe must be a fewjoules\.Recipe, got dict"),
        ({"recipe": fj.Recipe("x", OPTIMISER), "plan": made_plan()}, "either a plan or a recipe, .*, got both"),
        ({"recipe": fj.Recipe("x", OPTIMISER)}, "either a plan or local_steps and sparsity, got neither"),
        (
            {"recipe": fj.Recipe("x", OPTIMISER), "preset": "dgc", **FIXED},
            "either a preset or a recipe, got 'dgc' and recipe 'x'",
        ),
        ({"recipe": fj.Recipe("x", {"learning_rate": -1.0}), **FIXED}, r"learning_rate must be .* above 0 .*got -1\.0"),
        (
            {"recipe": fj.Recipe("x", OPTIMISER, plan=replace(made_plan(), parameters=16))},
            "the plan was made for a model of 16 parameters, got a model of 15",
        ),
        ({"recipe": fj.Recipe("x", OPTIMISER, plan=made_plan(2))}, "sparsity must be .* 3 clients, got 2"),
    ],
)
def test_a_training_that_cannot_be_is_refused(options, message):
    with pytest.raises(fj.InvalidInputError, match=message):
        train(**options)
