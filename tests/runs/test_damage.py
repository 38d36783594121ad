"""A sample of tests/soak/damage.py: damaged files of a run are noticed, or do no harm, and nothing is lost."""

import itertools

import pytest

from tests.soak.damage import GOOD, attempts, cases_in

SAMPLE = 25  # attempts for each folder
ONCE_WRONG = (  # in a whole campaign
    ("stopped training", "settings.json: command = value 16"),
    ("stopped training", "plan.json: plans.0.lower_bound_joules = value 0"),
    ("stopped training", "checkpoint.safetensors: parts.ledger.part-00000001-00000001.parquet = value 16"),
    ("stopped comparison", "settings.json: schemes.0 = value 16"),
    ("stopped comparison", "flexible/plan.json: plans.0.sparsity = value 17"),
    ("stopped comparison", "dense/checkpoint.safetensors: last_test = value 12"),
    ("finished comparison", "dense/plan.json: plans.0.sparsity = value 17"),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("damage")
    return place / "run", {case.name: case for case in cases_in(place)}


@pytest.mark.parametrize(
    "name",
    ["stopped training", "export", "finished training", "stopped comparison", "finished comparison"],
)
def test_damage_is_noticed_or_does_no_harm(name, folders):
    folder, cases = folders
    todo = list(attempts(cases[name], folder, 10))
    chosen = itertools.islice(todo, 7, None, max(1, len(todo) // SAMPLE))
    found = {what: judge() for what, judge in chosen}
    assert len(found) >= SAMPLE
    assert {what: verdict for what, verdict in found.items() if verdict not in GOOD} == {}
    assert "refused" in found.values()


@pytest.mark.parametrize(("name", "what"), ONCE_WRONG)
def test_damage_that_once_went_wrong_is_refused(name, what, folders):
    folder, cases = folders
    judge = dict(attempts(cases[name], folder, 10))[what]
    assert judge() == "refused"
