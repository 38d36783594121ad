"""Read the results folder of a run for tables and figures. docs/ledger.md describes its files."""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError, require_array, require_integer, require_number, shown
from fewjoules.files import read_text, require_intact
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.parquet import read_blocks, read_table
from fewjoules.ledger.schema import LEDGER, METRICS, RowArray
from fewjoules.ledger.target import Target
from fewjoules.planner.plan import Plan
from fewjoules.provenance import KINDS, require_joules
from fewjoules.runs.files import LEDGER_TABLE, METRICS_TABLE, PLAN, RESULT_FILES, RUN, RUN_VERSION, SCENARIO
from fewjoules.runs.metered import Metered
from fewjoules.runs.sealed import read_sealed

MAX_NAME_LENGTH = 60
_MANY = 2**53


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """Content of run.json; None stands for null."""

    scenario: str
    scheme: str
    stop_reason: str
    local_steps: int
    sparsity: FloatArray
    device_names: tuple[str, ...]
    target: Target | None
    target_reached: bool | None
    rounds: int
    rounds_to_target: int | None
    returns: tuple[int, ...]  # rounds after which the guard returned to an earlier model
    learning_rate: float | None  # after the last return; None in older files
    joules: float | None
    joules_to_target: float | None
    joules_by_kind: Mapping[str, Mapping[str, float]]  # and by mark; empty in older files
    seconds: float | None
    seconds_to_target: float | None
    realised_over_planned_radio: float | None
    test_accuracy: float | None
    test_loss: float | None
    test_metrics: Mapping[str, float | None]  # of the user's own, by name
    seed: int | None  # None in files that do not tell it
    metered: Metered | None
    facts: Mapping[str, str]  # circumstances of the run by name, for display
    checksums: Mapping[str, int]  # of the other files by name; none in older files

    @property
    def reached(self) -> bool:
        """Whether the run had a target and reached it."""
        return bool(self.target_reached) and self.rounds_to_target is not None

    @property
    def tested(self) -> float | None:
        """The metric of the target at the last evaluation; without a target, the accuracy."""
        if self.target is not None and self.target.direction is not None:
            return self.test_metrics.get(self.target.name)
        return self.test_accuracy if self.target is None or self.target.rises else self.test_loss


@dataclass(frozen=True, kw_only=True)
class RunResults:
    """Results of one run: its summary, one metrics row per round, its plan if any, and the joules of each device."""

    folder: Path
    summary: RunSummary
    metrics: RowArray
    plan: Plan | None
    scenario_text: str

    @classmethod
    def load(cls, folder: str | Path) -> "RunResults":
        """Read a results folder; the ledger is left on disk."""
        place = Path(folder)
        plan, scenario = place / PLAN, place / SCENARIO
        text = read_text(scenario) if scenario.exists() else ""
        summary = read_summary(place, text)
        for name, checksum in summary.checksums.items():
            require_intact(place / name, checksum)
        return cls(
            folder=place,
            summary=summary,
            metrics=read_table(place / METRICS_TABLE, METRICS),
            plan=Plan.load(plan) if plan.exists() else None,
            scenario_text=text,
        )

    @cached_property
    def device_joules(self) -> dict[str, FloatArray]:
        """Joules of each device by kind, shape (devices,); kinds without data in the ledger are left out."""
        count = self.summary.sparsity.size
        totals = {kind: np.zeros(count) for kind in KINDS}
        known = dict.fromkeys(KINDS, False)
        path = self.folder / LEDGER_TABLE
        columns = ["device", *(f"{kind}_joules" for kind in KINDS)]
        for rows in read_blocks(path, LEDGER, columns):
            device = rows["device"]
            if device.size and not 0 <= device.min() <= device.max() < count:
                raise InvalidInputError(
                    f"{path}: device must be from 0 to {count - 1}, got {device.min()} to {device.max()}"
                )
            for kind in KINDS:
                joules = rows[f"{kind}_joules"]
                present = ~np.isnan(joules)
                known[kind] |= bool(present.any())
                totals[kind] += np.bincount(device[present], weights=joules[present], minlength=count)
        return {kind: totals[kind] for kind in KINDS if known[kind]}

    def at_target(self, column: str) -> float:
        """Return a running total when the target was reached, or at the end if it never was; NaN if unknown."""
        rows = self.metrics
        if self.summary.reached:
            rows = rows[rows["round"] <= self.summary.rounds_to_target]
        return float(rows[column][-1]) if rows.size else np.nan


def rows_of(log: RowLog, folder: Path | None) -> RowArray:
    """Return all rows of a run's table, whose parts are one file if the run in the folder is finished.

    What a rank does not keep itself, the first one has written to the folder.
    """
    if folder is not None and (folder / RUN).exists():
        return read_table(folder / f"{log.table.name}.parquet", log.table)
    if folder is not None and not log.keeps_rows:
        return RowLog.copied(folder / log.table.name, log.table).rows()
    return log.rows()


def plain_text(text: object) -> str:
    """Return a name from a file as one short line of printable characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= MAX_NAME_LENGTH else line[: MAX_NAME_LENGTH - 1] + "…"


def read_summary(folder: Path, scenario_text: str = "") -> RunSummary:
    """Read run.json alone; the scenario tells how the data are parted where run.json does not."""
    path = folder / RUN
    data = read_sealed(path)
    version = data.get("version") if isinstance(data, dict) else None
    if version != RUN_VERSION:
        raise InvalidInputError(f"{path}: version must be {RUN_VERSION}, got {shown(version)}")
    try:
        return _summary_from(data | {"partition": data.get("partition") or _partition(scenario_text)})
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def _partition(scenario_text: str) -> str | None:
    """Return how the scenario partitions the data, if it says so."""
    try:
        training = tomllib.loads(scenario_text).get("training")
    except (ValueError, RecursionError):
        return None
    partition = training.get("partition") if isinstance(training, dict) else None
    return partition if partition is None or isinstance(partition, str) else json.dumps(partition, default=str)


def _summary_from(data: dict[str, Any]) -> RunSummary:
    def value(key: str) -> Any:
        if key not in data:
            raise InvalidInputError(f"the key {key} is missing")
        return data[key]

    def optional(key: str, high: float = np.inf) -> float | None:
        return None if value(key) is None else require_number(key, value(key), low=0.0, high=high)

    def whole(key: str, low: int = 0) -> int:
        return require_integer(key, value(key), low=low, high=_MANY)

    reached = value("target_reached")
    if reached not in (True, False, None):
        raise InvalidInputError(f"target_reached must be true, false or null, got {shown(reached)}")
    sparsity = np.atleast_1d(require_array("sparsity", value("sparsity"), low=1.0))
    require_number("the largest sparsity", sparsity.max(initial=1.0), low=1.0, high=_MANY)
    return RunSummary(
        scenario=plain_text(value("scenario")),
        scheme=plain_text(value("scheme")),
        stop_reason=plain_text(value("stop_reason")),
        local_steps=whole("local_steps", low=1),
        sparsity=sparsity,
        device_names=_device_names(value("devices"), sparsity.size),
        target=_target(data | {"target_accuracy": optional("target_accuracy", high=1.0)}),
        target_reached=reached,
        rounds=whole("rounds"),
        rounds_to_target=None if value("rounds_to_target") is None else whole("rounds_to_target", low=1),
        returns=_returns(data.get("returns", [])),
        learning_rate=None if data.get("learning_rate") is None else optional("learning_rate"),
        joules=optional("joules"),
        joules_to_target=optional("joules_to_target"),
        joules_by_kind=require_joules("joules_by_kind", data.get("joules_by_kind", {})),
        seconds=optional("seconds"),
        seconds_to_target=optional("seconds_to_target"),
        realised_over_planned_radio=optional("realised_over_planned_radio"),
        test_accuracy=optional("test_accuracy", high=1.0),
        test_loss=None if data.get("test_loss") is None else optional("test_loss"),
        test_metrics=_own_metrics(data.get("test_metrics", {})),
        seed=_seed(data.get("seed")),
        metered=None if data.get("metered") is None else Metered.from_dict(data["metered"]),
        facts=_facts(data, sparsity.size),
        checksums=_checksums(data.get("checksums", {})),
    )


def _target(data: Mapping[str, Any]) -> Target | None:
    """Return the target of a run; older files know only a target accuracy."""
    for name, low in (("target_loss", 0.0), ("target_perplexity", 1.0)):
        if data.get(name) is not None:
            require_number(name, data[name], low=low, above=True)
    return Target.of(data)


def _own_metrics(told: Any) -> dict[str, float | None]:
    if not isinstance(told, dict):
        raise InvalidInputError(f"test_metrics must be a table of numbers, got {shown(told)}")
    return {
        name: None if one is None else require_number(f"test_metrics.{name}", one, low=-math.inf)
        for name, one in told.items()
    }


def _returns(told: Any) -> tuple[int, ...]:
    if not isinstance(told, list):
        raise InvalidInputError(f"returns must be a list of rounds, got {shown(told)}")
    return tuple(require_integer("returns", number, low=1, high=_MANY) for number in told)


def _seed(told: Any) -> int | None:
    return None if told is None else require_integer("seed", told, low=0, high=2**63 - 1)


def _checksums(told: Any) -> dict[str, int]:
    if not isinstance(told, dict) or not set(told) <= set(RESULT_FILES):
        raise InvalidInputError(f"checksums must be of {', '.join(RESULT_FILES)}, got {shown(told)}")
    return {name: require_integer(f"checksums: {name}", value, low=0, high=2**32 - 1) for name, value in told.items()}


def _device_names(devices: Any, count: int) -> tuple[str, ...]:
    """Return the names of the devices in run.json; refuse another number of them than there are devices."""
    names = devices.get("names") if isinstance(devices, dict) else None
    if not isinstance(names, list) or len(names) != count:
        got = len(names) if isinstance(names, list) else type(names).__name__
        raise InvalidInputError(f"devices.names must be a list of {count} names, one for each sparsity, got {got}")
    return numbered_names([plain_text(name) for name in names])


def numbered_names(plain: Sequence[str]) -> tuple[str, ...]:
    """Return names of devices, numbered where several share one."""
    totals: dict[str, int] = {}
    for name in plain:
        totals[name] = totals.get(name, 0) + 1
    seen: dict[str, int] = {}
    numbered = []
    for name in plain:
        seen[name] = seen.get(name, 0) + 1
        numbered.append(f"{name} #{seen[name]}" if totals[name] > 1 else name)
    return tuple(numbered)


def _facts(data: Mapping[str, Any], devices: int) -> dict[str, str]:
    """Return the circumstances of a run for its page; missing keys are left out."""
    told = {
        "scenario": data.get("scenario"),
        "data": data.get("data"),
        "model": data.get("architecture"),
        "parameters": data.get("parameters"),
        "partition": data.get("partition"),
        "clients": data.get("clients"),
        "devices": devices,
        "stopped by": data.get("stop_reason"),
        "seed": data.get("seed"),
        "machine": data.get("device"),
        "precision": data.get("precision"),
        "execution": data.get("execution", data.get("path")),  # "path" until the package was renamed
        "wall time": data.get("wall_seconds"),
        "FewJoules": data.get("fewjoules_version"),
    }
    words = {name: _fact(name, value) for name, value in told.items() if value is not None}
    return {name: word for name, word in words.items() if word}


def _fact(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _MANY:
        return plain_text(value)
    return f"{value:.4g} s" if name == "wall time" else str(value) if name == "seed" else f"{value:,}"
