"""Options of a run: checked once, filled in where they follow from others, and refused where they contradict."""

import json
import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.rule import InnerRule
from fewjoules.errors import InvalidInputError

NEEDED = {"local_steps": 2, "sparsity": [2.0, 3.0], "rounds": 5, "learning_rate": 0.1}


def options(**given):
    return TrainingOptions(**NEEDED | given)


def inner_of(chosen):
    return chosen.inner, chosen.momentum, chosen.momentum_state


# --- Inner optimiser: what is left out follows from what is given


@pytest.mark.parametrize(
    ("given_options", "filled"),
    [
        ({}, ("sgd", 0.0, "reset")),
        ({"momentum": 0.0}, ("sgd", 0.0, "reset")),
        ({"momentum": 0.5}, ("momentum", 0.5, "reset")),
        ({"momentum_state": "kept"}, ("momentum", 0.9, "kept")),
        ({"momentum_state": "cleared"}, ("momentum", 0.9, "cleared")),
        ({"momentum": 0.3, "momentum_state": "kept"}, ("momentum", 0.3, "kept")),
        ({"inner": "sgd"}, ("sgd", 0.0, "reset")),
        ({"inner": "sgd", "momentum": 0.0}, ("sgd", 0.0, "reset")),
        ({"inner": "momentum"}, ("momentum", 0.9, "reset")),
        ({"inner": "momentum", "momentum": 0.0}, ("momentum", 0.0, "reset")),
        ({"inner": "momentum", "momentum_state": "cleared"}, ("momentum", 0.9, "cleared")),
        ({"inner": "adamw"}, ("adamw", 0.9, "kept")),
        ({"inner": "adamw", "momentum": 0.8}, ("adamw", 0.8, "kept")),
        ({"inner": "adamw", "momentum_state": "reset"}, ("adamw", 0.9, "reset")),
    ],
    ids=str,
)
def test_what_is_left_out_of_the_inner_optimiser_is_filled_in(given_options, filled):
    assert inner_of(options(**given_options)) == filled
    inner, momentum, state = filled
    assert inner_of(options(inner=inner, momentum=momentum, momentum_state=state)) == filled


@pytest.mark.parametrize(
    ("given_options", "says"),
    [
        ({"inner": "sgd", "momentum": 0.5}, ["momentum", "0.5", "'sgd'", "'momentum'", "'adamw'"]),
        ({"inner": "adamw", "momentum_state": "cleared"}, ["momentum_state", "'cleared'", "'adamw'"]),
        ({"inner": "momentum", "momentum": 1.0}, ["momentum", "below 1", "1.0"]),
        ({"schedule": "step"}, ["decay_rounds", "'step'"]),
        ({"decay_rounds": (2,)}, ["decay_rounds", "[2]", "'constant'"]),
        ({"values": "ternary"}, ["values", "ternary", "'top-k'"]),
        ({"compressor": "ternary", "values": "int8"}, ["compressor", "'ternary'", "'int8'"]),
        ({"failures": {1: {2}}}, ["failures", "round 1", "from 0 to 1", "2"]),
    ],
    ids=str,
)
def test_options_that_contradict_one_another_are_refused(given_options, says):
    with pytest.raises(InvalidInputError) as refusal:
        options(**given_options)
    for part in says:
        assert part in str(refusal.value)


@pytest.mark.parametrize(
    ("given_options", "kept"),
    [
        ({}, False),
        ({"momentum": 0.9}, False),
        ({"momentum_state": "kept"}, True),
        ({"momentum_state": "cleared"}, True),
        ({"inner": "adamw"}, True),
        ({"inner": "adamw", "momentum_state": "reset"}, False),
        ({"inner": "sgd", "momentum_state": "kept"}, False),
    ],
    ids=str,
)
def test_clients_keep_moments_where_there_are_any_that_outlast_a_round(given_options, kept):
    assert bool(InnerRule.of(options(**given_options)).kept_moments) == kept


@pytest.mark.parametrize("state", ["kept", "cleared"])
def test_sgd_has_no_moments_to_keep_or_clear(state):
    assert options(inner="sgd", momentum_state=state).momentum_state == "reset"


# --- Every option is checked, by the name it has


@pytest.mark.parametrize("name", [one.name for one in fields(TrainingOptions)])
def test_an_option_that_is_something_else_altogether_is_refused_by_name(name):
    with pytest.raises(InvalidInputError, match=rf"\b{name}\b"):
        options(**{name: object()})


@pytest.mark.parametrize("name", [one.name for one in fields(TrainingOptions)])
def test_none_is_a_value_of_optional_options_alone(name):
    if TrainingOptions.__dataclass_fields__[name].metadata["optional"]:
        options(**{name: None})
    else:
        with pytest.raises(InvalidInputError, match=rf"\b{name}\b"):
            options(**{name: None})


def test_an_option_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(InvalidInputError, match=r"^'learning_rat' is no option of train, .*learning_rate, .*target$"):
        TrainingOptions.of(**NEEDED, learning_rat=0.1)


# --- What follows from options


@given(st.integers(1, 10_000))
def test_without_a_word_the_test_set_is_looked_at_about_every_ten_local_steps(local_steps):
    rounds = options(local_steps=local_steps).evaluation_rounds
    assert rounds == math.ceil(10 / local_steps)
    assert options(local_steps=local_steps, evaluate_every=7).evaluation_rounds == 7


def test_there_are_as_many_clients_as_sparsities():
    assert options().clients == 2
    assert options(sparsity=np.ones(7)).clients == 7


def test_options_as_plain_values_survive_json_and_make_the_same_options_again():
    chosen = options(
        sparsity=np.array([2.0, 3.5]),
        schedule="step",
        decay_rounds=(2, 4),
        failures={3: {1, 0}, 2: [1]},
        inner="adamw",
        preset="ft-lsgd-db",
    )
    plain = json.loads(json.dumps(chosen.to_dict()))
    assert plain["failures"] == {"2": [1], "3": [0, 1]}
    assert plain["sparsity"] == [2.0, 3.5]
    again = plain | {"failures": {int(number): devices for number, devices in plain["failures"].items()}}
    assert TrainingOptions(**again).to_dict() == chosen.to_dict()


def test_a_preset_gives_what_is_not_given():
    plain, named = TrainingOptions.of(**NEEDED), TrainingOptions.of(**NEEDED, preset="ft-lsgd-db")
    assert named.to_dict() == plain.to_dict() | {"preset": "ft-lsgd-db"}
    assert TrainingOptions.of(**NEEDED, preset="ft-lsgd-db", compressor="none").compressor == "none"


def test_momentum_that_is_reset_is_not_asked_for_by_its_state_alone():
    assert options(momentum_state="reset").inner == "sgd"
    assert options(momentum_state="kept").inner == "momentum"


def test_another_inner_optimiser_beside_a_preset_leaves_the_presets_momentum_out():
    chosen = TrainingOptions.of(**options().to_dict() | {"failures": {}, "preset": "dgc"})
    assert chosen.inner == "sgd"
    given_options = {"local_steps": 1, "sparsity": np.ones(2), "rounds": 1, "learning_rate": 0.1, "preset": "dgc"}
    plain = TrainingOptions.of(**given_options, inner="sgd")
    assert (plain.inner, plain.momentum, plain.momentum_state) == ("sgd", 0.0, "reset")
    adam = TrainingOptions.of(**given_options, inner="adamw")
    assert (adam.inner, adam.momentum, adam.momentum_state) == ("adamw", 0.9, "kept")
    own = TrainingOptions.of(**given_options, momentum=0.5)
    assert (own.inner, own.momentum, own.momentum_state) == ("momentum", 0.5, "cleared")
