"""Zeus, where it is installed and asked for: its monitor as a meter."""

import importlib
import threading
from typing import Any

from fewjoules.metering.meter import Finding, Meter

KIND = "zeus"
_WINDOW = "fewjoules"
_RESOLUTION_SECONDS = 0.1


def find(gpu: str | None, library: Any = None) -> Finding:
    """Look for the package; ``library`` stands in for zeus.monitor."""
    try:
        monitors = library or importlib.import_module("zeus.monitor")
    except ImportError:
        return Finding(KIND, "the package zeus", "it is not installed: pip install zeus")
    return Finding(KIND, "the package zeus", None, lambda: _open(monitors, gpu))


def _open(monitors: Any, gpu: str | None) -> Meter:
    return ZeusMeter(monitors.ZeusMonitor(), of_gpus=gpu is not None)


class ZeusMeter:
    """Adds up windows of a Zeus monitor, one from each reading to the next: of its GPUs, or else of its processors."""

    kind = KIND
    resolution_seconds = _RESOLUTION_SECONDS

    def __init__(self, monitor: Any, *, of_gpus: bool) -> None:
        """Open the first window."""
        self.described = f"Zeus, all {'GPUs' if of_gpus else 'processors'} that it sees"
        self._monitor, self._of_gpus = monitor, of_gpus
        self._joules, self._lock = 0.0, threading.Lock()
        monitor.begin_window(_WINDOW, sync_execution=False)

    def joules(self) -> float:
        """Return the joules since the meter was opened."""
        with self._lock:
            window = self._monitor.end_window(_WINDOW, sync_execution=False)
            self._monitor.begin_window(_WINDOW, sync_execution=False)
            spent = window.gpu_energy if self._of_gpus else window.cpu_energy
            self._joules += sum((spent or {}).values())
            return self._joules

    def close(self) -> None:
        """Close the last window."""
        self._monitor.end_window(_WINDOW, sync_execution=False)
