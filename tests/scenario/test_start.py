"""A first scenario: whatever was answered, the file is read and planned, and its comments tell the truth."""

import re
import tomllib
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.datasets.shapes import DATASETS
from fewjoules.engine.models.architectures import ARCHITECTURES
from fewjoules.errors import InvalidInputError
from fewjoules.profiles import profile_names, shipped_profile
from fewjoules.scenario import Scenario
from fewjoules.scenario.start import answers, usual
from fewjoules.scenario.start.text import parameters_of, start_text

PAGE = (Path(__file__).parents[2] / "docs" / "scenario.md").read_text(encoding="utf-8")
OPTION = re.compile(r"^# (?=\w+ = )", re.MULTILINE)


def start_of(devices="wifi-phone:12", model="cnn", data=None, **given):
    chosen = answers.read_model(model)
    if chosen.architecture is None:
        data = target = None
    else:
        data = data or usual.data_for(chosen.architecture)[0]
        target = given.pop("target", usual.target_of(chosen.architecture, data))
    groups = answers.read_devices(devices.split(","), Path())
    return answers.Start(devices=groups, model=chosen, data=data, target=target, **given)


def read(start):
    return Scenario.from_text(start_text(start, "fleet.toml"), "fleet.toml", Path())


@pytest.mark.parametrize("model", [*ARCHITECTURES, "parameters=1000"])
@pytest.mark.parametrize("profile", profile_names())
def test_every_profile_and_architecture_give_a_scenario_that_is_planned(profile, model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scenario = read(start_of(f"{profile}:3", model))
    assert fj.solve(scenario.problem()).relative_gap <= 1e-9
    assert scenario.parameters == parameters_of(start_of(f"{profile}:3", model))
    assert [(group.name, group.count) for group in scenario.groups] == [(profile, 3)]


trainable = st.sampled_from(sorted(ARCHITECTURES)).flatmap(
    lambda model: st.tuples(st.just(model), st.sampled_from(usual.data_for(model)))
)


@settings(max_examples=60, deadline=None)
@given(
    groups=st.lists(st.tuples(st.sampled_from(profile_names()), st.integers(1, 200)), min_size=1, max_size=6),
    task=trainable,
    target=st.tuples(st.sampled_from(answers.METRICS), st.floats(1e-3, 1.0).filter(lambda x: x < 1.0)),
    sparsity=st.none() | st.floats(1.0, 600.0),
    steps=st.integers(1, 300),
    seed=st.integers(0, 2**63 - 1),
)
def test_any_answers_are_what_the_scenario_says(groups, task, target, sparsity, steps, seed):
    metric, value = target[0], target[1] + (target[0] == "perplexity")
    given = {"max_sparsity": sparsity, "max_local_steps": steps, "seed": seed, "target": (metric, value)}
    start = start_of(",".join(f"{name}:{count}" for name, count in groups), *task, **given)
    scenario = read(start)
    assert len(scenario.fleet) == sum(count for _, count in groups)
    assert len({group.name for group in scenario.groups}) == len(groups)
    assert (scenario.architecture, scenario.training.data) == task
    assert getattr(scenario.training, f"target_{metric}") == value
    assert scenario.training.seed == seed
    assert max(scenario.local_steps) == steps
    assert sparsity is None or scenario.sparsity == (1.0, sparsity)
    assert fj.solve(scenario.problem()).relative_gap <= 1e-9


@pytest.mark.parametrize("model", [*ARCHITECTURES, "parameters=1000"])
def test_every_option_in_the_comments_can_be_switched_on(model):
    text = start_text(start_of("lte-phone:2,wifi-phone:2,lte-phone:1", model), "fleet.toml")
    assert len(OPTION.findall(text)) == 7
    scenario = Scenario.from_text(OPTION.sub("", text), "fleet.toml", Path())
    assert scenario.round_seconds == 30.0
    assert set(scenario.fleet.battery_joules) == {500.0}


@pytest.mark.parametrize("model", [*ARCHITECTURES, "parameters=1000"])
def test_keys_of_the_file_and_of_its_comments_are_documented(model):
    text = start_text(start_of("lte-phone:2", model), "fleet.toml")
    keys = set(re.findall(r"^(?:# )?(\w+) = ", text, re.MULTILINE)) - {"kind"}
    keys |= set(re.findall(r"(\w+) = 0\.5", text))
    assert len(keys) > 8
    assert {key for key in keys if f"`{key}`" not in PAGE} == set()


def test_every_value_has_a_comment():
    for line in start_text(start_of("lte-phone:2,wifi-phone:1"), "fleet.toml").splitlines():
        assert "#" in line or not line
        assert len(line) <= 120


def test_the_comment_on_a_profile_counts_its_marks():
    text = start_text(start_of("lte-phone:2"), "fleet.toml")
    marks = [source.mark for source in shipped_profile("lte-phone").sources.values()]
    assert f"{marks.count('measured')} measured, {marks.count('fitted')} fitted, {marks.count('assumed')}" in text


def test_the_parameters_in_the_comment_are_those_of_the_network():
    text = start_text(start_of(model="lenet5"), "fleet.toml")
    assert "# 431,080 parameters;" in text  # 520 + 25,050 + 400,500 + 5,010


def test_the_law_of_the_embedded_task_is_that_of_the_embedded_scenario():
    law, embedded = usual.law_of("cnn", "digits"), Scenario.embedded().rounds
    assert (law.tau, law.c, law.a, law.q) == (embedded.tau, embedded.c, embedded.a, embedded.q)


def test_data_sets_are_those_that_exist_and_fit():
    assert set(usual.WHERE_FROM) == set(DATASETS)
    assert usual.data_for("lenet5") == ["mnist", "fashion-mnist", "cifar10", "qmnist"]
    assert usual.data_for("gpt") == ["shakespeare"]
    assert usual.data_for("cnn")[0] == "digits"


def test_many_roles_fall_back_to_equal_shares():
    assert tomllib.loads(start_text(start_of("lte-phone:446", "gpt"), "x"))["training"]["partition"] == "roles"
    assert tomllib.loads(start_text(start_of("lte-phone:447", "gpt"), "x"))["training"]["partition"] == "iid"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_an_answer_or_refused(text):
    model = answers.Model(architecture="cnn")
    readers = [
        lambda: answers.read_devices([text], Path()),
        lambda: answers.read_model(text),
        lambda: answers.read_data(text, model),
        lambda: answers.read_target(text),
        lambda: answers.read_deadline(text),
    ]
    for reader in readers:
        refused = ""
        try:
            reader()
        except InvalidInputError as error:
            refused = str(error)
        assert "\n" not in refused
