"""The files that a comparison leaves in its folder beside those of its runs. docs/ledger.md describes them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fewjoules.files import whole_file
from fewjoules.reports.comparison_file import NOT_TOLD, comparison_json
from fewjoules.reports.page import write_page
from fewjoules.runs.files import COMPARISON, PAGE
from fewjoules.runs.results import RunResults
from fewjoules.scenario.schema.recipe import RecipeSearch


def write_comparison(
    folder: Path,
    title: str,
    runs: Sequence[RunResults],
    diverged: Mapping[str, int],
    *,
    seeds: Sequence[int],
    rates: Mapping[str, float],
    search: RecipeSearch = NOT_TOLD,
) -> str:
    """Write page.html and comparison.json, and return the text of the latter."""
    text = comparison_json(title, runs, diverged, seeds=seeds, rates=rates, search=search)
    write_page(runs, folder / PAGE, title, diverged, search)
    with whole_file(folder / COMPARISON) as stream:
        stream.write((text + "\n").encode())
    return text
