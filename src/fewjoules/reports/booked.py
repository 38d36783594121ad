"""The joules that runs booked, by kind and by the mark that says where they come from, as tables."""

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from fewjoules.provenance import KINDS, MARKS
from fewjoules.reports.comparison import comparison_table, labels, ranked
from fewjoules.reports.figure_words import Numbers
from fewjoules.reports.numbers import number
from fewjoules.reports.split import Split, joules_of_kinds, joules_of_marks, with_shares
from fewjoules.runs.results import RunResults

Summed = Callable[[Split], dict[str, float]]


def outcome(runs: Sequence[RunResults]) -> Group:
    """Return for the terminal what the runs took, and below it where those joules come from, if the runs tell it."""
    parts: list[RenderableType] = [comparison_table(runs)]
    numbers = booked_by_mark(ranked(runs))
    if numbers is not None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for place, title in enumerate(numbers.titles):
            table.add_column(title, justify="right" if place else "left", no_wrap=True)
        for row in numbers.rows:
            table.add_row(*map(escape, row))
        parts += ["", table, ""]
    return Group(*parts)


def booked_by_mark(runs: Sequence[RunResults]) -> Numbers | None:
    """Return the joules of each run by mark; None if no run tells them."""
    return _table(runs, MARKS, joules_of_marks)


def booked_by_kind(runs: Sequence[RunResults]) -> Numbers | None:
    """Return the joules of each run by kind; None if no run tells them."""
    return _table(runs, KINDS, joules_of_kinds)


def _table(runs: Sequence[RunResults], names: Sequence[str], joules_of: Summed) -> Numbers | None:
    """Return a row for each run that tells its joules; columns in which no run has any are left out."""
    told = [(label, joules_of(run.summary.joules_by_kind)) for label, run in zip(labels(runs), runs, strict=True)]
    told = [(label, joules) for label, joules in told if joules]
    used = [name for name in names if any(name in joules for _, joules in told)]
    rows = [
        (label, number(sum(joules.values())), *(with_shares(joules).get(name, "0") for name in used))
        for label, joules in told
    ]
    return Numbers(("scheme", "J booked", *(f"{name} J" for name in used)), tuple(rows)) if rows else None
