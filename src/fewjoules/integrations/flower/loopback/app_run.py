"""A Flower app that runs on a deployment."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fewjoules.integrations.flower.loopback.processes import Process

FlowerCommand = Callable[..., dict[str, Any]]
RUN_ID = re.compile(r"Successfully started run (\d+)")
COMPLETED = "finished:completed"
STATUS_TIMEOUT_SECONDS = 20.0
STATUS_POLL_SECONDS = 0.5
GRACE_SECONDS = 5.0


class AppRun:
    """A run on the SuperLink and the process ``flwr run --stream`` that started it and shows its log."""

    def __init__(self, process: Process, flwr: FlowerCommand) -> None:
        """Follow a process ``flwr run``; ``flwr`` runs further commands on the same deployment."""
        self._process, self._flwr = process, flwr

    @property
    def log(self) -> Path:
        """The file with the output of ``flwr run``."""
        return self._process.log

    @property
    def run_id(self) -> int | None:
        """Flower's number of the run; None before the SuperLink has taken it."""
        found = RUN_ID.search(self.log_text())
        return int(found[1]) if found else None

    @property
    def ended(self) -> bool:
        """Whether ``flwr run`` has ended; a run whose ServerApp was killed ends when Flower misses its heartbeats."""
        return self._process.exit_code is not None

    def log_text(self) -> str:
        """Return the output so far."""
        return self._process.log_text()

    def lines(self, timeout_seconds: float) -> Iterator[str]:
        """Yield the lines of the output as they come, until the run has ended."""
        return self._process.log_lines(timeout_seconds)

    def status(self) -> str:
        """Return what the SuperLink says of the run, as ``running`` or ``finished:failed``."""
        if self.run_id is None:
            return "not started"
        return str(self._flwr("list", "--run-id", str(self.run_id))["runs"][0]["status"])

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the end and return 0 if the run was completed.

        ``flwr run`` itself also exits with 0 after an app has failed, so the SuperLink is asked; a failed app gives 1.
        """
        if code := self._process.wait(timeout_seconds):
            return code
        deadline = time.monotonic() + STATUS_TIMEOUT_SECONDS
        while not (status := self.status()).startswith("finished") and time.monotonic() < deadline:
            time.sleep(STATUS_POLL_SECONDS)
        return 0 if status == COMPLETED else 1

    def stop(self) -> None:
        """Stop the run on the SuperLink unless it has finished, and end ``flwr run``."""
        try:
            if self.run_id is not None and not self.status().startswith("finished"):
                self._flwr("stop", str(self.run_id))
        finally:
            self._process.terminate(GRACE_SECONDS)
