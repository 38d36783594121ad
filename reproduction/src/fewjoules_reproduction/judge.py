"""How a sentence about trainings is judged: what it needs, what was found, and the claim that follows.

A sentence is split into parts; the verdict says whether all hold, some or none, and "not run" where a scheme that it
needs has no run or where there is nothing to compare.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fewjoules_reproduction.claims import Claim, verdict
from fewjoules_reproduction.readings import NAMES
from fewjoules_reproduction.results import StudyResults

FIGURE_NAMES = NAMES | {"dense": "dense SGD"}


@dataclass(frozen=True)
class Finding:
    """What a judge found: parts that hold or not, our number, and why."""

    parts: Sequence[bool]
    number: str
    why: str


@dataclass(frozen=True)
class Judge:
    """A sentence, the schemes without which it cannot be judged, and the function that judges it."""

    sentence: str
    needs: tuple[str, ...]
    find: Callable[[StudyResults], Finding]


def judged(judge: Judge, results: StudyResults, figure: str) -> Claim:
    """The claim, or one that says what was not run."""
    runs = {name: len(results.curves[name].runs) if name in results.curves else 0 for name in judge.needs}
    missing = [FIGURE_NAMES[name] for name, count in runs.items() if count == 0]
    if missing:
        found = Finding([], f"no run of {', '.join(missing)}", "The training has no record yet.")
    else:
        found = judge.find(results)
    seeds = min(runs.values())
    return Claim(
        figure=figure,
        sentence=judge.sentence,
        verdict=verdict(found.parts) if found.parts else "not run",
        number=found.number or "nothing to compare: no run reached a target, or no law was fitted",
        why=found.why,
        reading=f"{results.study.title}, {seeds} seed{'' if seeds == 1 else 's'}",
    )


def is_synchronous(results: StudyResults) -> str:
    """Says so if FlexibleSpar's plan synchronises after every step; else empty."""
    if results.curves["flexible"].setting.local_steps > 1:
        return ""
    return "FlexibleSpar's plan has H = 1 here: it is SynSgdSpar."


def plain(value: float) -> str:
    """Three digits, or a whole number from 1000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"
