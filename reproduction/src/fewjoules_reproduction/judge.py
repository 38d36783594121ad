"""Judge sentences about trainings: the schemes that a sentence needs, the finding, and the claim.

A sentence is split into parts, and the verdict says whether all, some or none of them hold. It is "not run" if a scheme
that the sentence needs has no run or if there is nothing to compare.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fewjoules_reproduction.claims import Claim, verdict
from fewjoules_reproduction.readings import NAMES
from fewjoules_reproduction.results import StudyResults

FIGURE_NAMES = NAMES | {"dense": "dense SGD"}


@dataclass(frozen=True)
class Finding:
    """Result of a judge: which parts hold, our number, and the reason."""

    parts: Sequence[bool]
    number: str
    why: str


@dataclass(frozen=True)
class Judge:
    """A sentence, the schemes that it needs, and the function that judges it."""

    sentence: str
    needs: tuple[str, ...]
    find: Callable[[StudyResults], Finding]


def judged(judge: Judge, results: StudyResults, figure: str) -> Claim:
    """Claim of a judge about a study; if a scheme has no run, it says so."""
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
    """A sentence if FlexibleSpar's plan synchronises after every step, otherwise an empty text."""
    if results.curves["flexible"].setting.local_steps > 1:
        return ""
    return "FlexibleSpar's plan has H = 1 here, which makes it SynSgdSpar."


def plain(value: float) -> str:
    """A number with three digits, or rounded to an integer from 1000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"
