"""Sections of reports and tables as plain values for the browser, which shows all text as text."""

from collections.abc import Sequence
from typing import Any

from fewjoules.reports.figure_words import Numbers
from fewjoules.reports.page_figures import Section
from fewjoules.reports.ranking import Ranking


def sections_json(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Return sections with their figures, words, legends and numbers."""
    return [
        {
            "title": one.title,
            "caption": one.caption,
            "panels": [{"figure": figure, "words": words} for figure, words in zip(one.panels, one.words, strict=True)],
            "legend": list(one.legend.items()),
            "numbers": None if one.numbers is None else numbers_json(one.numbers),
        }
        for one in sections
    ]


def numbers_json(numbers: Numbers) -> dict[str, Any]:
    """Return a table."""
    return {"titles": list(numbers.titles), "rows": [list(row) for row in numbers.rows]}


def ranking_json(ranking: Ranking) -> dict[str, Any]:
    """Return the table of a comparison with its colours and its best row."""
    return {
        "headline": ranking.headline,
        "remarks": list(ranking.remarks),
        "titles": list(ranking.titles),
        "rows": [list(cells) for cells, _, _ in ranking.rows],
        "colours": ["@ink" if look.colour == "#000000" else look.colour for _, look, _ in ranking.rows],
        "missed": [missed for _, _, missed in ranking.rows],
        "best": ranking.best if len(ranking.rows) > 1 else None,
    }
