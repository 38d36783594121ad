"""The page of concepts shows the pictures that its script draws, and quotes the numbers that it computes."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
MAX_BYTES = 150_000
NUMBER = re.compile(r"\d+(?:\.\d+)?")
TOLERANCE = {"error-feedback": 1.0}  # rounding of another processor may move a training a little, but no plan


def is_quoted(phrase: str, text: str, tolerance: float) -> bool:
    """Whether the text has the phrase, with a first number that differs by at most the tolerance."""
    before, after = NUMBER.split(phrase, maxsplit=1)
    told = re.findall(rf"(?<![\d.]){re.escape(before)}({NUMBER.pattern}){re.escape(after)}", text)
    return any(abs(float(one) - float(NUMBER.search(phrase)[0])) <= tolerance for one in told)


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import figures

    return figures


def test_the_page_quotes_what_its_figures_compute(figures, tmp_path):
    said = figures.draw(tmp_path)
    for name, phrases in said.items():
        picture = PAGE.index(f"images/concepts/{name}.svg")
        section = " ".join(PAGE[PAGE.rindex("\n## ", 0, picture) : PAGE.find("\n## ", picture)].split())
        missing = [phrase for phrase in phrases if not is_quoted(phrase, section, TOLERANCE.get(name, 0.0))]
        assert missing == [], name
        assert (tmp_path / f"{name}.svg").stat().st_size < MAX_BYTES


def test_the_pictures_of_the_page_are_those_that_are_drawn(figures):
    shown = set(re.findall(r"images/concepts/([\w-]+)\.svg", PAGE))
    assert shown == set(figures.DRAWINGS)
    assert {path.stem for path in (ROOT / "docs" / "images" / "concepts").iterdir()} == shown


def test_the_table_of_h_and_sparsity_is_computed(figures):
    rows = figures.two_dials()
    assert [row for row in rows if row not in PAGE] == []


@pytest.mark.parametrize(
    ("phrase", "tolerance", "quoted"),
    [("12 times", 0.0, True), ("11 times", 0.0, False), ("11.5 times", 1.0, True), ("2 times", 0.0, False)],
)
def test_a_phrase_is_found_by_its_words_and_its_number(phrase, tolerance, quoted):
    assert is_quoted(phrase, "It costs 12 times as much.", tolerance) is quoted
