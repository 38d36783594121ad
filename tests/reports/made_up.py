"""Results folders with made-up numbers, small and shaped like real ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import fewjoules as fj
from fewjoules.ledger.parquet import write_table
from fewjoules.ledger.schema import LEDGER, METRICS, RowArray

SCENARIO = 'version = 1\n[training]\ndata = "digits"\npartition = "dirichlet"\nseed = 7\n'


def make_run(
    folder: Path,
    *,
    scheme: str = "flexible",
    rounds: int = 60,
    devices: int = 12,
    joules: float | None = 0.05,
    target: float | None = 0.97,
    speed: float = 0.12,
    evaluate_every: int = 2,
    sparsity: float = 100.0,
    downlink: bool = False,
    with_plan: bool = True,
    names: list[str] | None = None,
    **changes: Any,
) -> Path:
    """Write a run whose accuracy rises towards 0.99 at ``speed``; ``joules`` is the mean of a device and round."""
    folder.mkdir(parents=True)
    metrics = _metrics(rounds, devices, joules, speed, evaluate_every)
    met = np.flatnonzero(metrics["test_accuracy"] >= (2.0 if target is None else target))
    if met.size:
        metrics = metrics[: met[0] + 1]
    write_table(folder / "metrics.parquet", METRICS, [metrics])
    write_table(folder / "ledger.parquet", LEDGER, [_ledger(min(metrics.size, 50), devices, joules, downlink)])
    sparsities = np.maximum(1.0, sparsity * np.geomspace(0.3, 3.0, devices)) if sparsity > 1 else np.ones(devices)
    last = metrics[-1]
    known = joules is not None
    summary = {
        "version": 1,
        "fewjoules_version": "0.1.0",
        "scenario": "four-groups",
        "scheme": scheme,
        "stop_reason": "target accuracy" if met.size else "rounds",
        "target_accuracy": target,
        "target_reached": None if target is None else bool(met.size),
        "rounds": int(last["round"]),
        "rounds_to_target": int(last["round"]) if met.size else None,
        "joules": float(last["total_joules"]) if known else None,
        "joules_to_target": float(last["total_joules"]) if known and met.size else None,
        "radio_joules": float(last["total_radio_joules"]) if known else None,
        "compute_joules": float(last["total_compute_joules"]) if known else None,
        "seconds": float(last["total_seconds"]),
        "seconds_to_target": float(last["total_seconds"]) if met.size else None,
        "payload_bytes": int(last["total_payload_bytes"]),
        "realised_over_planned_radio": 1.02 if known else None,
        "test_accuracy": float(metrics["test_accuracy"][np.isfinite(metrics["test_accuracy"])][-1]),
        "devices": {
            "names": names or [f"group-{1 + 4 * number // devices}" for number in range(devices)],
            "groups": [f"group-{1 + 4 * number // devices}" for number in range(devices)],
        },
        "local_steps": 5,
        "sparsity": sparsities.tolist(),
        "data": "digits",
        "architecture": "cnn",
        "parameters": 9_098,
        "clients": devices,
        "seed": 7,
        "device": "cpu",
        "precision": "float32",
        "path": "stacked",
        "wall_seconds": 12.5,
    } | changes
    (folder / "run.json").write_text(json.dumps(summary), encoding="utf-8")
    (folder / "scenario.toml").write_text(SCENARIO, encoding="utf-8")
    if with_plan:
        _plan(scheme, sparsities, metrics, joules or 0.05).save(folder / "plan.json")
    return folder


def make_comparison(folder: Path) -> list[Path]:
    """Five schemes, of which one misses the target."""
    settings: dict[str, dict[str, Any]] = {
        "dense": {"rounds": 400, "joules": 0.5, "sparsity": 1.0, "speed": 0.05},
        "flexible": {"joules": 0.02, "speed": 0.11, "rounds": 200},
        "unified": {"joules": 0.025, "speed": 0.09, "rounds": 200},
        "fedavg": {"joules": 0.3, "sparsity": 1.0, "speed": 0.14},
        "greedy": {"joules": 0.004, "sparsity": 900.0, "speed": 0.012, "rounds": 250},
    }
    return [make_run(folder / scheme, scheme=scheme, **given) for scheme, given in settings.items()]


def _metrics(rounds: int, devices: int, joules: float | None, speed: float, evaluate_every: int) -> RowArray:
    rng = np.random.default_rng(rounds)
    made = METRICS.new_rows(rounds)
    made["round"] = np.arange(1, rounds + 1)
    accuracy = 0.99 - 0.89 * np.exp(-speed * made["round"]) + 0.004 * rng.standard_normal(rounds)
    evaluated = (made["round"] % evaluate_every == 0) | (made["round"] == rounds)
    made["test_accuracy"] = np.where(evaluated, np.clip(accuracy, 0.0, 1.0), np.nan)
    made["train_loss"] = np.exp(-speed * made["round"])
    made["total_payload_bytes"] = 1000 * devices * made["round"].astype(np.int64)
    made["total_seconds"] = 0.7 * made["round"]
    if joules is not None:
        made["round_joules"] = joules * devices
        made["total_joules"] = np.cumsum(made["round_joules"])
        made["total_radio_joules"] = 0.7 * made["total_joules"]
        made["total_compute_joules"] = 0.3 * made["total_joules"]
    return made


def _ledger(rounds: int, devices: int, joules: float | None, downlink: bool) -> RowArray:
    made = LEDGER.new_rows(rounds * devices)
    made["round"] = np.repeat(np.arange(1, rounds + 1), devices)
    made["device"] = np.tile(np.arange(devices), rounds)
    if joules is not None:
        cost = joules * np.geomspace(0.2, 2.0, devices)
        made["uplink_joules"] = 0.7 * cost[made["device"]]
        made["compute_joules"] = 0.3 * joules
        if downlink:
            made["downlink_joules"] = 0.1 * joules
    return made


def _plan(scheme: str, sparsity: np.ndarray, metrics: RowArray, joules: float) -> fj.Plan:
    rounds = 1.2 * metrics.size
    energy = rounds * joules * sparsity.size
    return fj.Plan(
        scheme=scheme,
        solver="pareto",
        local_steps=5,
        sparsity=sparsity,
        rounds=rounds,
        radio_joules=0.7 * energy,
        compute_joules=0.3 * energy,
        seconds=None,
        lower_bound_joules=None,
    )
