"""Tell callbacks of a run and of its failure."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from fewjoules.engine.ranks import ALONE, Ranks
from fewjoules.engine.report import Report
from fewjoules.errors import InvalidInputError, shown
from fewjoules.runs.callbacks import Callback, OngoingRun


class CallbackFailedError(Exception):
    """A callback raised ``error``, or one of another rank did."""

    def __init__(self, error: Exception) -> None:
        """Keep the error, which is raised again where the run ends."""
        super().__init__(str(error))
        self.error = error


class Listeners:
    """Tells several callbacks of one run, in their order; a run of several ranks ends if a callback of one asks."""

    def __init__(self, callbacks: Sequence[Callback], run: OngoingRun, ranks: Ranks = ALONE) -> None:
        """Tell nothing yet."""
        self._callbacks, self._run, self.ranks = callbacks, run, ranks
        self.holds_rounds = ranks.any(any(callback.holds_rounds for callback in callbacks))

    def started(self) -> None:
        """Tell that training starts."""
        self._tell("on_train_start")

    def round_ended(self, report: Report) -> None:
        """Tell of a round, and before it of its evaluation."""
        self._run.note(report)
        if report.evaluated:
            self._tell("on_evaluation_end")
        self._tell("on_round_end")

    def evaluated(self, report: Report) -> None:
        """Tell of an evaluation after the end of the last round."""
        self._run.note(report)
        self._tell("on_evaluation_end")

    def saved(self) -> None:
        """Tell of a checkpoint."""
        self._tell("on_save_checkpoint")

    def ended(self, reason: str) -> None:
        """Tell that the run has ended and its results are written; an error of a callback is raised as it is."""
        self._run.stop_reason = reason
        for callback in self._callbacks:
            callback.on_train_end(self._run)

    def failed(self, error: BaseException) -> None:
        """Tell of an exception that ended the run."""
        for callback in self._callbacks:
            callback.on_exception(self._run, error)

    def asks_to_end(self) -> bool:
        """Whether a callback has stopped the run."""
        return self.ranks.any(self._run.is_stopped)

    def _tell(self, event: str) -> None:
        try:
            with self.ranks.together():
                for callback in self._callbacks:
                    getattr(callback, event)(self._run)
        except Exception as error:
            raise CallbackFailedError(error) from error


@contextlib.contextmanager
def heard(listeners: Listeners | None) -> Iterator[None]:
    """Tell callbacks of an exception in this block; one that a callback raised is passed on as it is."""
    try:
        yield
    except CallbackFailedError as failed:
        error = failed.error
    except BaseException as raised:
        if listeners is not None:
            listeners.failed(raised)
        raise
    else:
        return
    if listeners is not None:
        listeners.failed(error)
    raise error


def require_function(name: str, given: Any) -> None:
    """Refuse anything but a function or None."""
    if given is not None and not callable(given):
        raise InvalidInputError(f"{name} must be a function of one argument or None, got {shown(given)}")


def require_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """Return the callbacks; refuse anything else."""
    given = list(callbacks) if isinstance(callbacks, Sequence) else [callbacks]
    for callback in given:
        if not isinstance(callback, Callback):
            kind = callback.__name__ if isinstance(callback, type) else type(callback).__name__
            hint = "; make an object of it" if isinstance(callback, type) else ""
            raise InvalidInputError(f"callbacks must be a list of fewjoules.Callback objects, got {kind}{hint}")
    return tuple(given)
