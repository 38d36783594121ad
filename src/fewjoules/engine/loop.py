"""The loop of a run: train rounds until there is a reason to stop; write metrics, ledger and checkpoints."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from fewjoules.engine.accounts import round_seconds
from fewjoules.engine.algorithm.state import ServerState
from fewjoules.engine.coordinator import CalledOffError, Coordinator, Outcome
from fewjoules.engine.guard import Guard
from fewjoules.engine.loop_protocols import Listener, Saver
from fewjoules.engine.report import Report
from fewjoules.engine.totals import Totals
from fewjoules.errors import DivergedError
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import RowArray
from fewjoules.ledger.target import REASONS as TARGETS
from fewjoules.ledger.target import Target

TARGET, ROUNDS, ENERGY, TIME, INTERRUPTED = TARGETS[0], "rounds", "energy budget", "time budget", "interrupted"
NOBODY, CALLBACK = "no device left", "callback"
REASONS = (*TARGETS, ROUNDS, ENERGY, TIME, NOBODY, CALLBACK)  # why a run is over


class _UndoneError(Exception):
    """The round that is being started must be dropped: the one before it blew up. ``error`` if that ends the run."""

    def __init__(self, error: DivergedError | None = None) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class TrainingLoop:
    """One run. After a resume, ``totals`` and the logs include the earlier rounds."""

    simulator: Coordinator
    ledger: RowLog
    metrics: RowLog
    evaluator: Callable[[torch.Tensor, torch.Tensor], tuple[float, ...]] | None = None
    totals: Totals = field(default_factory=Totals)
    last_test: tuple[float, ...] = (math.nan, math.nan)  # loss, accuracy, and metrics of the user's own
    on_round: Callable[[Report], None] = lambda _report: None
    listener: Listener | None = None
    saver: Saver | None = None
    should_stop: Callable[[], bool] = lambda: False
    knows_test_loss: bool = True  # whether NaN means that training diverged
    reason: str | None = None  # the reason to stop; it is saved in case the run is killed while it finishes
    guard: Guard | None = None  # made before the first round, unless the run has none
    _pending: Callable[[], Outcome] | None = None
    _untold: Report | None = None  # of the last round, until it is complete
    _unevaluated: RowArray | None = None  # metrics of the last round, unless the model after it was evaluated
    _complete: int | None = None  # the last round of which everything is recorded; None while one is half recorded

    def __post_init__(self) -> None:
        """Start after the rounds of the simulator."""
        self._complete = self.simulator.state.round

    def run(self) -> str:
        """Train until there is a reason to stop, and return it."""
        options = self.simulator.options
        budgets = options.energy_budget_joules is not None or options.time_budget_seconds is not None
        booked = self.simulator.sampler.books is not None  # who takes part next depends on what was spent before
        self.guard = None if options.guard is False else self.guard or Guard.at_start(self.simulator)
        self.simulator.holds_clients = self.saver is not None and self.simulator.backend.keeps_clients
        while self.simulator.state.round < options.rounds and self.reason is None:
            if booked and not self.simulator.has_participants():
                self.reason = NOBODY
                break
            if not self._start_round():
                continue
            evaluated = self._is_evaluated(self.simulator.state.round)
            stopping = self.should_stop()
            saving = self.saver is not None and (stopping or self.saver.is_due())
            if evaluated or budgets or booked or saving or stopping or self._is_kept() or self._is_held():
                self._record_pending(evaluated)
                self._end_if(self._reason_to_stop(evaluated))
                if self.guard is not None:
                    self.guard.keep(self.simulator)
                self._end_round()
                if self.listener is not None and self.listener.asks_to_end():
                    self._end_if(CALLBACK)
                if booked and self.simulator.state.round < options.rounds and not self.simulator.has_participants():
                    self._end_if(NOBODY)
                if saving:
                    self._save()
                if stopping and self.reason is None:
                    return INTERRUPTED
        self._record_pending()
        self._end_round()
        return self.reason or ROUNDS

    def settle(self) -> bool:
        """After an error, return to the state after the last complete round; tell whether that was possible.

        Without a saver what clients keep stays as it is.
        """
        if self._complete is None:
            return False
        if self.simulator.begun_round > self._complete:
            if not self.simulator.take_back():
                return False
            if self.simulator.state.round > self._complete:  # on a GPU, the round before was still to be recorded
                self._record_pending()
                self._end_round(told=False)
        self._pending = self._untold = None
        return self.simulator.state.round == self._complete

    @property
    def own_metrics(self) -> dict[str, float]:
        """Metrics of the user's own at the last evaluation, by name; NaN before the first."""
        known = self.last_test[2:] or (math.nan,) * len(self.metrics.table.own_names)
        return dict(zip(self.metrics.table.own_names, known, strict=True))

    def _end_if(self, reason: str | None) -> None:
        """Let the run end for a reason, unless there is another one, and evaluate the model that it hands out."""
        if reason is None or self.reason is not None:
            return
        self.reason = reason
        row, self._unevaluated = self._unevaluated, None
        if row is None or self.evaluator is None:
            return
        try:
            self.last_test = self.evaluator(*self.simulator.state.result)
        except Exception:
            self._end_round(told=False)  # which is complete all the same
            raise
        self._add_test(row)
        self.metrics.amend(row)
        report = self._told(row, evaluated=True)
        if self._untold is not None:
            self._untold = report
        elif self.listener is not None:
            self.listener.evaluated(report)
        if self.simulator.options.target is not None and self._is_met(self.simulator.options.target):
            self.reason = self.simulator.options.target.reason

    def _is_held(self) -> bool:
        """Whether a listener must hear of this round before the next one, or has asked to end."""
        return self.listener is not None and (self.listener.holds_rounds or self.listener.asks_to_end())

    def _end_round(self, *, told: bool = True) -> None:
        """Note that the round that was recorded is complete, and tell of it."""
        report, self._untold = self._untold, None
        if report is None:
            return
        self._complete = report.round
        if told:
            self.on_round(report)
            if self.listener is not None:
                self.listener.round_ended(report)

    def _save(self) -> None:
        assert self.saver is not None
        self.saver.save(self)
        if self.listener is not None:
            self.listener.saved()

    def _start_round(self) -> bool:
        """Start the next round and record the one before; False if that one was undone, and with it the next."""
        try:
            self._pending = self.simulator.start_round(meanwhile=self._record_before_next)
        except _UndoneError as undone:
            if undone.error is not None:
                raise undone.error from undone.error.__cause__
            return False
        except CalledOffError as off:
            if self.guard is None:
                raise
            was_undone = self._record_pending()
            self._end_round()
            if was_undone:
                return False
            self._go_back(off.state, off)
            self._pending = off.outcome
        return True

    def _record_before_next(self) -> None:
        """Record the pending round while the next one runs; raise ``_UndoneError`` if the next must not."""
        try:
            undone = self._record_pending()
        except DivergedError as error:
            raise _UndoneError(error) from error
        self._end_round()
        if undone:
            raise _UndoneError

    def _record_pending(self, evaluated: bool = False) -> bool:
        """Wait for the pending round, if there is one, and record it; return whether it blew up and was undone.

        With ``evaluated`` the model after it is evaluated: the one to which the run returned, if it did.
        """
        if self._pending is None:
            return False
        guard, tested = None if self.guard is None else replace(self.guard), self.last_test
        try:
            return self._record_outcome(evaluated)
        except Exception:
            self.guard, self.last_test = guard, tested
            raise

    def _record_outcome(self, evaluated: bool) -> bool:
        error = self._evaluate() if evaluated else None
        if error is not None and self.guard is None:
            raise error
        outcome = self._finished()
        number = int(outcome.rows["round"][0])
        if error is not None and not self._is_undone(number):
            self._go_back(self.simulator.state, error)
        undone = self._is_undone(number)
        error = self._evaluate() if evaluated and undone else None
        if error is not None:
            raise error
        self._record(number, outcome, evaluated)
        return undone

    def _finished(self) -> Outcome:
        """Wait for the pending round; if it blew up, return to a good state."""
        assert self._pending is not None
        pending, self._pending = self._pending, None
        try:
            outcome = pending()
        except CalledOffError as off:
            self._go_back(off.state, off)
            return off.outcome()
        number = int(outcome.rows["round"][0])
        if self.guard is not None and not self._is_undone(number) and self.guard.sees_blow_up(outcome):
            first = self.guard.level.first
            told = f"the training loss of round {number} is {outcome.train_loss:.4g}, far above the first, {first:.4g}"
            self._go_back(
                self.simulator.state, DivergedError(f"training diverged: {told}; a smaller learning rate may help")
            )
        return outcome

    def _is_undone(self, number: int) -> bool:
        return number in self.simulator.state.returns

    def _go_back(self, state: ServerState, error: DivergedError) -> None:
        """Return from ``state`` to a good one; raise the error where there is no guard or no further return."""
        if self.guard is None:
            raise error
        self.guard.send_back(self.simulator, state, error)

    def _is_kept(self) -> bool:
        return self.guard is not None and self.guard.is_due(self.simulator.state.round)

    def _is_evaluated(self, number: int) -> bool:
        return self.evaluator is not None and self.simulator.options.evaluates_after(number)

    def _evaluate(self) -> DivergedError | None:
        """Evaluate the model; return an error if it is the last one and its loss is NaN."""
        assert self.evaluator is not None
        state = self.simulator.state
        tested = self.evaluator(*state.result)
        last = state.round == self.simulator.options.rounds  # before it, the next round names a client
        if math.isnan(tested[0]) and last and self.knows_test_loss:
            return DivergedError(
                f"training diverged: the test loss after round {state.round} is NaN; a smaller learning rate may help"
            )
        self.last_test = tested
        return None

    def _record(self, number: int, outcome: Outcome, evaluated: bool) -> None:
        self._complete = None
        sampler = self.simulator.sampler
        joules, seconds = self.totals.add(outcome.rows, sampler.waited_seconds(outcome.waited))
        sampler.book(outcome.rows, round_seconds(outcome.rows), outcome.waited)
        self.ledger.append(outcome.rows)
        row = self.metrics.table.new_rows(1)
        row["round"], row["batch_size"], row["learning_rate"] = number, outcome.batch_size, outcome.learning_rate
        row["epochs"] = self.totals.samples / self.simulator.total_samples
        row["train_loss"], row["train_accuracy"] = outcome.train_loss, outcome.train_accuracy
        if evaluated:
            self._add_test(row)
        row["round_joules"], row["round_seconds"] = joules, seconds
        for name in ("joules", "radio_joules", "compute_joules", "seconds", "payload_bytes"):
            row[f"total_{name}"] = getattr(self.totals, name)
        self.metrics.append(row)
        self._unevaluated = None if evaluated else row
        self._untold = self._told(row, evaluated)

    def _add_test(self, row: RowArray) -> None:
        """Write what the last evaluation found into a row of metrics."""
        row["test_loss"], row["test_accuracy"] = self.last_test[:2]
        for name, value in self.own_metrics.items():
            row[f"test_{name}"] = value

    def _told(self, row: RowArray, evaluated: bool) -> Report:
        """Return what is told of the round of a row."""
        loss, accuracy = self.last_test[:2]
        number, train_loss = int(row["round"][0]), float(row["train_loss"][0])
        return Report(number, train_loss, loss, accuracy, replace(self.totals), evaluated, metrics=self.own_metrics)

    def _is_met(self, target: Target) -> bool:
        loss, accuracy = self.last_test[:2]
        return target.is_met(loss, accuracy, self.own_metrics)

    def _reason_to_stop(self, evaluated: bool) -> str | None:
        options, totals = self.simulator.options, self.totals
        if evaluated and options.target is not None and self._is_met(options.target):
            return options.target.reason
        if options.energy_budget_joules is not None and totals.joules >= options.energy_budget_joules:
            return ENERGY
        if options.time_budget_seconds is not None and totals.seconds >= options.time_budget_seconds:
            return TIME
        return None
