"""Joules by kind, and by the mark that says where they come from, as text."""

from collections.abc import Iterable, Mapping

from fewjoules.provenance import KINDS, MARKS
from fewjoules.reports.numbers import brief

Split = Mapping[str, Mapping[str, float]]  # joules by kind and mark


def joules_of_kinds(split: Split) -> dict[str, float]:
    """Return the joules of each kind; kinds without any are left out."""
    return _without_zeros((kind, sum(split.get(kind, {}).values())) for kind in KINDS)


def joules_of_marks(split: Split) -> dict[str, float]:
    """Return the joules of each mark; marks without any are left out."""
    return _without_zeros((mark, sum(marks.get(mark, 0.0) for marks in split.values())) for mark in MARKS)


def with_shares(joules: Mapping[str, float]) -> dict[str, str]:
    """Return joules as text, each with its share of their sum."""
    total = sum(joules.values())
    return {name: f"{brief(value)} ({_share(value / total)})" for name, value in joules.items()}


def listed(cells: Mapping[str, str]) -> str:
    """Return names and their texts as one list."""
    return ", ".join(f"{name} {text}" for name, text in cells.items())


def _without_zeros(sums: Iterable[tuple[str, float]]) -> dict[str, float]:
    return {name: joules for name, joules in sums if joules > 0.0}


def _share(share: float) -> str:
    return "< 1 %" if share < 0.005 else f"{100.0 * share:.0f} %"
