"""Callbacks: see a run of ``fewjoules.train`` as it goes on, look at its model, and end it."""

import math
from pathlib import Path

from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.loop import TrainingLoop
from fewjoules.engine.report import Report
from fewjoules.engine.totals import Totals
from fewjoules.errors import InvalidInputError, require_integer, require_number
from fewjoules.ledger.schema import RowArray
from fewjoules.runs.results import rows_of
from fewjoules.runs.trained import trained_model

_FALLING = ("train_loss", "test_loss", "train_perplexity", "test_perplexity")  # of which less is better


class OngoingRun:
    """A run as callbacks see it, after the last round that ended. Runs make it; there is no need to construct one.

    Args:
        loop: The training loop that is watched.
        model: The model of which it trains copies.
        folder: Folder of the run, if it has one.
    """

    folder: Path | None
    is_stopped: bool

    def __init__(self, loop: TrainingLoop, model: nn.Module, folder: Path | None = None) -> None:
        """Watch a loop that trains copies of ``model``."""
        self._loop, self._model, self.folder = loop, model, folder
        self._report: Report | None = None
        self.is_stopped = False
        self.stop_reason: str | None = None  # known at the end

    @property
    def options(self) -> TrainingOptions:
        """The options of the run."""
        return self._loop.simulator.options

    @property
    def round(self) -> int:
        """The last round that ended; 0 before the first."""
        return self._loop.simulator.state.round if self._report is None else self._report.round

    @property
    def has_test(self) -> bool:
        """Whether there is a test set, on which the model is evaluated."""
        return self._loop.evaluator is not None

    @property
    def metrics(self) -> dict[str, float]:
        """Losses and other metrics by name; those of the test set are from the last evaluation, NaN before it."""
        if self._report is None:
            return {}
        report = self._report
        usual = {name: getattr(report, name) for name in ("train_loss", "test_loss", "test_accuracy")}
        return usual | {f"test_{name}": value for name, value in report.metrics.items()}

    @property
    def totals(self) -> Totals:
        """Joules, seconds, bytes and samples of all rounds so far."""
        return self._loop.totals if self._report is None else self._report.totals

    def history(self) -> RowArray:
        """Return the metrics of all rounds so far, one row for each; of a resumed run, the earlier ones too."""
        return rows_of(self._loop.metrics, self.folder)

    def model(self) -> nn.Module:
        """Return a copy of the model that is evaluated now, on the processor, in evaluation mode."""
        return trained_model(self._model, self._loop.simulator)

    def stop(self) -> None:
        """End the run after this round; its results are then complete and its stop reason is "callback"."""
        self.is_stopped = True

    def note(self, report: Report) -> None:
        """Take note of a round that ended."""
        self._report = report


class Callback:
    """Base of callbacks: override the methods that you need. Each gets the run as it is at that time.

    An exception that a callback raises ends the run. A run with a folder is saved first and can be resumed.

    Examples:
        >>> class Watch(fj.Callback):
        ...     def on_evaluation_end(self, run):
        ...         print(run.round, run.metrics["test_loss"], run.totals.joules)
    """

    holds_rounds = True  # whether the next round waits until this callback has seen the last one
    on_every_rank = True  # False: of the processes that train a run together, only the first calls it

    def on_train_start(self, run: OngoingRun) -> None:
        """See the run before its first round, or before the first one after a resume."""

    def on_evaluation_end(self, run: OngoingRun) -> None:
        """See the run after the model was evaluated on the test set."""

    def on_round_end(self, run: OngoingRun) -> None:
        """See the run after each round; evaluations of the round come first."""

    def on_save_checkpoint(self, run: OngoingRun) -> None:
        """See the run after a checkpoint was written to its folder."""

    def on_train_end(self, run: OngoingRun) -> None:
        """See the run after its end, when its results are written; an interrupted run ends too."""

    def on_exception(self, run: OngoingRun, error: BaseException) -> None:
        """See the run that an exception ended; the exception is raised afterwards."""


class EarlyStopping(Callback):
    """End a run whose metric has not improved for some evaluations.

    Args:
        metric: One of ``OngoingRun.metrics``, such as "test_loss", "test_accuracy" or "test_f1".
        patience: Evaluations without an improvement after which the run ends; those before a resume count.
        min_delta: By how much the metric must change to have improved.
        rises: Whether larger is better; by default everywhere but for losses and perplexities, as for targets.

    Examples:
        >>> fj.train(model, clients=clients, test=test, callbacks=[fj.EarlyStopping(patience=5)], **options)
    """

    metric: str
    patience: int
    min_delta: float

    def __init__(
        self, metric: str = "test_loss", patience: int = 3, *, min_delta: float = 0.0, rises: bool | None = None
    ) -> None:
        """Watch one of ``OngoingRun.metrics``."""
        self.metric, self.patience = metric, require_integer("patience", patience, low=1, high=10**9)
        self.min_delta = require_number("min_delta", min_delta, low=0.0)
        self._sign = -1.0 if (metric not in _FALLING if rises is None else rises) else 1.0
        self._best, self._waited = math.inf, 0

    def on_train_start(self, run: OngoingRun) -> None:
        """Take up the evaluations of a resumed run; refuse a run that has none."""
        if not run.has_test:
            raise InvalidInputError("EarlyStopping waits for evaluations, which need a test set, got none")
        self._best, self._waited = math.inf, 0
        history = run.history()
        if self.metric in (history.dtype.names or ()):
            for row in history:
                if run.options.evaluates_after(int(row["round"])):
                    self._note(float(row[self.metric]))

    def on_evaluation_end(self, run: OngoingRun) -> None:
        """End the run if it has waited long enough."""
        if self.metric not in run.metrics:
            raise InvalidInputError(f"the metric must be one of {', '.join(run.metrics)}, got {self.metric!r}")
        self._note(run.metrics[self.metric])
        if self._waited >= self.patience:
            run.stop()

    def _note(self, value: float) -> None:
        if self._sign * value < self._best - self.min_delta:
            self._best, self._waited = self._sign * value, 0
        else:
            self._waited += 1
