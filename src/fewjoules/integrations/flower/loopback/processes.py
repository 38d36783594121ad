"""A process in a session of its own, with its output in a log file."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fewjoules.errors import DeploymentError
from fewjoules.integrations.flower.loopback.guardian import MARK_VARIABLE, POLL_SECONDS, command_lines, end_marked

SHOWN_LINES = 15
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Process:
    """A running command and all that it starts, known by a mark of their own in the environment."""

    def __init__(self, command: Sequence[str], *, log: Path, mark: str, environment: Mapping[str, str]) -> None:
        """Start the command with this environment and the mark."""
        self.log, self.mark = log, mark
        self._name = Path(command[0]).name
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**environment, MARK_VARIABLE: mark},
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative after a signal; None while the process runs."""
        return self._process.poll()

    def log_text(self) -> str:
        """Return the output so far, without colours."""
        return COLOUR.sub("", self.log.read_text(encoding="utf-8", errors="replace"))

    def log_lines(self, timeout_seconds: float) -> Iterator[str]:
        """Yield the lines of the output as they come, until the process has ended."""
        deadline = time.monotonic() + timeout_seconds
        with self.log.open(encoding="utf-8", errors="replace", newline="\n") as stream:
            rest = ""
            while True:
                ended = self.exit_code is not None
                *lines, rest = (rest + stream.read()).split("\n")
                yield from (COLOUR.sub("", line) for line in lines)
                if ended:
                    yield from [COLOUR.sub("", rest)] if rest else []
                    return
                self._require_before(deadline, "to end", timeout_seconds)
                time.sleep(POLL_SECONDS)

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the end and return the exit code."""
        deadline = time.monotonic() + timeout_seconds
        while (code := self.exit_code) is None:
            self._require_before(deadline, "to end", timeout_seconds)
            time.sleep(POLL_SECONDS)
        return code

    def wait_until(self, ready: Callable[[], bool], what: str, timeout_seconds: float) -> None:
        """Wait until the process is ready; raise an error when it ends before or the time is up."""
        deadline = time.monotonic() + timeout_seconds
        while not ready():
            if (code := self.exit_code) is not None:
                raise self.error(f"ended with exit code {code} before it was {what}")
            self._require_before(deadline, f"to be {what}", timeout_seconds)
            time.sleep(POLL_SECONDS)

    def terminate(self, grace_seconds: float) -> None:
        """Ask the process to end, then kill what is left of it and of all that it started."""
        if self.exit_code is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_seconds)
        self.kill()

    def kill(self) -> None:
        """Kill the process and all that it started."""
        if self.exit_code is None:  # not yet waited for, so the group is still its own
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if left := end_marked(self.mark):
            raise self.error(f"left processes that cannot be killed: {left}")

    def family(self) -> dict[int, str]:
        """Return the ids and command lines of the process and all that it started, as far as they run."""
        return command_lines(self.mark)

    def error(self, what: str) -> DeploymentError:
        """Return an error that says what happened and shows the end of the log."""
        lines = [line for line in self.log_text().splitlines() if line.strip()][-SHOWN_LINES:]
        shown = "\n".join(["", *(f"  {line}" for line in lines)]) if lines else " (empty)"
        return DeploymentError(f"{self._name} {what}; the end of {self.log}:{shown}")

    def _require_before(self, deadline: float, what: str, timeout_seconds: float) -> None:
        if time.monotonic() > deadline:
            raise self.error(f"was given {timeout_seconds:g} s {what}, which was not enough")
