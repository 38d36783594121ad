"""When a run saves its next checkpoint."""

import contextlib
import time
from collections.abc import Callable, Iterator

USUAL_SECONDS = 30.0
LARGEST_SHARE = 0.05  # of a run's time that checkpoints take, unless the user chose an interval


class CheckpointInterval:
    """Tells when a save is due: ``seconds`` after the last one ended, whatever it costs.

    Without ``seconds``, half a minute after the last one, or as much later as it takes until all saves, the next one
    included, are a twentieth of the run's time. The next save is expected to take as long as the last one.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = lambda: time.monotonic()) -> None:
        """Start the clock."""
        self._seconds, self._clock = seconds, clock
        self._began = self._last_end = clock()
        self._spent_seconds = self._last_cost_seconds = 0.0

    def is_due(self) -> bool:
        """Whether a save is due."""
        now = self._clock()
        if self._seconds is not None:
            return now - self._last_end >= self._seconds
        after_next = self._spent_seconds + self._last_cost_seconds
        affordable = after_next <= LARGEST_SHARE * (now - self._began + self._last_cost_seconds)
        return now - self._last_end >= USUAL_SECONDS and affordable

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Count the time that a save takes, and restart the interval after it."""
        start = self._clock()
        yield
        self._last_end = self._clock()
        self._last_cost_seconds = self._last_end - start
        self._spent_seconds += self._last_cost_seconds
