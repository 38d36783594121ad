"""Meters that give watts: a thread samples them, and the samples are integrated."""

import threading
import time
from collections.abc import Callable

from fewjoules.metering.meter import Ticker


class Integral:
    """Joules under samples of power, joined by straight lines."""

    def __init__(self) -> None:
        """Start without a sample."""
        self.joules = 0.0
        self._last: tuple[float, float] | None = None

    def add(self, seconds: float, watts: float) -> None:
        """Add a sample; times must not fall."""
        if self._last is not None:
            before, last_watts = self._last
            self.joules += 0.5 * (watts + last_watts) * (seconds - before)
        self._last = seconds, watts


class PowerMeter:
    """Integrates a power that is read every ``resolution_seconds``, and whenever somebody asks."""

    def __init__(
        self,
        kind: str,
        described: str,
        read_watts: Callable[[], float],
        *,
        resolution_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the first sample and start the thread."""
        self.kind, self.described, self.resolution_seconds = kind, described, resolution_seconds
        self._read_watts, self._clock = read_watts, clock
        self._integral, self._lock = Integral(), threading.Lock()
        self._sample()
        self._ticker = Ticker(self._sample, resolution_seconds)

    def joules(self) -> float:
        """Return the joules since the meter was opened."""
        self._ticker.check()
        return self._sample()

    def close(self) -> None:
        """Stop sampling."""
        self._ticker.stop()

    def _sample(self) -> float:
        with self._lock:
            watts = self._read_watts()
            self._integral.add(self._clock(), watts)
            return self._integral.joules
