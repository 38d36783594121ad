"""What a comparison comes to, for the page and the studio: a headline, remarks, and a table with the best marked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fewjoules.reports.comparison import column_titles, comparison_rows, remarks
from fewjoules.reports.curves import Look, looks
from fewjoules.reports.lever_words import price_sentences
from fewjoules.reports.seed_comparison import main_sentence, seed_remarks, seed_rows, seed_titles
from fewjoules.reports.seeds import SchemeRuns, grouped, rank, several_seeds
from fewjoules.runs.results import RunResults
from fewjoules.scenario.schema.recipe import RecipeSearch

RankedRow = tuple[Sequence[str], Look, bool]  # cells, look, and whether the target was missed


@dataclass(frozen=True, slots=True)
class Ranking:
    """A headline, remarks, titles and rows of a table, and the place of the best row."""

    headline: str
    remarks: tuple[str, ...]
    titles: tuple[str, ...]
    rows: tuple[RankedRow, ...]
    best: int


def ranking_of(
    runs: Sequence[RunResults], diverged: Mapping[str, int] | None = None, search: RecipeSearch | None = None
) -> Ranking:
    """Return what runs in the order of their table come to.

    ``diverged`` counts by scheme the seeds that have no run, and ``search`` is what finding the recipe took.
    """
    groups = grouped(runs, diverged)
    over_seeds = several_seeds(groups)
    titles = seed_titles(groups) if over_seeds else column_titles(runs)
    rows = _rows_of_seeds(groups) if over_seeds else _rows_of_runs(runs)
    price = [] if search is None else price_sentences(groups, search)
    said = (*(seed_remarks(groups) if over_seeds else remarks(runs)), *price)
    return Ranking(main_sentence(runs, groups), said, titles, tuple(rows), _place_of_best(rows, groups))


def _rows_of_runs(runs: Sequence[RunResults]) -> list[RankedRow]:
    look_of = {id(run): look for run, look in zip(runs, looks(runs), strict=True)}
    return [(row.cells, look_of[id(row.run)], row.missed) for row in comparison_rows(runs)]


def _rows_of_seeds(groups: Sequence[SchemeRuns]) -> list[RankedRow]:
    look_of = {look.label: look for look in looks([run for group in groups for run in group.runs])}
    return [(row.cells, look_of[row.cells[0]], row.failed) for row in seed_rows(groups)]


def _place_of_best(rows: Sequence[RankedRow], groups: Sequence[SchemeRuns]) -> int:
    best = min(groups, key=rank).name
    return next(place for place, (cells, _, _) in enumerate(rows) if cells[0] == best)
