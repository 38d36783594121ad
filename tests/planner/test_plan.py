"""Plans are saved and loaded without losing a bit; damaged files are refused."""

import json

import numpy as np
import pytest

import fewjoules as fj
from fewjoules.planner.plan import PLAN_KEYS, plans_from_json, plans_to_json


@pytest.fixture
def plan() -> fj.Plan:
    return fj.solve(fj.Scenario.embedded().problem())


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
        (lambda d: d | {"version": 2}, "version must be 1, got 2"),
        (lambda d: d | {"plans": None}, "plans must be a list"),
        (lambda d: d | {"plans": []}, "exactly 1 plan, got 0"),
        (lambda d: d | {"plans": [d["plans"][0] | {"luck": 1}]}, "luck"),
        (lambda d: d | {"plans": [d["plans"][0] | {"sparsity": [0.5]}]}, r"sparsity\[0\] must be .* at least 1"),
        (lambda d: d | {"plans": [d["plans"][0] | {"local_steps": 0}]}, "local_steps must be"),
        (lambda d: d | {"plans": [d["plans"][0] | {"rounds": "many"}]}, "rounds must be"),
        (lambda d: d | {"plans": [d["plans"][0] | {"energy_joules": 1.0}]}, "energy_joules must be radio_joules"),
        (lambda d: d | {"plans": ["plan"]}, "exactly the keys"),
    ],
)
def test_a_damaged_plan_is_refused_by_name(plan, tmp_path, damage, message):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(damage(json.loads(plans_to_json([plan])))))
    with pytest.raises(fj.InvalidInputError, match=message) as refusal:
        fj.Plan.load(file)
    assert str(file) in str(refusal.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[1]", "null"])
def test_text_that_is_no_plan_is_refused(text):
    with pytest.raises(fj.InvalidInputError, match="here:"):
        plans_from_json(text, source="here")
