"""Carry out trainings, in this process or in several; a training that has a record is not repeated."""

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fewjoules_reproduction.embedded import scenario_digest
from fewjoules_reproduction.records import Record, Records
from fewjoules_reproduction.studies import STUDIES, Setting

if TYPE_CHECKING:
    from fewjoules.engine.report import Report
    from fewjoules_reproduction.lab import Lab


@dataclass(frozen=True)
class Job:
    """One training or measurement that a study needs; it leaves one record."""

    study: str
    kind: Literal["tune", "run", "constants"]
    setting: Setting | None = None
    learning_rate: float | None = None
    seed: int | None = None

    @property
    def name(self) -> str:
        """Name of the job's record."""
        if self.setting is None:
            return self.kind
        own = "" if self.seed is None else f"-rate{self.learning_rate:.4g}-seed{self.seed}"
        return f"{self.kind}-{self.setting.name}{own}"

    @property
    def order(self) -> Record:
        """Everything that the record depends on; a record with a different order is not used."""
        study = STUDIES[self.study]
        scale = study.scale
        order: Record = {"study": self.study, "kind": self.kind}
        order["scenario"] = scenario_digest(study.scenario, study.bit_scale)
        if self.kind != "constants":
            order["gpu_precision"] = scale.gpu_precision
        if self.setting is not None:
            setting = self.setting
            order |= {
                "local_steps": setting.local_steps,
                "changes": dict(setting.changes),
                "adaptive": setting.adaptive,
            }
            order["sparsity"] = [float(f"{value:.6g}") for value in setting.sparsity]
        if self.kind == "tune":
            rates = (
                [float(f"{rate * self.setting.rate_scale:.6g}") for rate in scale.learning_rates]
                if self.setting
                else []
            )
            order |= {"rates": rates, "accuracy": scale.pilot_accuracy, "most": scale.pilot_steps}
            order["resolution"] = scale.pilot_resolution
        if self.kind == "run":
            order |= {"learning_rate": self.learning_rate, "seed": self.seed, "steps": scale.steps}
            order["resolution"] = scale.resolution
        return order

    @property
    def key(self) -> str:
        """Jobs that differ only in setting name or bit cost share a key."""
        return key_of(self.order)


def key_of(order: Record) -> str:
    """Key of the job with this order; adaptive runs depend on the bit cost, so theirs contains the study."""
    cost_matters = order.get("adaptive", False) and order.get("kind") == "run"
    shared = order if cost_matters else order | {"study": STUDIES[order["study"]].task}
    return json.dumps(shared, sort_keys=True)


class Shelf:
    """Records by key. Radio joules are rescaled to the requesting study's cost per bit."""

    def __init__(self, records: Records, studies: Iterable[str]) -> None:
        """Read the records of all studies that share a task with these."""
        tasks = {STUDIES[name].task for name in studies}
        self._found: dict[str, Record] = {}
        for study in STUDIES.values():
            for record in records.of(study.name) if study.task in tasks else ():
                order = record.get("order")
                if isinstance(order, dict) and order.get("study") == study.name:
                    self._found.setdefault(key_of(order), record)

    def find(self, job: Job) -> Record | None:
        """The record with the job's key, or None if there is none."""
        record = self._found.get(job.key)
        if record is None or "curve" not in record:
            return record
        scale = STUDIES[job.study].bit_scale / STUDIES[record["order"]["study"]].bit_scale
        return record if scale == 1.0 else record | {"curve": _with_bit_cost(record["curve"], scale)}


def _with_bit_cost(curve: Record, scale: float) -> Record:
    radio = [scale * joules for joules in curve["total_radio_joules"]]
    both = [sum(pair) for pair in zip(radio, curve["total_compute_joules"], strict=True)]
    return curve | {"total_radio_joules": radio, "total_joules": both}


@dataclass(frozen=True, kw_only=True)
class Means:
    """Where and how trainings are carried out; with ``train`` false only records are read."""

    records: Records
    device: str = "auto"
    data_dir: str | None = None
    executor: Executor | None = None  # of ``fewjoules.runs.processes``; None trains in this process, one job at a time
    train: bool = True
    on_job: Callable[[str, int, int], None] = lambda _name, _done, _total: None
    on_round: "Callable[[str, int, Report], None] | None" = None  # name, rounds and report; only without an executor


def carry_out(jobs: Iterable[Job], means: Means) -> dict[str, Record]:
    """Return the records of the jobs by name; missing ones are trained, or left out if ``means.train`` is false.

    Jobs with the same key share a record.
    """
    wanted = list(jobs)
    shelf = Shelf(means.records, {job.study for job in wanted})
    if means.train:
        missing = list({job.key: job for job in reversed(wanted) if shelf.find(job) is None}.values())[::-1]
        total = len({job.key for job in wanted})
        done = total - len(missing)
        for job, record in _made(missing, means):
            means.records.save(job.study, job.name, {"order": job.order} | record)
            done += 1
            means.on_job(f"{job.study}: {job.name}", done, total)
        shelf = Shelf(means.records, {job.study for job in wanted})
    found = {job.name: shelf.find(job) for job in wanted}
    return {name: record for name, record in found.items() if record is not None}


def _made(jobs: list[Job], means: Means) -> Iterator[tuple[Job, Record]]:
    if means.executor is None:
        for job in jobs:
            yield job, _make(job, means.device, means.data_dir, means.on_round)
        return
    pending = {means.executor.submit(_make, job, means.device, means.data_dir): job for job in jobs}
    for future in as_completed(pending):
        try:
            record = future.result()
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a training process was killed, perhaps for lack of memory; use fewer --processes, and the same "
                "command continues after the trainings that are done"
            ) from error
        yield pending[future], record


_labs: "dict[tuple[str, str, str | None], Lab]" = {}  # by task, device and data folder; only the last one is kept


def _make(
    job: Job,
    device: str,
    data_dir: str | None,
    on_round: "Callable[[str, int, Report], None] | None" = None,
) -> Record:
    from fewjoules_reproduction.lab import Lab

    key = (STUDIES[job.study].task, device, data_dir)
    if key not in _labs:
        _labs.clear()
        _labs[key] = Lab(job.study, device, data_dir)
    if _labs[key].study.name != job.study:
        _labs[key] = _labs[key].of(job.study)
    lab = _labs[key]
    lab.on_round = None if on_round is None else functools.partial(on_round, job.name)
    if job.kind == "constants":
        return lab.constants()
    assert job.setting is not None
    if job.kind == "tune":
        return lab.tune(job.setting)
    assert job.learning_rate is not None
    assert job.seed is not None
    return lab.run(job.setting, job.learning_rate, job.seed)
