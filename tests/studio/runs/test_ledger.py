"""What a filter of the ledger shows, sums and saves is what pandas and polars find in the same table."""

import csv
import io

import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.errors import InvalidInputError
from fewjoules.ledger import parquet
from fewjoules.ledger.parquet import write_table
from fewjoules.ledger.schema import LEDGER
from fewjoules.provenance import KINDS
from fewjoules.studio.runs import ledger_table
from fewjoules.studio.runs.ledger_filter import LedgerFilter
from fewjoules.studio.runs.ledger_sums import joules_of_devices, sums_of, totals_of
from fewjoules.studio.runs.ledger_table import Devices, csv_lines, page_of
from fewjoules.studio.runs.ledger_view import ledger_csv, ledger_view
from tests.studio.client import with_studio
from tests.studio.runs.made import FOLDER, HOSTILE


def asked(workspace, **query):
    return ledger_view(workspace, {"folder": FOLDER} | {key: str(value) for key, value in query.items()})


@pytest.fixture(scope="module")
def frame(results):
    return fj.Run.load(results / FOLDER).to_polars("ledger")


def test_the_whole_ledger_agrees_with_the_table_of_the_run(workspace, frame):
    view = asked(workspace, size=500)
    assert view["total"] == frame.height == len(view["rows"])
    for name, total in view["sums"].items():
        assert total == pytest.approx(frame[name].sum(), rel=1e-12)
    for place, name in enumerate(view["columns"]):
        if name in frame.columns:
            assert [row[place] for row in view["rows"]] == frame[name].to_list()


def test_a_filter_shows_and_sums_what_polars_finds(workspace, frame):
    view = asked(workspace, group=HOSTILE, **{"from": 2, "to": 4}, kind="uplink", sort="uplink_joules", order="falling")
    wanted = frame.filter(
        polars.col("device").is_in([2, 3]) & polars.col("round").is_between(2, 4) & (polars.col("uplink_joules") > 0)
    ).sort("uplink_joules", descending=True, maintain_order=True)
    assert view["total"] == wanted.height == 6
    place = view["columns"].index("uplink_joules")
    assert [row[place] for row in view["rows"]] == wanted["uplink_joules"].to_list()
    assert view["sums"]["uplink_joules"] == pytest.approx(wanted["uplink_joules"].sum(), rel=1e-12)
    assert {row[view["columns"].index("group")] for row in view["rows"]} == {HOSTILE}
    assert {row[view["columns"].index("uplink_mark")] for row in view["rows"]} <= {"measured", "fitted", "assumed"}


def test_the_line_of_python_finds_the_same_rows(workspace, results, monkeypatch):
    import pandas

    monkeypatch.chdir(results)
    view = asked(workspace, device="1, far #1", **{"from": 2}, kind="compute", size=500)
    found = eval(view["command"], {"pandas": pandas})
    assert len(found) == view["total"] == 8
    assert found["compute_joules"].sum() == pytest.approx(view["sums"]["compute_joules"], rel=1e-12)


@pytest.mark.parametrize("sort", ["", "payload_bytes", "name"])
def test_pages_follow_each_other_without_a_gap(results, sort):
    devices = Devices(("a", "b", "c", "d"), ("a", "b", "c", "d"))

    def page(number, size):
        return page_of(results / FOLDER, LedgerFilter(), devices, page=number, size=size, sort=sort, falling=True)

    whole = page(1, 500)["rows"]
    assert len(whole) == 20
    assert [row for number in (1, 2, 3) for row in page(number, 7)["rows"]] == whole
    assert page(1, 7)["pages"] == 3


def test_the_csv_is_exactly_what_is_filtered(workspace, frame):
    query = {"folder": FOLDER, "device": HOSTILE[:8].upper(), "to": "3"}
    rows = list(csv.DictReader(io.StringIO("".join(ledger_csv(workspace, query)))))
    wanted = frame.filter(polars.col("device").is_in([2, 3]) & (polars.col("round") <= 3))
    assert len(rows) == wanted.height == 6
    assert [float(row["uplink_joules"]) for row in rows] == wanted["uplink_joules"].to_list()
    assert [int(row["round"]) for row in rows] == wanted["round"].to_list()
    assert {row["name"] for row in rows} == {f"{HOSTILE} #1", f"{HOSTILE} #2"}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"from": "x"}, "from must be a whole number from 0 to"),
        ({"to": "-1"}, "to must be a whole number"),
        ({"to": "9" * 400}, "to must be a whole number"),
        ({"to": "0" * 12 + "9" * 30}, "to must be a whole number"),
        ({"kind": "radio"}, "kind must be one of uplink, downlink, tail, compute, codec"),
        ({"sort": "tail_mark"}, "sort must be one of round"),
        ({"page": "0"}, "page must be a whole number from 1"),
        ({"size": "7"}, "size must be one of 25"),
    ],
)
def test_bad_filters_are_refused_by_one_sentence(workspace, query, says):
    with pytest.raises(InvalidInputError, match=says):
        asked(workspace, **query)


ROWS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 3), st.one_of(st.just(np.nan), st.floats(0.0, 1e3))), max_size=60
)


@given(
    ROWS,
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from(["", *KINDS]),
    st.sampled_from(["", "0", "1-2", "b", "a,d"]),
)
def test_any_filter_of_any_ledger_agrees_with_a_plain_loop(tmp_path_factory, made, first, last, kind, device):
    folder = tmp_path_factory.mktemp("ledger")
    table = LEDGER.new_rows(len(made))
    made.sort(key=lambda one: one[0])
    for place, (number, owner, joules) in enumerate(made):
        table[place]["round"], table[place]["device"] = number, owner
        for name in KINDS:
            table[place][f"{name}_joules"] = joules
    names = Devices(("a", "b", "bb", "d"), ("x", "x", "y", "y"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "GROUP_ROWS", 7)  # several row groups
        write_table(folder / "ledger.parquet", LEDGER, [table])
        chosen = {"": {0, 1, 2, 3}, "0": {0}, "1-2": {1, 2}, "b": {1}, "a,d": {0, 3}}[device]
        wanted = [
            (number, owner, joules)
            for number, owner, joules in made
            if first <= number <= last and owner in chosen and (not kind or joules > 0.0)
        ]
        told = LedgerFilter(device=device, first_round=first, last_round=last, kind=kind)
        view = page_of(folder, told, names, page=1, size=500, sort="", falling=False)
        lines = "".join(csv_lines(folder, told, names)).splitlines()
        column = f"{kind or 'tail'}_joules"
        falling = page_of(folder, told, names, page=1, size=500, sort=column, falling=True)
    assert [(row[0], row[1]) for row in view["rows"]] == [(number, owner) for number, owner, _ in wanted]
    assert view["total"] == len(wanted) == len(lines) - 1
    assert view["sums"][column] == pytest.approx(sum(joules for *_, joules in wanted if joules == joules))
    order = [row[falling["columns"].index(column)] for row in falling["rows"]]
    known = [joules for joules in order if joules is not None]
    assert known == sorted(known, reverse=True)
    assert order[len(known) :] == [None] * (len(order) - len(known))


def test_sums_by_round_device_and_mark_are_those_of_the_run(results, frame):
    sums = sums_of(results / FOLDER)
    totals = totals_of(sums)
    summary = fj.Run.load(results / FOLDER)
    np.testing.assert_allclose(sum(one[-1] for one in totals.joules.values()), summary.energy_joules, rtol=1e-12)
    metrics = summary.metrics["total_joules"]
    np.testing.assert_allclose(np.sum(list(totals.joules.values()), axis=0), metrics, rtol=1e-9)
    by_device = frame.group_by("device").agg(polars.col("uplink_joules").sum()).sort("device")
    np.testing.assert_allclose(joules_of_devices(sums, 4)["uplink"], by_device["uplink_joules"].to_numpy())


def test_a_ledger_of_millions_is_paged_without_reading_it_whole(results, monkeypatch):
    read = []
    real = ledger_table.read_group
    monkeypatch.setattr(ledger_table, "read_group", lambda *given: read.append(given) or real(*given))
    monkeypatch.setattr(ledger_table, "groups_of", lambda *_: [(20, 1, 5), *[(65_536, 6, 9)] * 150])
    ledger_table.matches_of.cache_clear()
    names = Devices(("a", "b", "c", "d"), ("a", "b", "c", "d"))
    told = LedgerFilter(last_round=3)
    view = page_of(results / FOLDER, told, names, page=1, size=25, sort="", falling=False)
    ledger_table.matches_of.cache_clear()
    assert view["total"] == 12
    assert {given[2] for given in read} == {0}
    assert "samples" not in read[0][3]
    monkeypatch.setattr(ledger_table, "MOST_SORTED", 5)
    with pytest.raises(InvalidInputError, match="at most 5 rows are sorted, got 12"):
        page_of(results / FOLDER, told, names, page=1, size=25, sort="tail_joules", falling=False)


def test_names_that_a_spreadsheet_would_run_get_an_apostrophe():
    assert [ledger_table.csv_cell(value) for value in ("=1+1", "@x", "-5 dB", -5.0, None, True)] == [
        "'=1+1",
        "'@x",
        "'-5 dB",
        -5.0,
        "",
        "true",
    ]


def test_the_csv_comes_as_a_file(results):
    async def ask(studio):
        response = await studio.get(f"/api/runs/ledger.csv?folder={FOLDER}&to=2")
        refused, status = await studio.json(f"/api/runs/ledger.csv?folder={FOLDER}&to=x")
        return await response.text(), response.headers, refused, status

    text, headers, refused, status = with_studio(results, ask)
    assert len(text.splitlines()) == 9
    assert headers["Content-Disposition"] == 'attachment; filename="ledger.csv"'
    assert (status, refused["error"].startswith("to must be")) == (422, True)
