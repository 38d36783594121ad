"""Claims about the trainings of Fig. 2, judged from StudyResults; claims_energy.py has those about joules.

Each function states its criterion. The criteria were committed after the first runs on MNIST and before all others.
Convergence is read from the training accuracy against epochs, as in Fig. 2(a) and 2(c). The levels of accuracy are the
targets of the study; a level that none of the compared schemes reaches with every seed is left out.

Three rules were added later:

- After a run of dense SGD had diverged: where schemes are compared with dense SGD, its diverged runs count up to there.
- After FlexibleSpar had missed a level that SynSgdSpar and dense SGD reach: a scheme that misses a level needs
  infinitely many epochs to reach it.
- After noise had decided a verdict: a scheme is worse than SynSgdSpar only if the ranges of their seeds do not overlap.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fewjoules_reproduction.claims import Claim
from fewjoules_reproduction.judge import FIGURE_NAMES, Finding, Judge, is_synchronous, judged
from fewjoules_reproduction.readings import NAMES
from fewjoules_reproduction.results import StudyResults, spread
from fewjoules_reproduction.tables_trainings import final_accuracy

SIMILAR = 0.1  # of the epochs
SLIGHT = 0.25  # more epochs
SIMILAR_ACCURACY = 0.005
SLIGHT_ACCURACY = 0.01
EARLY = 0.05  # of the run


def convergence_claims(results: StudyResults, figure: str) -> list[Claim]:
    """Claims about convergence and accuracy on one study."""
    return [judged(judge, results, figure) for judge in _JUDGES]


def _similar_rate(results: StudyResults) -> Finding:
    """A part for each level: epochs differ by at most 10 % or one evaluation, or the seeds' ranges overlap."""
    parts = []
    for level in _levels(results, ("flexible", "unified")):
        one, other = (_epochs(results, name, level) for name in ("flexible", "unified"))
        allowed = max(SIMILAR * min(spread(one)[0], spread(other)[0]), _epochs_between_evaluations(results, "flexible"))
        parts.append(abs(spread(one)[0] - spread(other)[0]) <= allowed or _overlap(one, other))
    return Finding(
        parts,
        _epochs_text(results, ("flexible", "unified")),
        "Both schemes plan H and have nearly the same mean sparsity.",
    )


def _similar_accuracy(results: StudyResults) -> Finding:
    """Two parts, training and test: final accuracies differ by at most 0.5 points, or the seeds' ranges overlap."""
    parts = []
    for column in ("train_accuracy", "test_accuracy"):
        one, other = (_final(results, name, column) for name in ("flexible", "unified"))
        parts.append(abs(spread(one)[0] - spread(other)[0]) <= SIMILAR_ACCURACY or _overlap(one, other))
    return Finding(
        parts,
        _final_text(results, ("flexible", "unified")),
        "Both schemes plan H and have nearly the same mean sparsity.",
    )


def _slightly_under_synchronous(results: StudyResults) -> Finding:
    """Two parts for each of the two schemes and each level: more epochs than SynSgdSpar, and more by at most 25 %.

    Two more for each scheme: a lower final training accuracy, and lower by at most 1 point. The ranges of the seeds
    must not overlap.
    """
    parts = []
    for name in ("flexible", "unified"):
        for level in _levels(results, (name, "synchronous")):
            ratio = _mean_epochs(results, name, level) / _mean_epochs(results, "synchronous", level)
            more = ratio > 1.0 and not _overlap(*(_epochs(results, one, level) for one in (name, "synchronous")))
            parts += [more, more and ratio <= 1.0 + SLIGHT]
        own, other = (_final(results, one, "train_accuracy") for one in (name, "synchronous"))
        gap = spread(other)[0] - spread(own)[0]
        under = gap > 0.0 and not _overlap(own, other)
        parts += [under, under and gap <= SLIGHT_ACCURACY]
    schemes = ("flexible", "unified", "synchronous")
    return Finding(
        parts,
        f"{_epochs_text(results, schemes)}; {_final_text(results, schemes)}",
        is_synchronous(results)
        or "Between synchronisations devices drift apart; the step size of each scheme is tuned by the same rule.",
    )


def _temporal_matters_more(results: StudyResults) -> Finding:
    """A part for each level, and one for the study's own pilot grid.

    At a level, epochs grow by a larger factor from SynSgdSpar to FlexibleSpar, which adds H, than from dense SGD to
    SynSgdSpar, which adds sparsity. Levels are left out if FlexibleSpar's H is 1. In the grid, local steps grow by a
    larger factor from the smallest to the largest H (geometric mean over sparsities) than from the smallest to the
    largest sparsity (geometric mean over H).
    """
    parts, texts = [], []
    nothing_added = is_synchronous(results)
    for level in () if nothing_added else _levels(results, ("flexible", "synchronous", "dense")):
        flexible, synchronous, dense = (
            _mean_epochs(results, name, level) for name in ("flexible", "synchronous", "dense")
        )
        temporal, gradient = flexible / synchronous, synchronous / dense
        parts.append(temporal > gradient)
        texts.append(f"to {100 * level:g} %: H {_factor(temporal)}, sparsity {_factor(gradient)}")
    grid = _grid_factors(results) if results.study.pilots == results.study.name else None
    if grid is not None:
        parts.append(grid[0] > grid[1])
        texts.append(f"pilot grid: H x{grid[0]:.2f}, sparsity x{grid[1]:.2f} in local steps")
    if nothing_added and not texts:
        texts.append("nothing to compare: no scheme has an H above 1 here, and the pilot runs used other data")
    why = nothing_added or "Factors by which epochs or local steps grow."
    if nothing_added and grid is not None:
        why += " The pilot grid alone decides."
    return Finding(parts, "; ".join(texts), why)


def _slow_at_first(results: StudyResults) -> Finding:
    """Two parts for each of the two schemes: worse than dense SGD at the start, and by less at the end.

    Worse at the start: the mean training accuracy over the first twentieth of the epochs is at least 1 point below
    dense SGD's.
    """
    parts, texts = [], []
    for name in ("flexible", "unified"):
        early, late = (
            _mean_accuracy(results, "dense", part) - _mean_accuracy(results, name, part)
            for part in ((0.0, EARLY), (1.0 - EARLY, 1.0))
        )
        slow = bool(early >= SLIGHT_ACCURACY)
        parts += [slow, slow and bool(late < early)]
        texts.append(f"{NAMES[name]} {100 * early:+.2f} at the start, {100 * late:+.2f} at the end")
    return Finding(
        parts,
        f"points of training accuracy below dense SGD: {'; '.join(texts)}",
        "Means over the first and the last twentieth of the epochs. A larger step size may compensate for a slow "
        f"start: {_step_sizes(results, ('flexible', 'unified', 'dense'))}.",
    )


def _no_sacrifice(results: StudyResults) -> Finding:
    """Two parts: FlexibleSpar's mean final test accuracy is at least that of dense SGD's worst seed; it is at most
    0.5 points below dense SGD's mean.
    """
    own = spread(_final(results, "flexible", "test_accuracy"))[0]
    mean, worst, _ = spread(_finished(_final(results, "dense", "test_accuracy")))
    if math.isnan(mean):
        return Finding([], "every run of dense SGD diverged", "There is nothing to compare with.")
    return Finding(
        [own >= worst, own >= mean - SIMILAR_ACCURACY],
        _final_text(results, ("flexible", "dense")),
        f"Both take the same number of local steps; {_step_sizes(results, ('flexible', 'dense'))}.",
    )


def _levels(results: StudyResults, names: Sequence[str]) -> list[float]:
    """Targets that at least one of the schemes reaches with every seed."""
    return [
        level
        for level in results.study.scale.targets
        if any(not math.isnan(spread(_epochs(results, name, level))[0]) for name in names)
    ]


def _epochs(results: StudyResults, name: str, level: float) -> list[float]:
    """Epochs after which each run's training accuracy first reached the level; NaN if it never did."""
    found = []
    for run in results.curves[name].runs:
        reached = np.flatnonzero(np.array(run["curve"]["train_accuracy"]) >= level)
        found.append(float(run["curve"]["epochs"][reached[0]]) if reached.size else math.nan)
    return found


def _mean_epochs(results: StudyResults, name: str, level: float) -> float:
    """Mean epochs to the level over the seeds; infinite if one did not reach it."""
    mean = spread(_epochs(results, name, level))[0]
    return math.inf if math.isnan(mean) else mean


def _epochs_between_evaluations(results: StudyResults, name: str) -> float:
    """Median number of epochs between two evaluations of the first run."""
    epochs = results.curves[name].runs[0]["curve"]["epochs"]
    return float(np.median(np.diff(epochs))) if len(epochs) > 1 else 0.0


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the ranges of two groups of seeds overlap; False if a group has one seed only or a failed one."""
    if min(len(one), len(other)) < 2 or any(map(math.isnan, (*one, *other))):
        return False
    return min(one) <= max(other) and min(other) <= max(one)


def _finished(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _final(results: StudyResults, name: str, column: str) -> list[float]:
    return [final_accuracy(run, column) for run in results.curves[name].runs]


def _mean_accuracy(results: StudyResults, name: str, part: tuple[float, float]) -> float:
    """Mean training accuracy over a part of the epochs and the runs that reach its end; NaN if there are none."""
    runs = [run["curve"] for run in results.curves[name].runs]
    end = max((epochs for curve in runs for epochs in curve["epochs"]), default=math.nan)
    means = [
        _mean_between(curve, part[0] * end, part[1] * end)
        for curve in runs
        if max(curve["epochs"], default=0.0) >= part[1] * end
    ]
    return float(np.mean(means)) if means else math.nan


def _mean_between(curve: Mapping[str, Sequence[float]], first: float, last: float) -> float:
    """Mean training accuracy between two epochs; an evaluation covers the epochs since the previous one."""
    ends = np.array([0.0, *curve["epochs"]])
    weights = np.clip(ends[1:], first, last) - np.clip(ends[:-1], first, last)
    return float(np.average(curve["train_accuracy"], weights=weights))


def _grid_factors(results: StudyResults) -> tuple[float, float] | None:
    """Growth of local steps from the smallest to the largest H and sparsity; None if the grid lacks such pairs."""
    if results.pilots is None:
        return None
    runs = results.pilots.runs
    steps = {
        (h, delta): h * rounds for h, delta, rounds in zip(runs.local_steps, runs.sparsity, runs.rounds, strict=True)
    }
    (least_h, most_h), (least, most) = ((column.min(), column.max()) for column in (runs.local_steps, runs.sparsity))
    by_h = [steps[most_h, d] / steps[least_h, d] for h, d in steps if h == least_h and (most_h, d) in steps]
    by_delta = [steps[h, most] / steps[h, least] for h, d in steps if d == least and (h, most) in steps]
    if not by_h or not by_delta:
        return None
    return float(np.exp(np.mean(np.log(by_h)))), float(np.exp(np.mean(np.log(by_delta))))


def _epochs_text(results: StudyResults, names: Sequence[str]) -> str:
    """Mean epochs to each level that some scheme reaches."""
    return "; ".join(
        f"to {100 * level:g} %: "
        + ", ".join(f"{FIGURE_NAMES[name]} {_number(spread(_epochs(results, name, level))[0])}" for name in names)
        + " epochs"
        for level in _levels(results, names)
    )


def _step_sizes(results: StudyResults, names: Sequence[str]) -> str:
    tuned = {name: results.curves[name].learning_rate for name in names}
    return "tuned step sizes " + ", ".join(f"{FIGURE_NAMES[name]} {rate:.3g}" for name, rate in tuned.items())


def _final_text(results: StudyResults, names: Sequence[str]) -> str:
    ranges = []
    for name in names:
        values = _final(results, name, "test_accuracy")
        mean, least, most = spread(_finished(values))
        lost = len(values) - len(_finished(values))
        diverged = f", {lost} of {len(values)} diverged" if lost else ""
        ranges.append(f"{FIGURE_NAMES[name]} {100 * mean:.2f} % ({100 * least:.2f} to {100 * most:.2f}{diverged})")
    return "final test accuracy " + ", ".join(ranges)


def _factor(value: float) -> str:
    return f"x{value:.2f}" if math.isfinite(value) else "infinite"


def _number(value: float) -> str:
    return "never" if math.isnan(value) else f"{value:.3g}"


_JUDGES = (
    Judge(
        "FlexibleSpar exhibits very similar behavior with UnifiedSpar in terms of convergence rate.",
        ("flexible", "unified"),
        _similar_rate,
    ),
    Judge(
        "FlexibleSpar exhibits very similar behavior with UnifiedSpar in terms of final accuracy.",
        ("flexible", "unified"),
        _similar_accuracy,
    ),
    Judge(
        "Both FlexibleSpar and UnifiedSpar slightly underperform SynSgdSpar.",
        ("flexible", "unified", "synchronous"),
        _slightly_under_synchronous,
    ),
    Judge(
        "Temporal sparsity has a more profound impact on convergence rate than gradient sparsity.",
        ("flexible", "synchronous", "dense"),
        _temporal_matters_more,
    ),
    Judge(
        "Both UnifiedSpar and FlexibleSpar slow down the convergence at initial.",
        ("flexible", "unified", "dense"),
        _slow_at_first,
    ),
    Judge(
        "Energy efficiency improves without sacrificing the learning performance (abstract).",
        ("flexible", "dense"),
        _no_sacrifice,
    ),
)
