"""A ledger summed by kind and mark, a block at a time."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.ledger.schema import LEDGER
from fewjoules.ledger.sums import joules_by_kind
from fewjoules.provenance import KINDS, MARKS

JOULES = st.one_of(st.just(math.nan), st.floats(0.0, 1e6))
ROWS = st.lists(st.tuples(JOULES, st.sampled_from(range(len(MARKS)))), max_size=20)


def ledger_of(columns):
    rows = LEDGER.new_rows(max(map(len, columns.values())))
    for kind, entries in columns.items():
        for place, (joules, code) in enumerate(entries):
            rows[f"{kind}_joules"][place], rows[f"{kind}_mark"][place] = joules, code
    return rows


@given(st.fixed_dictionaries(dict.fromkeys(KINDS, ROWS)), st.integers(1, 7))
def test_the_sums_are_those_of_the_rows_that_are_known(columns, block):
    rows = ledger_of(columns)
    expected: dict[str, dict[str, list[float]]] = {}
    for kind, entries in columns.items():
        for joules, code in entries:
            if not math.isnan(joules):
                expected.setdefault(kind, {}).setdefault(MARKS[code], []).append(joules)
    found = joules_by_kind(rows[first : first + block] for first in range(0, rows.size, block))
    assert {kind: set(marks) for kind, marks in found.items()} == {k: set(marks) for k, marks in expected.items()}
    for kind, marks in found.items():
        for mark, joules in marks.items():
            assert math.isclose(joules, math.fsum(expected[kind][mark]), rel_tol=1e-15)


def test_kinds_and_marks_come_in_the_order_of_their_lists():
    rows = LEDGER.new_rows(4)
    for kind in KINDS:
        rows[f"{kind}_joules"], rows[f"{kind}_mark"] = 1.0, np.arange(3, -1, -1)
    assert [list(marks) for marks in joules_by_kind([rows]).values()] == [list(MARKS)] * 5
    assert list(joules_by_kind([rows])) == list(KINDS)


def test_without_a_fleet_there_are_no_sums():
    assert joules_by_kind([LEDGER.new_rows(3)]) == {}
