"""The runs of one scheme with several seeds, and what they come to: means, ranges, and ties with the best scheme."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fewjoules.reports.comparison import by_label, shared_target
from fewjoules.reports.ties import FEWEST_SEEDS, p_values, tied_with_best
from fewjoules.runs.results import RunResults


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and range of a number over the seeds."""

    mean: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Spread | None":
        """Return mean and range; None if a value is unknown or there is none."""
        known = [math.nan if value is None else float(value) for value in values]
        if not known or any(math.isnan(value) for value in known):
            return None
        return cls(math.fsum(known) / len(known), min(known), max(known))


@dataclass(frozen=True, slots=True, eq=False)
class SchemeRuns:
    """The finished runs of one scheme, at most one for each seed; ``diverged`` counts the seeds without one."""

    name: str
    runs: tuple[RunResults, ...]
    diverged: int = 0

    @property
    def seeds(self) -> int:
        """Number of seeds that the scheme was trained with."""
        return len(self.runs) + self.diverged

    @property
    def missed(self) -> int:
        """Number of runs that had a target and did not reach it."""
        return sum(run.summary.target is not None and not run.summary.reached for run in self.runs)

    @property
    def failed(self) -> bool:
        """Whether a seed missed the target or diverged."""
        return self.missed + self.diverged > 0

    def spread(self, quantity: str) -> Spread | None:
        """Return joules, rounds or seconds up to the target, or to the end of a run that missed it."""
        return Spread.of(
            getattr(run.summary, f"{quantity}_to_target" if run.summary.reached else quantity) for run in self.runs
        )

    def total(self, column: str) -> Spread | None:
        """Return a running total of the metrics up to the target, or to the end of a run that missed it."""
        return Spread.of(run.at_target(column) for run in self.runs)

    def at_end(self, quantity: str) -> Spread | None:
        """Return test_accuracy, test_loss, or what the target is about, tested, at the end of the runs."""
        return Spread.of(getattr(run.summary, quantity) for run in self.runs)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a scheme compares with the best: its mean joules as a multiple, and whether noise explains the difference."""

    times_least: float | None = None
    tied: bool | None = None
    p_value: float | None = None


def grouped(runs: Sequence[RunResults], diverged: Mapping[str, int] | None = None) -> list[SchemeRuns]:
    """Gather the runs of each scheme and rank the schemes: by mean joules, those of which a seed failed at the end."""
    gathered = [
        SchemeRuns(name, tuple(sorted(own, key=lambda run: run.summary.seed or 0)), (diverged or {}).get(name, 0))
        for name, own in by_label(runs).items()
    ]
    return sorted(gathered, key=_rank)


def by_rank(runs: Sequence[RunResults], diverged: Mapping[str, int] | None = None) -> list[RunResults]:
    """Return the runs in the order of their schemes' ranks, those of one scheme by seed."""
    return [run for group in grouped(runs, diverged) for run in group.runs]


def several_seeds(groups: Sequence[SchemeRuns]) -> bool:
    """Whether a scheme was trained with more than one seed."""
    return any(group.seeds > 1 for group in groups)


def verdicts(groups: Sequence[SchemeRuns]) -> list[Verdict]:
    """Compare each scheme with the best of those that reached the target with every seed."""
    runs = [run for group in groups for run in group.runs]
    ranked = [group for group in groups if not group.failed and group.spread("joules") is not None]
    if len(groups) < 2 or shared_target(runs) is None or not ranked:
        return [Verdict() for _ in groups]
    means = {group.name: spread.mean for group in ranked if (spread := group.spread("joules")) is not None}
    least = min(means.values())
    compared = _compared_by_seed(ranked)
    found = []
    for group in groups:
        mean = means.get(group.name)
        tied, p_value = compared.get(group.name, (None, None))
        found.append(Verdict(mean / least if mean is not None and least > 0.0 else None, tied, p_value))
    return found


def _compared_by_seed(ranked: Sequence[SchemeRuns]) -> dict[str, tuple[bool, float]]:
    """Return for each scheme whether it is tied with the first and how likely noise is; nothing if it cannot be told.

    It cannot with too few seeds, or where schemes have other seeds than the first.
    """
    by_seed = [{run.summary.seed: run.summary.joules_to_target or 0.0 for run in group.runs} for group in ranked]
    seeds = list(by_seed[0])
    if len(seeds) < FEWEST_SEEDS or any(set(own) != set(seeds) for own in by_seed):
        return {}
    joules = np.array([[own[seed] for seed in seeds] for own in by_seed])
    if not np.all(joules > 0.0):
        return {}
    tied, likely = tied_with_best(joules, 0), p_values(joules, 0)
    return {group.name: (bool(tied[place]), float(likely[place])) for place, group in enumerate(ranked)}


def _rank(group: SchemeRuns) -> tuple[bool, float, float]:
    joules, rounds = group.spread("joules"), group.spread("rounds")
    return group.failed, math.inf if joules is None else joules.mean, 0.0 if rounds is None else rounds.mean
