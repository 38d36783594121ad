"""What every meter offers, whatever it reads."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fewjoules.errors import MeterError


class Meter(Protocol):
    """Counts joules from the moment when it is opened.

    ``resolution_seconds`` is how often the hardware renews its reading: a window must last many times as long.
    """

    kind: str
    described: str
    resolution_seconds: float

    def joules(self) -> float:
        """Return the joules since the meter was opened."""

    def close(self) -> None:
        """Stop reading."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of meter: where it was looked for, and how to open it or why it cannot be read."""

    kind: str
    where: str
    problem: str | None = None
    open: Callable[[], Meter] | None = None

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.kind}: {self.where}: {self.problem or 'can be read'}"


class Ticker:
    """Calls a function at intervals in a thread; the first error ends it and is raised by ``check``."""

    def __init__(self, function: Callable[[], object], every_seconds: float) -> None:
        """Start the thread."""
        self._function, self._every = function, every_seconds
        self._error: Exception | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fewjoules-meter", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error that ended the thread, if there was one."""
        if self._error is not None:
            raise MeterError(str(self._error)) from self._error

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            try:
                self._function()
            except Exception as error:
                self._error = error
                return
