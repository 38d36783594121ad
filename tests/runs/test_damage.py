"""A sample of tests/soak/damage.py: damaged files of a run are noticed, or do no harm, and nothing is lost."""

import itertools

import pytest

from tests.soak.damage import GOOD, attempts, cases_in

SAMPLE = 25  # attempts for each folder


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
