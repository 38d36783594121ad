"""A table in a narrow terminal: columns are left out, and no number is cut."""

import io

import pytest
from rich.console import Console

from fewjoules.reports.booked import outcome
from fewjoules.reports.fitting import SPARE, FittingTable
from tests.reports.test_levers import made, seeds_of

TABLE = FittingTable(("scheme", "J", "payload", "seconds"), [("flexible", "10.14", "2.075 MB", "0.4583")])


def printed(table, width):
    output = io.StringIO()
    Console(file=output, width=width, highlight=False).print(table)
    return [line.split() for line in output.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (34, ["scheme", "J", "payload", "seconds"]),
        (33, ["scheme", "J", "seconds"]),
        (24, ["scheme", "J", "seconds"]),
        (23, ["scheme", "J"]),
    ],
)
def test_columns_are_left_out_only_where_there_is_no_room(width, titles):
    head, row = printed(TABLE, width)
    assert head == titles
    assert row[:2] == ["flexible", "10.14"]


@pytest.mark.parametrize("seeds", [1, 3])
def test_levers_fit_a_terminal_of_80_characters(tmp_path, seeds):
    own = {"flexible": 10.0, "step_size": 8.0, "optimiser": 6.0, "fewest": 5.0}
    runs = made(tmp_path) if seeds == 1 else seeds_of(tmp_path, **{name: (j, j, j) for name, j in own.items()})
    output = io.StringIO()
    Console(file=output, width=80, highlight=False).print(outcome(runs))
    text = output.getvalue()
    assert "…" not in text
    assert "x before" in text
    assert "+ step size" in text


def test_a_wide_terminal_has_every_column(tmp_path):
    output = io.StringIO()
    Console(file=output, width=120, highlight=False).print(outcome(made(tmp_path)))
    head = output.getvalue().splitlines()[0]
    assert all(title in head for title in SPARE if title != "least to most")


def test_names_are_no_markup():
    rows = printed(FittingTable(("scheme", "J"), [("[red]x", "1")], frozenset({0})), 40)
    assert rows[1] == ["[red]x", "1"]
