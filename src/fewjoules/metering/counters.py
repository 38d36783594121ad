"""Meters that count energy: differences of counters, some of which wrap around."""

import math
import threading
from collections.abc import Callable, Sequence

from fewjoules.errors import MeterError
from fewjoules.metering.meter import Ticker

_LOOK_EVERY_SECONDS = 10.0  # a counter must be read at least once each time it goes around


class Counter:
    """Sums up what a rising counter has risen, in joules; at ``wraps_at`` it starts again from zero."""

    def __init__(
        self,
        name: str,
        read: Callable[[], int],
        *,
        joules_per_unit: Callable[[], float],
        wraps_at: int | None = None,
    ) -> None:
        """Take the first reading."""
        self._name, self._read, self._joules_per_unit, self._wraps_at = name, read, joules_per_unit, wraps_at
        self._last, self._joules = read(), 0.0

    def advance(self) -> float:
        """Read the counter and return the joules since the first reading."""
        now = self._read()
        risen = now - self._last
        if risen < 0:
            if self._wraps_at is None:
                raise MeterError(f"the counter of {self._name} must never fall, but fell from {self._last} to {now}")
            risen += self._wraps_at
        self._last = now
        self._joules += risen * self._joules_per_unit()
        return self._joules


class CounterMeter:
    """The sum of some counters, read now and then so that none goes around unseen."""

    def __init__(self, kind: str, described: str, counters: Sequence[Counter], *, resolution_seconds: float) -> None:
        """Start to look at the counters."""
        self.kind, self.described, self.resolution_seconds = kind, described, resolution_seconds
        self._counters, self._lock = counters, threading.Lock()
        self._ticker = Ticker(self._advance, _LOOK_EVERY_SECONDS)

    def joules(self) -> float:
        """Return the joules since the meter was opened."""
        self._ticker.check()
        return self._advance()

    def close(self) -> None:
        """Stop looking at the counters."""
        self._ticker.stop()

    def _advance(self) -> float:
        with self._lock:
            return math.fsum(counter.advance() for counter in self._counters)
