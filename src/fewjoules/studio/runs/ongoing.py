"""The results of a run that goes on or was stopped, as far as they are written, so that reports can draw them."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules.files import parse_toml, read_text
from fewjoules.ledger.schema import RowArray
from fewjoules.ledger.target import Target
from fewjoules.planner.plan import Plan
from fewjoules.runs.files import PLAN, SCENARIO
from fewjoules.runs.live_rows import metrics_so_far
from fewjoules.runs.results import RunResults, RunSummary, numbered_names, plain_text
from fewjoules.studio.runs.folders import RUNNING, Found
from fewjoules.studio.runs.ledger_sums import joules_of_devices, sums_of

MAX_SCENARIO_BYTES = 16 * 2**20


@dataclass(frozen=True, kw_only=True)
class OngoingResults(RunResults):
    """Results so far; the ledger is in parts, so that the joules of devices are given."""

    given_joules: dict[str, FloatArray] = field(default_factory=dict)

    @property
    def device_joules(self) -> dict[str, FloatArray]:
        """Joules of each device by kind, as far as the ledger is written."""
        return self.given_joules


def ongoing_results(found: Found, state: str) -> OngoingResults:
    """Read what an unfinished run has written. Files that its scenario names are not opened."""
    text = read_text(found.path / SCENARIO, max_bytes=MAX_SCENARIO_BYTES) if (found.path / SCENARIO).exists() else ""
    plan = Plan.load(found.path / PLAN) if (found.path / PLAN).exists() else None
    tables, options = tables_of(text), _table(found.settings.get("options"))
    local_steps, sparsity = _choices(plan, options)
    metrics = metrics_so_far(found.path, living=state == RUNNING)
    sums = sums_of(found.path)
    names, settings = device_names(tables, sparsity.size), found.settings or found.parent_settings
    summary = RunSummary(
        scenario=plain_text(settings.get("scenario", settings.get("name", "unknown"))),
        scheme=plain_text(plan.scheme if plan is not None else found.path.name),
        stop_reason="still training" if state == RUNNING else "interrupted",
        local_steps=local_steps,
        sparsity=sparsity,
        device_names=numbered_names(names),
        joules_by_kind=sums.split,
        facts=_facts(tables, settings, sparsity.size),
        **_progress(metrics, _target(_table(tables.get("training")) | options)),
        **_unknown(_table(tables.get("training")) | options),
    )
    given = joules_of_devices(sums, sparsity.size)
    return OngoingResults(
        folder=found.path, summary=summary, metrics=metrics, plan=plan, scenario_text=text, given_joules=given
    )


def tables_of(text: str) -> dict[str, Any]:
    """Return the tables of a scenario, none if it is damaged: a run is shown without them."""
    try:
        return parse_toml(text)
    except FewJoulesError:
        return {}


def device_names(tables: dict[str, Any], count: int) -> list[str]:
    """Return the name of each device in the scenario, in its order; numbers where it does not name so many."""
    devices = tables.get("device")
    names: list[str] = []
    for one in devices if isinstance(devices, list) else []:
        own = _table(one)
        repeats = own.get("count", 1)
        left = count - len(names)
        names += [plain_text(own.get("name", "device"))] * min(repeats if isinstance(repeats, int) else 1, left)
    return names if len(names) == count else [f"client {number}" for number in range(count)]


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _choices(plan: Plan | None, options: dict[str, Any]) -> tuple[int, FloatArray]:
    """Return H and the sparsities of the plan or the options; of a preset, which has neither, nothing is known."""
    if plan is not None:
        return plan.local_steps, plan.sparsity
    steps, sparsity = options.get("local_steps", 1), options.get("sparsity", [1.0])
    try:
        return int(steps), np.atleast_1d(np.asarray(sparsity, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidInputError("the options of the run are damaged: they have no local_steps and sparsity") from error


def _target(options: dict[str, Any]) -> Target | None:
    try:
        return Target.of(options)
    except (FewJoulesError, TypeError, ValueError):
        return None


def _progress(metrics: RowArray, target: Target | None) -> dict[str, Any]:
    """Return what the rows so far tell."""
    last = metrics[-1] if metrics.size else None
    at = None if target is None else target.first_row(metrics)

    def latest(column: str) -> float | None:
        if column not in (metrics.dtype.names or ()):
            return None
        known = metrics[column][np.isfinite(metrics[column])]
        return float(known[-1]) if known.size else None

    def total(column: str, row: Any) -> float | None:
        return None if row is None or not math.isfinite(row[column]) else float(row[column])

    own = [name for name in metrics.dtype.names or () if name.startswith("test_")]
    reached = None if at is None else metrics[at]
    return {
        "target": target,
        "target_reached": None if target is None else at is not None,
        "rounds": 0 if last is None else int(last["round"]),
        "rounds_to_target": None if reached is None else int(reached["round"]),
        "joules": total("total_joules", last),
        "joules_to_target": total("total_joules", reached),
        "seconds": total("total_seconds", last),
        "seconds_to_target": total("total_seconds", reached),
        "test_accuracy": latest("test_accuracy"),
        "test_loss": latest("test_loss"),
        "test_metrics": {
            name.removeprefix("test_"): latest(name) for name in own if name not in ("test_loss", "test_accuracy")
        },
        "learning_rate": latest("learning_rate"),
    }


def _unknown(options: dict[str, Any]) -> dict[str, Any]:
    """Return what only the end of a run tells."""
    seed = options.get("seed")
    return {
        "returns": (),
        "realised_over_planned_radio": None,
        "seed": seed if isinstance(seed, int) else None,
        "metered": None,
        "checksums": {},
    }


def _facts(tables: dict[str, Any], settings: dict[str, Any], devices: int) -> dict[str, str]:
    training, model = _table(tables.get("training")), _table(tables.get("model"))
    told = {
        "scenario": settings.get("scenario"),
        "data": training.get("data"),
        "model": model.get("architecture"),
        "parameters": model.get("parameters"),
        "partition": training.get("partition"),
        "devices": devices,
        "seed": training.get("seed"),
        "machine": settings.get("device"),
    }
    return {name: plain_text(value) for name, value in told.items() if value is not None}
