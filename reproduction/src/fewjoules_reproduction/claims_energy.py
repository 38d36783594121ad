"""Claims about joules in Fig. 2, and our own about predictions; claims_trainings.py has the others.

Joules to a target are the mean over seeds of the energy that all devices had used when the test accuracy first reached
the target. If a run missed it, the joules of the whole run are a lower bound; a part that the bound does not decide
fails. A target that all the compared schemes miss is left out. The criteria were committed after the first runs on
MNIST and before all others.
"""

import math

import numpy as np

from fewjoules_reproduction.claims import Claim
from fewjoules_reproduction.judge import FIGURE_NAMES, Finding, Judge, is_synchronous, judged, plain
from fewjoules_reproduction.results import StudyResults
from fewjoules_reproduction.tables_trainings import PLANNED, predictions_table

LEAST_SAVING = 1.5  # as a factor
VISIBLE = 0.01
GOOD_PREDICTION = 0.2
OTHERS = ("unified", "greedy", "synchronous", "dense")
LAW_NAMES = {"power-law": "power law", "paper": "paper's form"}


def energy_claims(results: StudyResults, figure: str) -> list[Claim]:
    """Claims about joules on one study."""
    return [judged(judge, results, figure) for judge in _JUDGES]


def prediction_claims(results: StudyResults, figure: str) -> list[Claim]:
    """Our own claims on one study: predictions are accurate, and the power law gives the best plans."""
    return [judged(judge, results, figure) for judge in _OURS]


def _saves(results: StudyResults) -> Finding:
    """A part for each other scheme and target: it takes at least 1.5 times FlexibleSpar's joules."""
    parts, texts = [], []
    for target in _targets(results, ("flexible", *OTHERS)):
        own, reached = _joules(results, "flexible", target)
        ratios = []
        for name in OTHERS:
            other, bounded = _joules(results, name, target)
            parts.append(reached and other / own >= LEAST_SAVING)
            ratios.append(f"{FIGURE_NAMES[name]} {'' if bounded else 'over '}{plain(other / own)}")
        missed = f"FlexibleSpar reaches it with {_seeds(results, 'flexible', target)} only"
        texts.append(f"at {100 * target:g} %: " + (", ".join(ratios) if reached else missed))
    held = f"{sum(parts)} of {len(parts)} ratios are 1.5 or more; joules divided by FlexibleSpar's "
    return Finding(
        parts,
        held + "; ".join(texts) if texts else "",
        is_synchronous(results)
        or "Savings depend on the cost of a bit relative to a step: the energy of the steps remains, whatever is sent.",
    )


def _dense_worst(results: StudyResults) -> Finding:
    """A part for each target: dense SGD and the four schemes reach it, and it takes visibly more joules than each."""
    parts, texts = [], []
    for target in _targets(results, ("flexible", *OTHERS)):
        dense, reached = _joules(results, "dense", target)
        others = {name: _joules(results, name, target) for name in ("flexible", *OTHERS) if name != "dense"}
        parts.append(reached and all(done and dense >= (1.0 + VISIBLE) * joules for joules, done in others.values()))
        done = {name: joules for name, (joules, known) in others.items() if known}
        most = max(done, key=lambda name: done[name], default="")
        beside = f", next {FIGURE_NAMES[most]} {plain(done[most])} J" if most else ""
        missed = "".join(
            f", {FIGURE_NAMES[name]} reaches it with {_seeds(results, name, target)} only"
            for name in others
            if name not in done
        )
        success = "" if reached else f" or more, with {_seeds(results, 'dense', target)}"
        texts.append(f"at {100 * target:g} %: dense SGD {plain(dense)} J{success}{beside}{missed}")
    return Finding(
        parts, "; ".join(texts), "A scheme that slows convergence enough can use more energy than dense messages."
    )


def _predicts(results: StudyResults, law: str) -> Finding:
    """A part for each planned scheme and target that the runs reach: predicted rounds are within 20 % of measured."""
    table = predictions_table(results).where(law=law)
    schemes = np.isin(np.array(table["setting"], dtype=str), PLANNED)
    error = (table.numbers("predicted_rounds") / table.numbers("measured_rounds") - 1.0)[schemes]
    error = error[~np.isnan(error)]
    if not error.size:
        return Finding([], "", f"There is no {LAW_NAMES[law]}, or no target was reached.")
    percent = 100.0 * np.abs(error)
    middle, most = plain(float(np.median(percent))), plain(float(percent.max()))
    good, low = int(np.sum(np.abs(error) <= GOOD_PREDICTION)), int(np.sum(error < 0.0))
    return Finding(
        [bool(abs(part) <= GOOD_PREDICTION) for part in error],
        f"{good} of {error.size} within 20 %; median error {middle} %, largest {most} %, {low} too low",
        "Fitted to pilot runs to a lower accuracy and scaled to the target by the growth of one reference run.",
    )


def _power_law_plans_best(results: StudyResults) -> Finding:
    """A part for each target and each other law: its plan takes more joules than the power law's, or misses."""
    parts, texts = [], []
    rivals = [name for name in ("flexible-paper", "flexible-bound") if _has_runs(results, name)]
    for target in _targets(results, ("flexible", *rivals)):
        own, reached = _joules(results, "flexible", target)
        ratios = []
        for name in rivals:
            other, bounded = _joules(results, name, target)
            parts.append(reached and (not bounded or other > own))
            ratios.append(f"{name.removeprefix('flexible-')} {'' if bounded else 'over '}{plain(other / own)}")
        missed = f"the power law's plan reaches it with {_seeds(results, 'flexible', target)} only"
        texts.append(f"at {100 * target:g} %: " + (", ".join(ratios) if reached else missed))
    return Finding(
        parts,
        f"joules divided by those of the power law's plan: {'; '.join(texts)}" if texts else "",
        "Energy is flat along the ridge, so plans with another H may do as well. The bound is wrong by orders of "
        "magnitude.",
    )


def _targets(results: StudyResults, names: tuple[str, ...]) -> list[float]:
    """Targets that at least one of the settings reaches with every seed."""
    return [t for t in results.study.scale.targets if any(_joules(results, name, t)[1] for name in names)]


def _joules(results: StudyResults, name: str, target: float) -> tuple[float, bool]:
    """Mean joules to the target and True; if a seed missed it, a lower bound of the mean and False."""
    curve = results.curves[name]
    needed = curve.to_target(target, "total_joules")
    ends = [max(run["curve"]["total_joules"], default=0.0) for run in curve.runs]
    least = [end if math.isnan(value) else value for value, end in zip(needed, ends, strict=True)]
    return float(np.mean(least)), not any(math.isnan(value) for value in needed)


def _seeds(results: StudyResults, name: str, target: float) -> str:
    """Number of seeds that reached the target, in words."""
    needed = results.curves[name].to_target(target, "round")
    return f"{len(needed) - sum(map(math.isnan, needed))} of {len(needed)} seeds"


def _has_runs(results: StudyResults, name: str) -> bool:
    return name in results.curves and len(results.curves[name].runs) > 0


_JUDGES = (
    Judge(
        "FlexibleSpar consumes 1.5 to 100 times less energy than the other schemes to reach a given target accuracy.",
        ("flexible", *OTHERS),
        _saves,
    ),
    Judge(
        "Dense SGD, the baseline, consumes the most energy (implied).",
        ("flexible", *OTHERS),
        _dense_worst,
    ),
)
_OURS = (
    Judge(
        "Ours: the fitted power law predicts the rounds to a target within 20 %.",
        ("flexible",),
        lambda results: _predicts(results, "power-law"),
    ),
    Judge(
        "Ours: the paper's form, fitted to the same pilot runs, predicts the rounds to a target within 20 %.",
        ("flexible",),
        lambda results: _predicts(results, "paper"),
    ),
    Judge(
        "Ours: FlexibleSpar planned by the power law needs fewer joules than planned by the paper's form or the bound.",
        ("flexible",),
        _power_law_plans_best,
    ),
)
