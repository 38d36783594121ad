"""Levers in a comparison: shown in their order, not ranked, each with its joules over those of the one before."""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from fewjoules.planner.levers import AVERAGING, LEVERS, OPTIMISER, STEP_SIZE, VALUES


def label_of(scheme: str) -> str:
    """Return how tables call a scheme."""
    return LEVERS.get(scheme, scheme)


def shows_levers(schemes: Iterable[str]) -> bool:
    """Whether some of the schemes are levers: flexible and fewest alone are ranked as others are."""
    known = set(schemes)
    return bool(known & {STEP_SIZE, OPTIMISER, AVERAGING, VALUES}) and len(known & set(LEVERS)) > 1


def place_of(scheme: str, schemes: Iterable[str]) -> int:
    """Return where a scheme stands before schemes are ranked: levers in their order, all others behind them."""
    return list(LEVERS).index(scheme) if scheme in LEVERS and shows_levers(schemes) else len(LEVERS)


def times_before(joules: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the joules of each lever but the first over those of the lever before it; None where one is unknown.

    ``joules`` are those to the target by scheme, None where it was missed. Without levers the answer is empty.
    """
    if not shows_levers(joules):
        return {}
    levers = [name for name in LEVERS if name in joules]
    found: dict[str, float | None] = {}
    for before, name in pairwise(levers):
        own, other = joules[name], joules[before]
        found[name] = own / other if own is not None and other else None
    return found
