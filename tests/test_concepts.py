"""The page of concepts shows the pictures that its script draws, and quotes the numbers that it computes."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
MAX_BYTES = 150_000


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import figures

    return figures


def test_the_page_quotes_what_its_figures_compute(figures, tmp_path):
    said = figures.draw(tmp_path)
    for name, phrases in said.items():
        picture = PAGE.index(f"images/concepts/{name}.svg")
        section = PAGE[PAGE.rindex("\n## ", 0, picture) : PAGE.find("\n## ", picture)]
        assert [phrase for phrase in phrases if phrase not in section] == [], name
        assert (tmp_path / f"{name}.svg").stat().st_size < MAX_BYTES


def test_the_pictures_of_the_page_are_those_that_are_drawn(figures):
    shown = set(re.findall(r"images/concepts/([\w-]+)\.svg", PAGE))
    assert shown == set(figures.DRAWINGS)
    assert {path.stem for path in (ROOT / "docs" / "images" / "concepts").iterdir()} == shown


def test_the_table_of_h_and_sparsity_is_computed(figures):
    rows = figures.two_dials()
    assert [row for row in rows if row not in PAGE] == []
