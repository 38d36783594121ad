"""The joules that runs booked, by kind and by the mark that says where they come from, as tables."""

import math
from collections.abc import Callable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from fewjoules.provenance import KINDS, MARKS
from fewjoules.reports.comparison import comparison_table
from fewjoules.reports.figure_words import Numbers
from fewjoules.reports.numbers import number
from fewjoules.reports.seed_comparison import seed_table
from fewjoules.reports.seeds import SchemeRuns, grouped, several_seeds
from fewjoules.reports.split import Split, joules_of_kinds, joules_of_marks, with_shares
from fewjoules.runs.results import RunResults

Summed = Callable[[Split], dict[str, float]]


def outcome(runs: Sequence[RunResults], diverged: Mapping[str, int] | None = None) -> Group:
    """Return for the terminal what the runs took, and below it where those joules come from, if the runs tell it.

    ``diverged`` counts by scheme the seeds that have no run.
    """
    groups = grouped(runs, diverged)
    parts: list[RenderableType] = [seed_table(groups) if several_seeds(groups) else comparison_table(runs)]
    numbers = booked_by_mark(groups)
    if numbers is not None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for place, title in enumerate(numbers.titles):
            table.add_column(title, justify="right" if place else "left", no_wrap=True)
        for row in numbers.rows:
            table.add_row(*map(escape, row))
        parts += ["", table, ""]
    return Group(*parts)


def booked_by_mark(groups: Sequence[SchemeRuns]) -> Numbers | None:
    """Return the mean joules of each scheme by mark; None if no run tells them."""
    return _table(groups, MARKS, joules_of_marks)


def mean_joules_of_kinds(group: SchemeRuns) -> dict[str, float]:
    """Return the mean joules of a scheme by kind; nothing if a run does not tell them."""
    return _mean([joules_of_kinds(run.summary.joules_by_kind) for run in group.runs])


def booked_by_kind(groups: Sequence[SchemeRuns]) -> Numbers | None:
    """Return the mean joules of each scheme by kind; None if no run tells them."""
    return _table(groups, KINDS, joules_of_kinds)


def _table(groups: Sequence[SchemeRuns], names: Sequence[str], joules_of: Summed) -> Numbers | None:
    """Return a row for each scheme whose runs tell their joules; columns in which no scheme has any are left out."""
    told = [(group.name, _mean([joules_of(run.summary.joules_by_kind) for run in group.runs])) for group in groups]
    told = [(label, joules) for label, joules in told if joules]
    used = [name for name in names if any(name in joules for _, joules in told)]
    rows = [
        (label, number(sum(joules.values())), *(with_shares(joules).get(name, "0") for name in used))
        for label, joules in told
    ]
    return Numbers(("scheme", "J booked", *(f"{name} J" for name in used)), tuple(rows)) if rows else None


def _mean(splits: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each name over the runs of a scheme; nothing if a run does not tell its joules."""
    if not all(splits):
        return {}
    names = dict.fromkeys(name for split in splits for name in split)
    return {name: math.fsum(split.get(name, 0.0) for split in splits) / len(splits) for name in names}
