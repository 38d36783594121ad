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


def test_one_number_of_local_steps_is_the_only_choice():
    assert tune(local_steps=np.int64(3)).plan.local_steps == 3


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
        ({"averaging": 0.1}, "tune chooses averaging itself, got 0.1"),
        ({"downlink_values": "int8"}, "tune chooses downlink_values itself, got 'int8'"),
        ({"colour": 1}, r"^'colour' is no option of tune, which takes clients, fleet, (?!.*\b(rounds|inner)\b).*guard"),
        ({"test": CLIENTS[0]}, "^'test' is no option of tune, which takes clients, fleet, "),
        ({"learning_rate": -1.0}, "learning_rate must be .* got -1"),
        ({"learning_rate": lambda _round: 0.1}, "learning_rate of tune must be a finite number above 0, got <function"),
        ({"local_steps": None}, "local_steps must be a whole number or several, got None"),
        ({"local_steps": 0}, "local_steps must be a whole number from 1 .* got 0"),
        ({"on_pilot": 5}, "on_pilot must be a function of one argument or None, got 5"),
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
    with pytest.raises(fj.TargetOutOfReachError, match=r"seems out of reach: .*; give a larger budget, or choose "):
        tune(target={"loss": 1e-9}, budget="4000 steps")


def test_pilots_that_blow_up_before_a_metric_is_known_are_kept_and_read_again(tmp_path):
    changes = {"target": {"right": 0.9}, "metrics": {"right": right}, "learning_rate": 100.0, "out": tmp_path / "kept"}
    recipe, again = tune(**changes, budget="4000 steps"), tune(**changes, budget="4000 steps")
    assert any(one.diverged and one.steps == (one.spec.local_steps,) for one in recipe.report.pilots)
    assert again.report.pilots == recipe.report.pilots


def right(outputs, labels):
    return (outputs.argmax(1) == labels).float()


def test_a_loss_that_falls_from_below_zero_is_no_blow_up():
    lowered = lambda outputs, labels: nn.functional.cross_entropy(outputs, labels) - 3.0  # noqa: E731
    recipe = tune(loss=lowered, target={"right": 0.9}, metrics={"right": right})
    assert not any(one.diverged for one in recipe.report.pilots if one.spec.learning_rate <= 0.1)


def test_pilots_with_a_cosine_schedule_go_on_as_they_began():
    curves = {}
    for pilot in tune(schedule="cosine", seed=np.int64(3), budget="6000 steps").report.pilots:
        known = curves.setdefault(pilot.spec.training_key, {})
        for steps, loss in zip(pilot.steps, pilot.losses, strict=True):
            assert known.setdefault(steps, loss) == loss


class PowerCutError(Exception):
    """Stands for what ends a process."""


def told_until(count):
    """What is told of pilots, until a power cut after so many."""
    told = []

    def tell(progress):
        told.append(progress)
        if len(told) == count:
            raise PowerCutError

    return tell


def test_a_folder_takes_a_tuning_up_after_its_finished_pilots(tmp_path):
    folder, quick = tmp_path / "tuning", {"target": 0.6, "local_steps": [4]}
    for _ in range(2):
        with pytest.raises(PowerCutError):
            tune(**quick, out=folder, on_pilot=told_until(3))
    begun = (folder / "pilots.jsonl").read_bytes()
    resumed, whole = tune(**quick, out=folder), tune(**quick)
    after = (folder / "pilots.jsonl").read_bytes()
    assert resumed.report.pilots == whole.report.pilots
    assert resumed.to_dict() == whole.to_dict()
    assert resumed.plan.to_dict() == whole.plan.to_dict()
    assert after.startswith(begun)
    assert after.count(b"\n") == 1 + len({pilot.spec.key for pilot in whole.report.pilots})
    tune(**quick, out=str(folder), budget="1e9 steps", trainings=1)
    assert [file.name for file in folder.iterdir()] == ["pilots.jsonl"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"target": 0.7}, "the pilots belong to another task: target"),
        ({"seed": 4}, "the pilots belong to another task: training"),
        ({"clients": CLIENTS[::-1]}, "the pilots belong to another task: clients"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_folder_with_pilots_of_another_task_is_refused_and_kept(tmp_path, changes, says):
    with pytest.raises(PowerCutError):
        tune(target=0.6, out=tmp_path / "tuning", on_pilot=told_until(1))
    before = (tmp_path / "tuning" / "pilots.jsonl").read_bytes()
    with pytest.raises(fj.InvalidInputError, match=says):
        tune(**{"target": 0.6, "out": tmp_path / "tuning"} | changes)
    assert (tmp_path / "tuning" / "pilots.jsonl").read_bytes() == before


def test_another_model_may_not_use_the_pilots_of_a_folder(tmp_path):
    with pytest.raises(PowerCutError):
        tune(target=0.6, out=tmp_path, on_pilot=told_until(1))
    other = network()
    with torch.no_grad():
        other[0].weight[0, 0] += 1.0
    with pytest.raises(fj.InvalidInputError, match="another task: weights"):
        fj.tune(other, clients=CLIENTS, fleet=FLEET, target=0.6, local_steps=range(1, 9), device="cpu", out=tmp_path)


def test_a_folder_of_something_else_is_refused_and_a_refused_call_makes_none(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(fj.InvalidInputError, match="must be new or empty; give tune the folder of an earlier call"):
        tune(out=tmp_path / "full")
    with pytest.raises(fj.InvalidInputError, match="out must be the path of a folder, got 3"):
        tune(out=3)
    with pytest.raises(fj.InvalidInputError, match="the budget must allow the first 3 pilots"):
        tune(out=tmp_path / "new", budget="10 steps")
    assert not (tmp_path / "new").exists()
