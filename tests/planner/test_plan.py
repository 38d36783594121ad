"""Plans are saved and loaded without losing a bit; damaged files are refused."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

import fewjoules as fj
from fewjoules.planner.plan import PLAN_KEYS, plans_from_json, plans_to_json
from tests.scenarios import without_tails


@pytest.fixture
def plan() -> fj.Plan:
    return fj.solve(without_tails().problem())


def test_a_saved_plan_is_loaded_bit_for_bit(plan, tmp_path):
    plan.save(tmp_path / "plan.json")
    loaded = fj.Plan.load(tmp_path / "plan.json")
    assert loaded.to_dict() == plan.to_dict()
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]


def test_the_document_has_the_promised_keys_in_order(plan):
    document = json.loads(plans_to_json([plan]))
    assert list(document) == ["version", "plans"]
    assert tuple(document["plans"][0]) == PLAN_KEYS


def test_kept_entries_are_rounded_only_at_the_end(plan):
    kept = plan.kept_entries(431_080)
    assert kept.dtype == np.int64
    np.testing.assert_array_equal(kept, [max(1, round(431_080 / delta)) for delta in plan.sparsity])
    assert plan.kept_entries(3).min() == 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d | {"version": 6}, "version must be 1 or 2 or 3 or 4 or 5, got 6"),
        (lambda d: d | {"version": True}, "version must be 1 or 2 or 3 or 4 or 5, got True"),
        (lambda d: d | {"version": 1}, "exactly the keys .*check \\[.*'parameters', 'participants', 'recipe'\\]"),
        (
            lambda d: d | {"version": 2},
            "exactly the keys .*check \\['downlink_sparsity', 'joules', 'operating_points', 'part.*', 'recipe'\\]",
        ),
        (lambda d: d | {"plans": [d["plans"][0] | {"downlink_sparsity": 0.5}]}, "downlink_sparsity must be .* 1"),
        (lambda d: d | {"plans": [d["plans"][0] | {"operating_points": [0]}]}, "operating_points must be a list of 12"),
        (
            lambda d: d | {"plans": [d["plans"][0] | {"operating_points": [-1] * 12}]},
            "operating_points must be a whole",
        ),
        (lambda d: d | {"plans": [d["plans"][0] | {"joules": {"luck": {}}}]}, "joules must be a table of uplink"),
        (lambda d: d | {"plans": [d["plans"][0] | {"joules": {"tail": {"luck": 1.0}}}]}, "table of measured"),
        (lambda d: d | {"plans": [d["plans"][0] | {"joules": {"tail": {"fitted": 1.0}}}]}, "must sum to energy_joules"),
        (lambda d: d | {"version": 3}, "exactly the keys .*check \\['participants', 'recipe'\\]"),
        (lambda d: d | {"version": 4}, "exactly the keys .*check \\['participants'\\]"),
        (
            lambda d: d | {"plans": [d["plans"][0] | {"recipe": 7}]},
            "a recipe must have exactly the keys name, .*, got 7",
        ),
        (
            lambda d: d | {"plans": [d["plans"][0] | {"recipe": {"name": "x", "optimiser": {}, "message": {}}}]},
            "the optimiser of a recipe must have learning_rate",
        ),
        (lambda d: d | {"plans": [d["plans"][0] | {"participants": 0}]}, "participants must be a whole number from 1"),
        (lambda d: d | {"plans": [d["plans"][0] | {"participants": 10**6}]}, "participants must be .*, got 1000000"),
        (lambda d: d | {"plans": None}, "plans must be a list"),
        (lambda d: d | {"plans": []}, "exactly 1 plan, got 0"),
        (lambda d: d | {"plans": [d["plans"][0] | {"luck": 1}]}, "luck"),
        (lambda d: d | {"plans": [d["plans"][0] | {"sparsity": [0.5]}]}, r"sparsity\[0\] must be .* at least 1"),
        (lambda d: d | {"plans": [d["plans"][0] | {"local_steps": 0}]}, "local_steps must be"),
        (lambda d: d | {"plans": [d["plans"][0] | {"rounds": "many"}]}, "rounds must be"),
        (lambda d: d | {"plans": [d["plans"][0] | {"energy_joules": 1.0}]}, "energy_joules must be radio_joules"),
        (lambda d: d | {"plans": [d["plans"][0] | {"parameters": 0}]}, "parameters must be a whole number from 1"),
        (
            lambda d: d | {"plans": [d["plans"][0] | {"sparsity": [1e308]}]},
            r"sparsity\[0\] .* at most 1e\+12, got 1e\+308",
        ),
        (lambda d: d | {"plans": [d["plans"][0] | {"sparsity": [2.0, True]}]}, "sparsity must be a list of numbers"),
        (lambda d: d | {"plans": [d["plans"][0] | {"sparsity": ["2"]}]}, "sparsity must hold numbers only"),
        (lambda d: d | {"plans": [d["plans"][0] | {"sparsity": 2.0}]}, "sparsity must be a list of numbers"),
        (lambda d: d | {"plans": [d["plans"][0] | {"sparsity": []}]}, "sparsity must have an entry .*, got none"),
        (
            lambda d: d | {"plans": [d["plans"][0] | {"lower_bound_joules": 1e308}]},
            r"lower_bound_joules must be at most energy_joules = \d.*, got 1e\+308",
        ),
        (lambda d: d | {"plans": [d["plans"][0] | {"rounds": 10**400}]}, r"rounds must be .*, got 10+\.\.\."),
        (lambda d: d | {"plans": [d["plans"][0] | {"scheme": ["a"]}]}, "scheme must be a name"),
        (lambda d: d | {"plans": [d["plans"][0] | {"solver": "\ud800"}]}, "solver must be a name"),
        (lambda d: d | {"plans": ["plan"]}, "exactly the keys"),
    ],
)
def test_a_damaged_plan_is_refused_by_name(plan, tmp_path, damage, message):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(damage(json.loads(plans_to_json([plan])))))
    with pytest.raises(fj.InvalidInputError, match=message) as refusal:
        fj.Plan.load(file)
    assert str(file) in str(refusal.value)


def test_a_plan_of_version_1_is_read_and_fits_every_model(plan):
    document = json.loads(plans_to_json([plan]))
    for key in ("parameters", "downlink_sparsity", "operating_points", "joules", "recipe", "participants"):
        del document["plans"][0][key]
    (read,) = plans_from_json(json.dumps(document | {"version": 1}), source="here")
    assert read.parameters is None
    read.require_model(771)
    unknown = {"parameters": None, "downlink_sparsity": None, "operating_points": None, "joules": {}}
    unknown |= {"participants": None}
    assert read.to_dict() == plan.to_dict() | unknown
    (again,) = plans_from_json(plans_to_json([read]), source="here")
    assert again.to_dict() == read.to_dict()


def test_a_plan_fits_only_a_model_of_its_size(plan):
    assert plan.parameters == fj.Scenario.embedded().parameters
    plan.require_model(plan.parameters)
    with pytest.raises(fj.InvalidInputError, match=r"for a model of 13,706 parameters, got a model of 771$"):
        plan.require_model(771)


def test_a_key_that_is_given_twice_is_refused():
    with pytest.raises(fj.InvalidInputError, match="the key 'version' is given twice"):
        plans_from_json('{"version": 2, "version": 2, "plans": []}', source="here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sparsity": [2.0, 1e308]}, r"sparsity\[1\] must be .* at most 1e\+12"),
        ({"sparsity": [np.nan]}, r"sparsity\[0\] must be"),
        ({"sparsity": [10**400]}, "sparsity must hold numbers only"),
        ({"local_steps": 2.0}, "local_steps must be a whole number"),
        ({"local_steps": True}, "local_steps must be a whole number"),
        ({"local_steps": 10**5000}, "local_steps must be .*, got a number of too many digits"),
        ({"rounds": np.inf}, "rounds must be a finite number"),
        ({"radio_joules": 1e308, "compute_joules": 1e308}, "energy_joules must be a finite number"),
        ({"lower_bound_joules": -1.0}, "lower_bound_joules must be"),
        ({"lower_bound_joules": 1e9}, "lower_bound_joules must be at most energy_joules"),
        (
            {"radio_joules": 0.0, "compute_joules": 0.0, "joules": {}},
            "lower_bound_joules must be at most energy_joules = 0.0",
        ),
        ({"scheme": None}, "scheme must be a name"),
    ],
)
def test_a_plan_made_in_python_is_checked_too(plan, change, message):
    with pytest.raises(fj.InvalidInputError, match=message):
        dataclasses.replace(plan, **change)


@pytest.mark.parametrize(
    ("rounds", "times", "trained"), [(0.0, 4, 1), (2.3, 4, 10), (2.3, 1, 3), (1e308, 4, 4 * int(1e308))]
)
def test_rounds_to_train_are_rounded_up_however_many(plan, rounds, times, trained):
    assert dataclasses.replace(plan, rounds=rounds).rounds_to_train(times) == trained


@pytest.mark.parametrize("steps", [range(1, 10**30), itertools.count(1)])
def test_choices_of_local_steps_without_end_are_refused(steps):
    problem = fj.Scenario.embedded().problem()
    with pytest.raises(fj.InvalidInputError, match="local_steps must offer 1 to 100000 choices, got more"):
        problem.with_choices(local_steps=steps)


def test_the_smallest_power_of_the_sparsity_is_planned_as_none():
    laws = [fj.PowerLawRounds(tau=50.0, c=0.1, a=0.5, q=q) for q in (1e-100, 1e-20)]
    problem = without_tails().problem()
    plans = [fj.solve(dataclasses.replace(problem, rounds=law)) for law in laws]
    assert plans[0].energy_joules == pytest.approx(plans[1].energy_joules, rel=1e-12)
    np.testing.assert_allclose(plans[0].sparsity, problem.sparsity[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fleet": "fleet.toml"}, r"fleet must be a fewjoules\.Fleet, got 'fleet.toml'"),
        ({"rounds": 150}, "rounds must be a rounds model, such as a fewjoules.PowerLawRounds, got 150"),
        ({"rounds": fj.PowerLawRounds}, "rounds must be a rounds model, .* got <class"),
        ({"downlink": 5}, "downlink must be 'free' or a Downlink, got 5"),
    ],
)
def test_a_problem_of_the_wrong_types_is_refused(change, message):
    with pytest.raises(fj.InvalidInputError, match=message):
        dataclasses.replace(fj.Scenario.embedded().problem(), **change)


@pytest.mark.parametrize("scheme", [fj.solve, *fj.schemes.SCHEMES.values()])
def test_only_a_problem_is_planned(scheme):
    with pytest.raises(fj.InvalidInputError, match=r"problem must be a fewjoules\.ControlProblem, got 5"):
        scheme(5)


@pytest.mark.parametrize("path", [5, None, True])
def test_only_a_path_is_saved_to_and_loaded(plan, path):
    for call in (plan.save, fj.Plan.load):
        with pytest.raises(fj.InvalidInputError, match=f"path must be the path of a file, got {path}"):
            call(path)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[1]", "null"])
def test_text_that_is_no_plan_is_refused(text):
    with pytest.raises(fj.InvalidInputError, match="here:"):
        plans_from_json(text, source="here")


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"sparsity": np.full(12, 3.0)}, False),
        ({"local_steps": 7}, False),
        ({"downlink_sparsity": 9.0}, False),
        ({"operating_points": np.zeros(12, dtype=np.int64)}, False),
        ({"recipe": fj.Recipe("fast", {"learning_rate": 1.0})}, False),
        ({"rounds": 1.0}, True),
    ],
)
def test_plans_are_alike_if_they_choose_alike(plan, change, same):
    assert dataclasses.replace(plan, **change).chooses_like(plan) is same
    assert plan.chooses_like(dataclasses.replace(plan, **change)) is same


def test_a_plan_of_version_3_is_read_and_goes_with_any_recipe(plan):
    document = json.loads(plans_to_json([plan]))
    del document["plans"][0]["recipe"], document["plans"][0]["participants"]
    (read,) = plans_from_json(json.dumps(document | {"version": 3}), source="here")
    assert read.recipe is None
    assert read.to_dict() == plan.to_dict() | {"participants": None}


def test_a_plan_of_version_4_is_read_and_goes_with_any_participation(plan):
    document = json.loads(plans_to_json([plan]))
    del document["plans"][0]["participants"]
    (read,) = plans_from_json(json.dumps(document | {"version": 4}), source="here")
    assert read.participants is None
    devices = plan.sparsity.size
    for count in range(1, devices + 1):
        read.require_participants(count, devices)
    assert read.participation_option(devices) == {}


def test_the_recipe_of_a_plan_is_saved_with_it_and_has_no_plan_of_its_own(plan, tmp_path):
    recipe = fj.Recipe(
        "fast", {"learning_rate": 0.2, "batch_size": None, "decay_rounds": [3]}, {"values": "int8"}, plan
    )
    chosen = dataclasses.replace(plan, recipe=recipe)
    assert chosen.recipe == recipe
    assert chosen.recipe.plan is None
    chosen.save(tmp_path / "plan.json")
    loaded = fj.Plan.load(tmp_path / "plan.json")
    assert loaded.recipe == recipe
    assert loaded.to_dict() == chosen.to_dict()


def test_the_recipe_of_a_plan_must_be_one(plan):
    with pytest.raises(fj.InvalidInputError, match=r"recipe must be a fewjoules\.Recipe, got dict"):
        dataclasses.replace(plan, recipe={"name": "fast"})
