"""The page of a tuning, which works offline: the recipe, the race, every pilot, and the rounds law that they tell."""

from pathlib import Path

from fewjoules.files import whole_file
from fewjoules.reports.page import document, ranking_table, remark_list, scenario_texts
from fewjoules.reports.tuning import headline, ranked, ranking_cells, ranking_titles, sentences
from fewjoules.reports.tuning_figures import looks_of, sections
from fewjoules.runs.tuning import Tuning
from fewjoules.scenario import Scenario


def write_tuning_page(tuning: Tuning, target: Path, scenario: Scenario) -> None:
    """Write the page, under a temporary name until it is complete."""
    with whole_file(target) as stream:
        stream.write(tuning_page(tuning, scenario).encode("utf-8", "replace"))


def tuning_page(tuning: Tuning, scenario: Scenario) -> str:
    """Return the page as HTML."""
    looks = looks_of(tuning)
    rows = [
        (ranking_cells(row), looks[row.contender.name], row.contender.loss == float("inf")) for row in ranked(tuning)
    ]
    said = [f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in sentences(tuning)]
    above = [remark_list(said), ranking_table(ranking_titles(tuning), rows)]
    return document(scenario.name, headline(tuning), above, sections(tuning), scenario_texts([scenario.text]))
