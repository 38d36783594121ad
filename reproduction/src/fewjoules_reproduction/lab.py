"""Trainings of one study: pilot runs that tune the step size, runs that are shown, and constants of the bound."""

import copy
import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.loop import TARGET
from fewjoules.engine.report import Report
from fewjoules.ledger.schema import RowArray
from fewjoules.runs.device import choose_device, device_name
from fewjoules.runs.task import ScenarioTask, prepare, varied
from fewjoules.runs.training import DIVERGED, Training, train_task
from fewjoules_reproduction.adaptive import train_adaptively
from fewjoules_reproduction.embedded import embedded_scenario
from fewjoules_reproduction.estimates import ClientGradients, estimate_constants
from fewjoules_reproduction.records import CURVE_COLUMNS, Record
from fewjoules_reproduction.studies import STUDIES, TUNING_SEED, Setting


class Lab:
    """Data and recorded graphs of a study, shared by all its trainings."""

    def __init__(self, study: str, device: str, data_dir: str | None) -> None:
        """Load the data."""
        self.study = STUDIES[study]
        self.task = prepare(embedded_scenario(self.study.scenario), choose_device(device), data_dir)
        self._seeded = {self.task.training.seed: self.task}
        self.on_round: Callable[[int, Report], None] | None = None
        self._graphs: dict[Any, Any] = {}
        self._precision = self.study.scale.gpu_precision if self.task.device.type == "cuda" else "float32"

    def of(self, study: str) -> "Lab":
        """The same data and graphs for another study of the task, which has costs of its own."""
        own = copy.copy(self)
        own.study = STUDIES[study]
        scenario = embedded_scenario(own.study.scenario)
        assert (scenario.training, scenario.architecture) == (self.task.training, self.task.scenario.architecture)
        own.task = dataclasses.replace(self.task, scenario=scenario, fleet=scenario.fleet)
        own._seeded = {own.task.training.seed: own.task}
        return own

    def tune(self, setting: Setting) -> Record:
        """The step size with which the pilot accuracy is reached in the fewest rounds; of equals the first tried."""
        scale = self.study.scale
        most = math.ceil(scale.pilot_steps / setting.local_steps)
        every = max(1, scale.pilot_resolution // setting.local_steps)
        best: tuple[int, float] | None = None
        closest: tuple[float, float] | None = None
        tried = []
        for rate in (setting.rate_scale * rate for rate in scale.learning_rates):
            rounds = most if best is None else best[0] - every
            if rounds < 1:
                break
            needed, accuracy = self._rounds_to_pilot_accuracy(setting, rate, rounds, every)
            tried.append({"learning_rate": rate, "rounds": needed, "test_accuracy": accuracy, "most_rounds": rounds})
            if needed is not None:
                best = needed, rate
            if closest is None or accuracy > closest[0]:
                closest = accuracy, rate
        assert closest is not None
        return self._described(setting) | {
            "tried": tried,
            "learning_rate": closest[1] if best is None else best[1],
            "rounds": None if best is None else best[0],
        }

    def _rounds_to_pilot_accuracy(
        self, setting: Setting, rate: float, rounds: int, every: int
    ) -> tuple[int | None, float]:
        options = self._options(
            setting,
            rate,
            TUNING_SEED,
            rounds=rounds,
            target_accuracy=self.study.scale.pilot_accuracy,
            evaluate_every=every,
        )
        training = self._trained(self._task(TUNING_SEED), options)
        accuracy = training.loop.last_test[1]
        return (
            training.rounds if training.reason == TARGET else None,
            0.0 if training.reason == DIVERGED or math.isnan(accuracy) else accuracy,
        )

    def run(self, setting: Setting, rate: float, seed: int) -> Record:
        """A training of ``steps`` local steps, with its curve."""
        began = time.monotonic()
        scale = self.study.scale
        options = self._options(
            setting,
            rate,
            seed,
            rounds=math.ceil(scale.steps / setting.local_steps),
            evaluate_every=max(1, scale.resolution // setting.local_steps),
        )
        task = self._task(seed)
        training = (
            train_adaptively(task, options, self._graphs, self._listener(options))
            if setting.adaptive
            else self._trained(task, options)
        )
        return self._described(setting) | {
            "stop_reason": training.reason,
            "curve": curve_of(training.loop.metrics.rows()),
            "local_steps_used": _steps_used(training.loop.ledger.rows()),
            "wall_seconds": round(time.monotonic() - began, 3),
        }

    def constants(self) -> Record:
        """Constants of Theorem 1 for this task, and a target: a hundredth of the first squared gradient norm."""
        task = self._task(TUNING_SEED)
        gradients = ClientGradients(task.model, task.loss, task.federation, seed=TUNING_SEED)
        batch = task.training.batch_size
        assert isinstance(batch, int)
        found, squared = estimate_constants(gradients, gradients.initial_weights, batch=batch, learning_rate=0.05)
        return {"epsilon": squared / 100.0} | dataclasses.asdict(found)

    def _task(self, seed: int) -> ScenarioTask:
        if seed not in self._seeded:
            self._seeded[seed] = varied(self.task, seed=seed)
        return self._seeded[seed]

    def _options(self, setting: Setting, rate: float, seed: int, **more: Any) -> TrainingOptions:
        given = self.task.training.options(self.task.scenario.files)
        given |= {"learning_rate": rate, "seed": seed, "precision": self._precision, "guard": False}
        return TrainingOptions.of(
            **given | dict(setting.changes) | {"local_steps": setting.local_steps, "sparsity": setting.sparsity} | more
        )

    def _trained(self, task: ScenarioTask, options: TrainingOptions) -> Training:
        return train_task(task, options, graphs=self._graphs, keep_diverged=True, on_round=self._listener(options))

    def _listener(self, options: TrainingOptions) -> Callable[[Report], None] | None:
        return None if self.on_round is None else functools.partial(self.on_round, options.rounds)

    def _described(self, setting: Setting) -> Record:
        return {
            "local_steps": setting.local_steps,
            "sparsity": [float(value) for value in setting.sparsity],
            "device": device_name(self.task.device),
        }


def _steps_used(ledger: RowArray) -> dict[str, int]:
    """In how many rounds each H was used."""
    first = ledger[ledger["device"] == 0]["local_steps"] if ledger.size else np.zeros(0, dtype=np.int64)
    values, counts = np.unique(first, return_counts=True)
    return {str(value): int(count) for value, count in zip(values, counts, strict=True)}


def curve_of(metrics: RowArray) -> dict[str, list[float]]:
    """The evaluated rounds of finite loss; training loss and accuracy are means since the last one."""
    at = np.flatnonzero(np.isfinite(metrics["test_accuracy"]) & np.isfinite(metrics["test_loss"]))
    curve: dict[str, list[float]] = {}
    for name in CURVE_COLUMNS:
        column = metrics[name].astype(np.float64)
        chosen = _means(column, at) if name.startswith("train_") else column[at]
        curve[name] = [float(f"{value:.7g}") for value in chosen]
    return curve


def _means(column: FloatArray, at: np.ndarray) -> FloatArray:
    starts = np.concatenate([[0], at[:-1] + 1])[: at.size]
    return np.array([column[start : end + 1].mean() for start, end in zip(starts, at, strict=True)])
