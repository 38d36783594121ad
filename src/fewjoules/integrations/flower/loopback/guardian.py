"""End the processes of a deployment, also when the process that started them was killed.

Processes are found by a mark in their environment, which their children inherit. A process group would miss some:
Flower starts a part of the SuperLink in a session of its own. As a program, this module waits until its standard input
ends, which happens when its parent ends in whatever way, and then ends the processes with the mark of its argument.
Where there is no /proc, nothing is found.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

MARK_VARIABLE = "FEWJOULES_LOOPBACK"
POLL_SECONDS = 0.05
KILL_TIMEOUT_SECONDS = 10.0


def marked_processes(mark: str) -> list[int]:
    """Return the ids of running processes with this mark or one below it: ``a/b`` is below ``a``."""
    exact, below = f"{MARK_VARIABLE}={mark}".encode(), f"{MARK_VARIABLE}={mark}/".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or of another user
            entries = (folder / "environ").read_bytes().split(b"\0")
            if any(entry == exact or entry.startswith(below) for entry in entries):
                found.append(int(folder.name))
    return sorted(found)


def command_lines(mark: str) -> dict[int, str]:
    """Return the command lines of running processes with this mark or one below it, by their ids."""
    found = {}
    for process in marked_processes(mark):
        with contextlib.suppress(OSError):
            found[process] = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def end_marked(mark: str, *, grace_seconds: float = 0.0) -> list[int]:
    """Ask processes to end, kill those left after the grace, and return the ids of any that even then did not end."""
    if grace_seconds > 0:
        _signal_all(marked_processes(mark), signal.SIGTERM)
        _wait_until_none(mark, grace_seconds)
    deadline = time.monotonic() + KILL_TIMEOUT_SECONDS
    while (left := marked_processes(mark)) and time.monotonic() < deadline:
        _signal_all(left, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    return left


def _signal_all(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def _wait_until_none(mark: str, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while marked_processes(mark) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_marked(sys.argv[1])
