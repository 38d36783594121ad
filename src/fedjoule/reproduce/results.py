"""A study from its pilot runs to its curves: fit, plan, tune, train; and what comes out, ready to be drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedjoule.arrays import FloatArray
from fedjoule.convergence.fit import PilotRuns, RoundsFit, fit_paper_rounds, fit_power_law_rounds
from fedjoule.convergence.rounds import BoundRounds, PaperRounds, PowerLawRounds, RoundsModel
from fedjoule.errors import InvalidInputError
from fedjoule.planner.plan import Plan
from fedjoule.planner.problem import ControlProblem
from fedjoule.planner.schemes import SCHEMES, flexible
from fedjoule.reproduce.pool import Job, Means, carry_out
from fedjoule.reproduce.records import Record
from fedjoule.reproduce.studies import STUDIES, TUNING_SEED, Setting, Study, baseline_settings, pilot_settings
from fedjoule.scenario import Scenario

REFERENCE = "reference"  # the run that tells how rounds grow from the pilot accuracy to each target


@dataclass(frozen=True)
class Pilots:
    """Pilot runs of a task and the laws fitted to them; a law that they contradict is None and ``refused`` says why."""

    runs: PilotRuns
    power_law: RoundsFit[PowerLawRounds] | None
    paper: RoundsFit[PaperRounds] | None
    bound: BoundRounds
    refused: Mapping[str, str]
    missed: int  # cells of the grid that did not reach the pilot accuracy
    growth: Mapping[float, float]  # rounds to each target over rounds to the pilot accuracy


@dataclass(frozen=True)
class Curves:
    """One setting of a study: its plan, if it has one, and a record for each seed that was run."""

    setting: Setting
    plan: Plan | None
    learning_rate: float | None
    runs: Sequence[Record]

    def to_target(self, target: float, column: str) -> list[float]:
        """The column's value where each run first reached the accuracy; NaN where it did not."""
        values = []
        for run in self.runs:
            reached = np.flatnonzero(np.array(run["curve"]["test_accuracy"]) >= target)
            values.append(float(run["curve"][column][reached[0]]) if reached.size else math.nan)
        return values


@dataclass(frozen=True)
class StudyResults:
    """All of a study; ``not_run`` names what has no record yet."""

    study: Study
    scenario: Scenario
    pilots: Pilots | None
    curves: Mapping[str, Curves]
    not_run: Sequence[str] = field(default_factory=list)


def carry_out_study(study: Study, scenario: Scenario, means: Means) -> StudyResults:
    """Everything of a study that can be had, by training or from records."""
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
    jobs = [
        Job(study.name, "run", setting, rates[setting.name], seed)
        for seed in study.scale.seeds
        for setting in settings
        if setting.name in rates
    ]
    records = carry_out(jobs, means)
    curves = {
        setting.name: Curves(
            setting,
            plans.get(setting.name),
            rates.get(setting.name),
            [
                records[f"run-{setting.name}-seed{seed}"]
                for seed in study.scale.seeds
                if f"run-{setting.name}-seed{seed}" in records
            ],
        )
        for setting in settings
    }
    missing = [
        f"{name} ({len(curve.runs)} of {len(study.scale.seeds)} seeds)"
        for name, curve in curves.items()
        if len(curve.runs) < len(study.scale.seeds)
    ]
    return StudyResults(study, scenario, pilots, curves, missing)


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
    growth = _growth(study, devices, means)
    if growth is None:
        return None
    bound = BoundRounds(**{key: value for key, value in constants.items() if key in BoundRounds.__dataclass_fields__})
    return Pilots(runs, power_law, paper, bound, refused, len(settings) - len(reached), growth)


def _growth(study: Study, devices: int, means: Means) -> dict[float, float] | None:
    """From one run in the middle of the grid with the tuning seed."""
    scale = study.scale
    steps = scale.local_steps[len(scale.local_steps) // 2]
    sparsity = scale.sparsities[len(scale.sparsities) // 2]
    name = f"tune-pilot-h{steps}-delta{sparsity:g}"
    setting = Setting(REFERENCE, steps, np.full(devices, sparsity))
    tuned = means.records.load(study.name, name)
    if tuned is None:
        return None
    job = Job(study.name, "run", setting, tuned["learning_rate"], TUNING_SEED)
    record = carry_out([job], means).get(job.name)
    if record is None:
        return None
    curve = Curves(setting, None, tuned["learning_rate"], [record])
    (pilot,) = curve.to_target(scale.pilot_accuracy, "round")
    return {target: curve.to_target(target, "round")[0] / pilot for target in scale.targets}


def _plans(problem: ControlProblem, pilots: Pilots) -> dict[str, Plan]:
    """Every scheme by the power law, and FlexibleSpar by the paper's form and by the bound's own constants."""
    assert pilots.power_law is not None
    fitted = _with_rounds(problem, pilots.power_law.model)
    plans = {name: scheme(fitted) for name, scheme in SCHEMES.items()}
    if pilots.paper is not None:
        plans["flexible-paper"] = flexible(_with_rounds(problem, pilots.paper.model))
    plans["flexible-bound"] = flexible(_with_rounds(problem, pilots.bound))
    return plans


def _with_rounds(problem: ControlProblem, rounds: RoundsModel) -> ControlProblem:
    from dataclasses import replace

    return replace(problem, rounds=rounds)


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, least and largest of what is known; NaN if nothing is, or if a seed missed the target."""
    array: FloatArray = np.array(values, dtype=np.float64)
    if array.size == 0 or np.isnan(array).any():
        return math.nan, math.nan, math.nan
    return float(array.mean()), float(array.min()), float(array.max())
