"""A sample of soak_records.py: damaged records are noticed, or do no harm."""

import random

from tests.soak.damage import GOOD

from soak_records import attempt, attempts, made_in, outcome_of, small_studies


def test_damaged_records_are_noticed_or_do_no_harm(tmp_path, monkeypatch):
    small_studies(monkeypatch)
    files = made_in(tmp_path)
    expected = outcome_of(tmp_path)
    todo = random.Random(1).sample(list(attempts(files, 10)), 60)
    found = {
        f"{file.name}: {what}": attempt(tmp_path, file, spoilt, expected, may_differ=may_differ)
        for file, what, spoilt, may_differ in todo
    }
    assert {what: verdict for what, verdict in found.items() if verdict not in GOOD} == {}
    assert list(found.values()).count("refused") > 20
