"""Tables of Fig. 2: curves, costs of each setting to each target, pilot runs, fitted laws and their predictions."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.convergence.rounds import RoundsModel
from fewjoules_reproduction.records import Record
from fewjoules_reproduction.results import Curves, Pilots, StudyResults, spread
from fewjoules_reproduction.table import Cell, Table

PLANNED = ("flexible", "unified", "greedy", "synchronous", "dense", "fedavg")  # by the power law
LAWS = ("power-law", "paper", "bound")
FINAL_PART = 10  # the final accuracy is the mean over the last tenth of the evaluations
_CURVE_COLUMNS = (
    *("setting", "seed", "round", "epochs", "train_accuracy", "test_accuracy", "test_error_percent"),
    *("joules", "radio_joules", "compute_joules", "megabytes"),
)
_SPREAD = ("mean", "min", "max")
_SUMMARY_COLUMNS = (
    *("setting", "target", "local_steps", "smallest_sparsity", "largest_sparsity", "learning_rate"),
    *("predicted_rounds", "predicted_joules", "seeds", "reached", "diverged"),
    *(f"{name}_{kind}" for name in ("rounds", "joules") for kind in _SPREAD),
    *("ratio_to_best", "ratio_to_flexible"),
    *(f"final_accuracy_{kind}" for kind in _SPREAD),
)
_PILOT_COLUMNS = ("sparsity", "local_steps", "learning_rate", "rounds", "power_law_rounds", "paper_rounds")
_LAW_COLUMNS = ("law", "constant", "value", "low", "high", "note")
_MEASURED = {"rounds": "round", "joules": "total_joules"}
_PREDICTION_COLUMNS = (
    *("setting", "target", "law"),
    *(f"{kind}_{name}" for name in _MEASURED for kind in ("predicted", "measured")),
)


def curves_table(results: StudyResults, names: Iterable[str] | None = None) -> Table:
    """Table with a row for each evaluation; megabytes are those of all uploads so far."""
    chosen = results.curves if names is None else [name for name in names if name in results.curves]
    rows: list[Mapping[str, Cell]] = []
    for name in chosen:
        for seed, run in _seeded(results, results.curves[name]):
            rows += _curve_rows(name, seed, run)
    return _table(_CURVE_COLUMNS, rows)


def summary_table(results: StudyResults) -> Table:
    """Table with a row for each setting and target; NaN if a seed missed the target or no law predicts the value."""
    rows: list[Mapping[str, Cell]] = []
    for target in results.study.scale.targets:
        joules = {name: spread(curve.to_target(target, "total_joules"))[0] for name, curve in results.curves.items()}
        best = min((value for value in joules.values() if not math.isnan(value)), default=math.nan)
        for name, curve in results.curves.items():
            rounds, energy = predicted(results, name, target)
            rows.append(
                _setting_cells(name, target, curve)
                | {"predicted_rounds": rounds, "predicted_joules": energy}
                | _named("rounds", curve.to_target(target, "round"))
                | _named("joules", curve.to_target(target, "total_joules"))
                | {"ratio_to_best": joules[name] / best}
                | {"ratio_to_flexible": joules[name] / joules.get("flexible", math.nan)}
                | _named("final_accuracy", [final_accuracy(run) for run in curve.runs])
            )
    return _table(_SUMMARY_COLUMNS, rows)


def pilots_table(results: StudyResults) -> Table:
    """Table of measured rounds and those of both fitted laws in each cell of the pilot grid."""
    pilots = results.pilots
    if pilots is None:
        return _table(_PILOT_COLUMNS, [])
    devices = len(results.scenario.fleet)
    rows = []
    runs = pilots.runs
    for sparsity, steps, rate, rounds in zip(runs.sparsity, runs.local_steps, pilots.rates, runs.rounds, strict=True):
        laws = {law: rounds_by(pilots, law, np.full(devices, sparsity), int(steps)) for law in ("power-law", "paper")}
        rows.append(
            {
                "sparsity": float(sparsity),
                "local_steps": int(steps),
                "learning_rate": float(rate),
                "rounds": float(rounds),
            }
            | {"power_law_rounds": laws["power-law"], "paper_rounds": laws["paper"]}
        )
    return _table(_PILOT_COLUMNS, rows)


def laws_table(results: StudyResults) -> Table:
    """Table of the constants of the fitted laws with 95 % intervals, of the bound, and of the growth to each target."""
    if results.pilots is None:
        return _table(_LAW_COLUMNS, [])
    pilots = results.pilots
    rows = []
    for law, fit in (("power-law", pilots.power_law), ("paper", pilots.paper)):
        if fit is None:
            rows.append(_law(law, "refused", math.nan, note=pilots.refused.get(law, "")))
            continue
        rows += [_law(law, name, getattr(fit.model, name), *ends) for name, ends in fit.intervals.items()]
        rows.append(_law(law, "rms_log_residual", fit.rms_log_residual))
    bound = asdict(pilots.bound)
    rows += [_law("bound", name, value) for name, value in bound.items() if name != "form"]
    rows.append(_law("bound", "form", math.nan, note=str(bound["form"])))
    rows += [
        _law("growth", f"{target:g}", value, note="rounds to this accuracy divided by rounds to the pilot accuracy")
        for target, value in pilots.growth.items()
    ]
    rows.append(_law("pilots", "missed", float(pilots.missed), note="cells that did not reach the pilot accuracy"))
    return _table(_LAW_COLUMNS, rows)


def predictions_table(results: StudyResults) -> Table:
    """Table of the rounds and joules that each law predicts for each planned setting, with the measured means."""
    rows = [
        _prediction(results, curve, target, law)
        for curve in results.curves.values()
        for target in results.study.scale.targets
        for law in LAWS
        if curve.plan is not None and results.pilots is not None
    ]
    return _table(_PREDICTION_COLUMNS, rows)


def predicted(results: StudyResults, name: str, target: float) -> tuple[float, float]:
    """Rounds and joules of a setting's own plan for a target; NaN without a plan or pilots."""
    plan, pilots = results.curves[name].plan, results.pilots
    if plan is None or pilots is None:
        return math.nan, math.nan
    growth = _growth(pilots, "bound" if name == "flexible-bound" else "power-law", target)
    return growth * plan.rounds, growth * plan.energy_joules


def rounds_by(pilots: Pilots, law: str, sparsity: FloatArray, local_steps: int) -> float:
    """Rounds that a law predicts to the pilot accuracy, or the bound to its own target; NaN if there is no such law."""
    models: dict[str, RoundsModel] = {"bound": pilots.bound}
    if pilots.power_law is not None:
        models["power-law"] = pilots.power_law.model
    if pilots.paper is not None:
        models["paper"] = pilots.paper.model
    if law not in models:
        return math.nan
    model = models[law]
    return float(model.rounds(np.mean(sparsity**model.exponent), local_steps, sparsity.size))


def final_accuracy(run: Record, column: str = "test_accuracy") -> float:
    """Mean of the last tenth of the evaluations; NaN if the run diverged."""
    values = run["curve"][column]
    if run["stop_reason"] == "diverged" or not values:
        return math.nan
    return float(np.mean(values[-max(1, len(values) // FINAL_PART) :]))


def _prediction(results: StudyResults, curve: Curves, target: float, law: str) -> dict[str, Cell]:
    assert curve.plan is not None
    assert results.pilots is not None
    setting, joules_a_round = curve.setting, curve.plan.energy_joules / curve.plan.rounds
    growth = _growth(results.pilots, law, target)
    rounds = growth * rounds_by(results.pilots, law, setting.sparsity, setting.local_steps)
    cells: dict[str, Cell] = {"setting": setting.name, "target": target, "law": law}
    cells |= {"predicted_rounds": rounds, "predicted_joules": rounds * joules_a_round}
    for name, column in _MEASURED.items():
        cells[f"measured_{name}"] = spread(curve.to_target(target, column))[0]
    return cells


def _growth(pilots: Pilots, law: str, target: float) -> float:
    """Growth of rounds from the pilot accuracy to a target; 1 for the bound, which has its own target."""
    return 1.0 if law == "bound" else pilots.growth.get(target, math.nan)


def _curve_rows(name: str, seed: int, run: Record) -> list[Mapping[str, Cell]]:
    curve = run["curve"]
    return [
        {
            "setting": name,
            "seed": seed,
            "round": int(curve["round"][i]),
            "epochs": curve["epochs"][i],
            "train_accuracy": curve["train_accuracy"][i],
            "test_accuracy": accuracy,
            "test_error_percent": round(100.0 * (1.0 - accuracy), 6),
            "joules": curve["total_joules"][i],
            "radio_joules": curve["total_radio_joules"][i],
            "compute_joules": curve["total_compute_joules"][i],
            "megabytes": curve["total_payload_bytes"][i] / 1e6,
        }
        for i, accuracy in enumerate(curve["test_accuracy"])
    ]


def _seeded(results: StudyResults, curve: Curves) -> list[tuple[int, Record]]:
    """Each run with its seed, which comes from its order or else from its position."""
    seeds = results.study.scale.seeds
    return [(run["order"]["seed"] if "order" in run else seeds[i], run) for i, run in enumerate(curve.runs)]


def _setting_cells(name: str, target: float, curve: Curves) -> dict[str, Cell]:
    setting = curve.setting
    return {
        "setting": name,
        "target": target,
        "local_steps": setting.local_steps,
        "smallest_sparsity": float(setting.sparsity.min()),
        "largest_sparsity": float(setting.sparsity.max()),
        "learning_rate": math.nan if curve.learning_rate is None else curve.learning_rate,
        "seeds": len(curve.runs),
        "reached": int(np.count_nonzero(~np.isnan(curve.to_target(target, "round")))),
        "diverged": sum(run["stop_reason"] == "diverged" for run in curve.runs),
    }


def _named(name: str, values: Sequence[float]) -> dict[str, Cell]:
    return {f"{name}_{kind}": value for kind, value in zip(_SPREAD, spread(values), strict=True)}


def _law(
    law: str, constant: str, value: float, low: float = math.nan, high: float = math.nan, note: str = ""
) -> dict[str, Cell]:
    return {"law": law, "constant": constant, "value": float(value), "low": low, "high": high, "note": note}


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Cell]]) -> Table:
    """A table that may be empty."""
    return Table({name: tuple(row[name] for row in rows) for name in columns})
