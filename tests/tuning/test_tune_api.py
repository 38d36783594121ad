"""``fewjoules.tune`` from outside: a recipe that trains as predicted, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

import fewjoules as fj
from fewjoules.datasets.load import load

DIGITS = load("digits", None, None)
IMAGES = DIGITS.normalised(DIGITS.train_images).reshape(len(DIGITS.train_labels), -1)
TEST = (DIGITS.normalised(DIGITS.test_images).reshape(len(DIGITS.test_labels), -1), DIGITS.test_labels)
CLIENTS = [(IMAGES[first::4], DIGITS.train_labels[first::4]) for first in range(4)]
FLEET = fj.Fleet(joules_per_bit=np.array([1e-7, 1e-7, 4e-7, 4e-7]), joules_per_step=np.full(4, 2e-4))


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))


def tune(**changes):
    given = {"clients": CLIENTS, "fleet": FLEET, "target": 0.9, "local_steps": range(1, 9), "device": "cpu"}
    return fj.tune(network(), **given | changes)


@pytest.fixture(scope="module")
def found():
    told = []
    recipe = tune(batch_size=16, weight_decay=1e-4, on_pilot=told.append)
    return recipe, told


def test_the_recipe_reaches_the_target_in_about_the_predicted_rounds(found):
    recipe, _ = found
    most = 4 * recipe.plan.rounds_to_train()
    options = {"rounds": most, "target_accuracy": 0.9, "evaluate_every": 1, "device": "cpu"}
    run = fj.train(network(), clients=CLIENTS, test=TEST, fleet=FLEET, recipe=recipe, **options)
    assert run.stop_reason == "target accuracy"
    assert recipe.plan.rounds / 3.0 <= run.metrics.size <= 3.0 * recipe.plan.rounds
    assert recipe.plan.energy_joules / 3.0 <= run.energy_joules <= 3.0 * recipe.plan.energy_joules


def test_the_recipe_carries_what_the_pilots_were_trained_with(found):
    recipe, _ = found
    assert recipe.optimiser["batch_size"] == 16
    assert recipe.optimiser["weight_decay"] == 1e-4
    assert recipe.plan.recipe.options() == recipe.options()
    assert recipe.plan.relative_gap <= 1e-9


def test_every_pilot_is_told(found):
    recipe, told = found
    assert [one.news.result for one in told] == list(recipe.report.pilots)
    assert all(one.learning_rate > 0.0 for one in told)


def test_the_model_of_the_caller_is_not_changed():
    model = network()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    fj.tune(model, clients=CLIENTS, fleet=FLEET, target=0.6, local_steps=[4], device="cpu")
    assert all(torch.equal(a, b.detach()) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("target", [{"loss": 0.5}, {"perplexity": 1.6}])
def test_a_loss_or_a_perplexity_may_be_the_target(target):
    recipe = tune(target=target)
    (metric,) = target
    ends = [min(pilot.metrics) for pilot in recipe.report.pilots if pilot.reached]
    assert ends
    assert max(ends) <= target[metric]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"target": 1.5}, "target accuracy must be .* got 1.5"),
        ({"target": {"bleu": 3}}, "target must be an accuracy, or a mapping of one of accuracy, loss, perplexity"),
        ({"target": {"loss": 1, "perplexity": 2}}, "target must be an accuracy, or a mapping"),
        ({"target": {"perplexity": 0.5}}, "target perplexity must be .* got 0.5"),
        ({"fleet": None}, "tune needs a fleet"),
        ({"clients": CLIENTS[:3]}, "the fleet must have a device for each of 3 clients, got 4"),
        ({"clients": [(a, a[:, :1]) for a, _ in CLIENTS]}, "the targets are numbers, not labels, so tune needs a loss"),
        ({"outer": "nesterov"}, "tune chooses outer itself, got 'nesterov'"),
        ({"rounds": 3}, "tune chooses rounds itself"),
        ({"colour": 1}, "train knows the options .* got 'colour'"),
        ({"learning_rate": -1.0}, "learning_rate must be .* got -1"),
        ({"budget": "much"}, "the budget must be"),
        ({"trainings": 0}, "trainings must be .* got 0"),
        ({"seed": "x"}, "seed must be .* got 'x'"),
        ({"device": "tpu"}, "device must be auto, cpu, cuda or"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_is_refused_in_one_sentence(changes, says):
    with pytest.raises(fj.InvalidInputError, match=says) as caught:
        tune(**changes)
    assert "\n" not in str(caught.value)


def test_an_accuracy_of_numbers_is_refused():
    clients = [(a, a[:, :1]) for a, _ in CLIENTS]
    with pytest.raises(fj.InvalidInputError, match="the target of tune must be a loss"):
        tune(clients=clients, loss=nn.functional.mse_loss)


def test_a_target_out_of_reach_is_an_error_of_its_own():
    with pytest.raises(fj.TargetOutOfReachError, match="seems out of reach"):
        tune(target={"loss": 1e-9}, budget="4000 steps")
