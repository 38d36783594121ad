"""Carry out a study: pilot runs, fitted laws, plans, tuned step sizes, and the curves of all settings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.convergence.fit import PilotRuns, RoundsFit, fit_paper_rounds, fit_power_law_rounds
from fewjoules.convergence.rounds import BoundRounds, PaperRounds, PowerLawRounds
from fewjoules.errors import InvalidInputError
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.schemes import SCHEMES, flexible
from fewjoules.scenario import Scenario
from fewjoules_reproduction.pool import Job, Means, carry_out
from fewjoules_reproduction.records import Record
from fewjoules_reproduction.studies import STUDIES, TUNING_SEED, Setting, Study, baseline_settings, pilot_settings

REFERENCE = "reference"  # name of the run that measures how rounds grow from the pilot accuracy to each target


@dataclass(frozen=True)
class Pilots:
    """Pilot runs of a task and laws fitted to them; a law that cannot be fitted is None, and ``refused`` says why."""

    runs: PilotRuns
    power_law: RoundsFit[PowerLawRounds] | None
    paper: RoundsFit[PaperRounds] | None
    bound: BoundRounds
    refused: Mapping[str, str]
    missed: int  # cells of the grid that did not reach the pilot accuracy
    rates: FloatArray  # the tuned step size of each run
    growth: Mapping[float, float]  # rounds to each target divided by rounds to the pilot accuracy


@dataclass(frozen=True)
class Curves:
    """One setting of a study: its plan, if there is one, and a record for each seed that was run."""

    setting: Setting
    plan: Plan | None
    learning_rate: float | None
    runs: Sequence[Record]

    def lost(self, target: float) -> bool:
        """Whether a seed diverged before it reached the accuracy."""
        missed = [math.isnan(value) for value in self.to_target(target, "round")]
        return any(run["stop_reason"] == "diverged" and without for run, without in zip(self.runs, missed, strict=True))

    def to_target(self, target: float, column: str) -> list[float]:
        """Value of the column when each run first reached the accuracy; NaN if it never did."""
        values = []
        for run in self.runs:
            reached = np.flatnonzero(np.array(run["curve"]["test_accuracy"]) >= target)
            values.append(float(run["curve"][column][reached[0]]) if reached.size else math.nan)
        return values


@dataclass(frozen=True)
class StudyResults:
    """All results of a study; ``not_run`` names the settings without a record."""

    study: Study
    scenario: Scenario
    pilots: Pilots | None
    curves: Mapping[str, Curves]
    not_run: Sequence[str] = field(default_factory=list)


def carry_out_study(study: Study, scenario: Scenario, means: Means) -> StudyResults:
    """Results of a study, from its records and, if ``means.train`` is true, from new trainings."""
    devices = len(scenario.fleet)
    pilots = _pilots(STUDIES[study.pilots], devices, means)
    if pilots is None or pilots.power_law is None:
        why = "pilot runs" if pilots is None else f"plans ({pilots.refused['power-law']})"
        return StudyResults(study, scenario, pilots, {}, [why])
    plans = _plans(scenario.problem(), pilots)
    settings = baseline_settings(devices) if study.baselines else []
    settings += [Setting(name, plan.local_steps, plan.sparsity) for name, plan in plans.items()]
    tuned = carry_out([Job(study.name, "tune", setting) for setting in settings], means)
    rates = {s.name: tuned[f"tune-{s.name}"]["learning_rate"] for s in settings if f"tune-{s.name}" in tuned}
    curves = _curves(study, settings, plans, rates, means)
    return StudyResults(study, scenario, pilots, curves, _not_run(study, curves))


def _curves(
    study: Study, settings: Sequence[Setting], plans: Mapping[str, Plan], rates: Mapping[str, float], means: Means
) -> dict[str, Curves]:
    """Curves of every setting at its tuned step size.

    If a seed diverges before it reaches the main target, all seeds are run again at the next smaller step size.
    """
    target = study.scale.main_target
    curves = {s.name: Curves(s, plans.get(s.name), rates.get(s.name), []) for s in settings}
    wave = dict(rates)
    while wave:
        jobs = {
            name: [Job(study.name, "run", curves[name].setting, rate, seed) for seed in study.scale.seeds]
            for name, rate in wave.items()
        }
        # seed by seed, so that a stopped reproduction has runs of every setting
        records = carry_out([job for of_seed in zip(*jobs.values(), strict=True) for job in of_seed], means)
        for name, rate in wave.items():
            runs = [records[job.name] for job in jobs[name] if job.name in records]
            if runs:
                curves[name] = Curves(curves[name].setting, plans.get(name), rate, runs)
        lost = [name for name in wave if wave[name] == curves[name].learning_rate and curves[name].lost(target)]
        smaller = {name: _next_smaller(study, curves[name].setting, wave[name]) for name in lost}
        wave = {name: rate for name, rate in smaller.items() if rate is not None}
    return curves


def _next_smaller(study: Study, setting: Setting, rate: float) -> float | None:
    rates = [setting.rate_scale * one for one in study.scale.learning_rates]
    return max((one for one in rates if one < 0.999 * rate), default=None)


def _not_run(study: Study, curves: Mapping[str, Curves]) -> list[str]:
    seeds = len(study.scale.seeds)
    missing = []
    for name, curve in curves.items():
        if len(curve.runs) < seeds:
            missing.append(f"{name} ({len(curve.runs)} of {seeds} seeds)")
        elif curve.lost(study.scale.main_target) and curve.learning_rate is not None:
            smaller = _next_smaller(study, curve.setting, curve.learning_rate)
            if smaller is not None:
                missing.append(
                    f"{name} again at step size {smaller:.3g}, since a seed diverged at {curve.learning_rate:.3g}"
                )
    return missing


def _pilots(study: Study, devices: int, means: Means) -> Pilots | None:
    settings = pilot_settings(study, devices)
    records = carry_out([Job(study.name, "tune", setting) for setting in settings], means)
    constants = carry_out([Job(study.name, "constants")], means).get("constants")
    if len(records) < len(settings) or constants is None:
        return None
    reached = [record for record in records.values() if record["rounds"] is not None]
    runs = PilotRuns.of(
        np.array([record["sparsity"][0] for record in reached]),
        np.array([record["local_steps"] for record in reached]),
        np.array([record["rounds"] for record in reached]),
    )
    refused: dict[str, str] = {}
    power_law: RoundsFit[PowerLawRounds] | None = None
    paper: RoundsFit[PaperRounds] | None = None
    try:
        power_law = fit_power_law_rounds(runs)
    except InvalidInputError as error:
        refused["power-law"] = str(error)
    try:
        paper = fit_paper_rounds(runs, devices=devices)
    except InvalidInputError as error:
        refused["paper"] = str(error)
    growth = _growth(study, devices, records, means)
    if growth is None:
        return None
    bound = BoundRounds(**{key: value for key, value in constants.items() if key in BoundRounds.__dataclass_fields__})
    return Pilots(
        runs=runs,
        power_law=power_law,
        paper=paper,
        bound=bound,
        refused=refused,
        missed=len(settings) - len(reached),
        rates=np.array([record["learning_rate"] for record in reached]),
        growth=growth,
    )


def _growth(study: Study, devices: int, tuned: Mapping[str, Record], means: Means) -> dict[float, float] | None:
    """Rounds to each target divided by rounds to the pilot accuracy, from one run in the middle of the grid."""
    scale = study.scale
    steps = scale.local_steps[len(scale.local_steps) // 2]
    sparsity = scale.sparsities[len(scale.sparsities) // 2]
    name = f"tune-pilot-h{steps}-delta{sparsity:g}"
    setting = Setting(REFERENCE, steps, np.full(devices, sparsity))
    rate = float(tuned[name]["learning_rate"])
    job = Job(study.name, "run", setting, rate, TUNING_SEED)
    record = carry_out([job], means).get(job.name)
    if record is None:
        return None
    curve = Curves(setting, None, rate, [record])
    (pilot,) = curve.to_target(scale.pilot_accuracy, "round")
    return {target: curve.to_target(target, "round")[0] / pilot for target in scale.targets}


def _plans(problem: ControlProblem, pilots: Pilots) -> dict[str, Plan]:
    """Plans of every scheme by the power law, and of FlexibleSpar by the paper's form and by the bound."""
    assert pilots.power_law is not None
    fitted = replace(problem, rounds=pilots.power_law.model)
    plans = {name: scheme(fitted) for name, scheme in SCHEMES.items()}
    if pilots.paper is not None:
        plans["flexible-paper"] = flexible(replace(problem, rounds=pilots.paper.model))
    plans["flexible-bound"] = flexible(replace(problem, rounds=pilots.bound))
    return plans


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, minimum and maximum; NaN if there are no values or if one of them is NaN."""
    array: FloatArray = np.array(values, dtype=np.float64)
    if array.size == 0 or np.isnan(array).any():
        return math.nan, math.nan, math.nan
    return float(array.mean()), float(array.min()), float(array.max())
