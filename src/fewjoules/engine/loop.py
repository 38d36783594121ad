"""The loop of a run: train rounds until there is a reason to stop; write metrics, ledger and checkpoints."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch

from fewjoules.engine.accounts import round_seconds
from fewjoules.engine.coordinator import Coordinator, Outcome
from fewjoules.errors import DivergedError
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import METRICS, RowArray

TARGET, ROUNDS, ENERGY, TIME, INTERRUPTED = "target accuracy", "rounds", "energy budget", "time budget", "interrupted"
REASONS = (TARGET, ROUNDS, ENERGY, TIME)  # why a run is over


@dataclass(slots=True)
class Totals:
    """Sums over all rounds so far; joules and seconds are NaN where costs are unknown."""

    joules: float = 0.0
    radio_joules: float = 0.0
    compute_joules: float = 0.0
    planned_uplink_joules: float = 0.0
    uplink_joules: float = 0.0
    seconds: float = 0.0
    payload_bytes: int = 0
    samples: int = 0

    def add(self, rows: RowArray) -> tuple[float, float]:
        """Add the ledger rows of a round; return its joules and seconds."""
        uplink = math.fsum(rows["uplink_joules"])
        radio = uplink + math.fsum(rows["downlink_joules"]) + math.fsum(rows["tail_joules"])
        compute = math.fsum(rows["compute_joules"]) + math.fsum(rows["codec_joules"])
        seconds = round_seconds(rows)
        self.radio_joules += radio
        self.compute_joules += compute
        self.joules += radio + compute
        self.uplink_joules += uplink
        self.planned_uplink_joules += math.fsum(rows["planned_uplink_joules"])
        self.seconds += seconds
        self.payload_bytes += int(rows["payload_bytes"].sum())
        self.samples += int(rows["samples"].sum())
        return radio + compute, seconds


@dataclass(frozen=True, slots=True)
class Report:
    """Progress after a round; test loss and accuracy are those of the last evaluation (NaN before the first)."""

    round: int
    train_loss: float
    test_loss: float
    test_accuracy: float
    totals: Totals


class Saver(Protocol):
    """Saves the state of a run so that it can be resumed after a kill."""

    def is_due(self) -> bool:
        """Whether it is time to save."""

    def save(self, loop: "TrainingLoop") -> None:
        """Save the run; a later kill loses none of the rounds so far."""


@dataclass(slots=True)
class TrainingLoop:
    """One run. After a resume, ``totals`` and the logs include the earlier rounds."""

    simulator: Coordinator
    ledger: RowLog
    metrics: RowLog
    evaluator: Callable[[torch.Tensor, torch.Tensor], tuple[float, float]] | None = None
    totals: Totals = field(default_factory=Totals)
    last_test: tuple[float, float] = (math.nan, math.nan)
    on_round: Callable[[Report], None] = lambda _report: None
    saver: Saver | None = None
    should_stop: Callable[[], bool] = lambda: False
    knows_test_loss: bool = True  # whether NaN means that training diverged
    reason: str | None = None  # the reason to stop; it is saved in case the run is killed while it finishes
    _pending: Callable[[], Outcome] | None = None

    def run(self) -> str:
        """Train until there is a reason to stop, and return it."""
        options = self.simulator.options
        budgets = options.energy_budget_joules is not None or options.time_budget_seconds is not None
        while self.simulator.state.round < options.rounds and self.reason is None:
            self._pending = self.simulator.start_round(meanwhile=self._record_pending)
            evaluated = self._is_evaluated(self.simulator.state.round)
            stopping = self.should_stop()
            saving = self.saver is not None and (stopping or self.saver.is_due())
            if evaluated:
                self._evaluate()
            if evaluated or budgets or saving or stopping:
                self._record_pending(evaluated)
                self.reason = self._reason_to_stop(evaluated)
                if saving and self.saver is not None:
                    self.saver.save(self)
                if stopping and self.reason is None:
                    return INTERRUPTED
        self._record_pending()
        return self.reason or ROUNDS

    def _record_pending(self, evaluated: bool = False) -> None:
        """Record the pending round, if there is one; where possible, while the next one runs."""
        if self._pending is not None:
            outcome, self._pending = self._pending(), None
            self._record(int(outcome.rows["round"][0]), outcome, evaluated)

    def _is_evaluated(self, number: int) -> bool:
        options = self.simulator.options
        due = number % options.evaluation_rounds == 0 or number == options.rounds
        return self.evaluator is not None and due

    def _evaluate(self) -> None:
        assert self.evaluator is not None
        state = self.simulator.state
        tested = self.evaluator(state.weights, state.buffers)
        last = state.round == self.simulator.options.rounds  # before it, the next round names a client
        if math.isnan(tested[0]) and last and self.knows_test_loss:
            raise DivergedError(
                f"training diverged: the test loss after round {state.round} is NaN; a smaller learning rate may help"
            )
        self.last_test = tested

    def _record(self, number: int, outcome: Outcome, evaluated: bool) -> None:
        joules, seconds = self.totals.add(outcome.rows)
        self.ledger.append(outcome.rows)
        row = METRICS.new_rows(1)
        row["round"], row["batch_size"], row["learning_rate"] = number, outcome.batch_size, outcome.learning_rate
        row["epochs"] = self.totals.samples / self.simulator.sizes.sum()
        row["train_loss"], row["train_accuracy"] = outcome.train_loss, outcome.train_accuracy
        if evaluated:
            row["test_loss"], row["test_accuracy"] = self.last_test
        row["round_joules"], row["round_seconds"] = joules, seconds
        for name in ("joules", "radio_joules", "compute_joules", "seconds", "payload_bytes"):
            row[f"total_{name}"] = getattr(self.totals, name)
        self.metrics.append(row)
        self.on_round(Report(number, outcome.train_loss, *self.last_test, replace(self.totals)))

    def _reason_to_stop(self, evaluated: bool) -> str | None:
        options, totals = self.simulator.options, self.totals
        if evaluated and options.target_accuracy is not None and self.last_test[1] >= options.target_accuracy:
            return TARGET
        if options.energy_budget_joules is not None and totals.joules >= options.energy_budget_joules:
            return ENERGY
        if options.time_budget_seconds is not None and totals.seconds >= options.time_budget_seconds:
            return TIME
        return None


def first_round_at(metrics: RowArray, target_accuracy: float) -> int | None:
    """Index of the first row that reached the target, or None."""
    reached = np.flatnonzero(metrics["test_accuracy"] >= target_accuracy)
    return int(reached[0]) if reached.size else None
