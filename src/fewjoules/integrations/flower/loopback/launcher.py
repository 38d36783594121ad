"""Start the processes of a deployment, and end all of them."""

import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from fewjoules.integrations.flower.loopback import commands, guardian
from fewjoules.integrations.flower.loopback.processes import Process

START_TIMEOUT_SECONDS = 120.0
GRACE_SECONDS = 10.0


class Launcher:
    """Starts programs of Flower, each with a log and a Flower home in the folder of its role.

    From the first program on, a guardian process waits for the end of this process, however it ends, and then ends all
    that was started here.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Start nothing yet; ``environment`` is added to that of this process."""
        self.mark = secrets.token_hex(8)
        self._folder, self._environment = folder, dict(environment)
        self._processes: list[Process] = []
        self._lock = threading.Lock()
        self._guardian: subprocess.Popen[bytes] | None = None

    def home(self, role: str) -> Path:
        """Return the folder in which Flower keeps its own files for a role."""
        return self._folder / role / "home"

    def start(self, role: str, command: Sequence[str]) -> Process:
        """Start a program, given by its name and its arguments."""
        environment = commands.process_environment(self._environment, self.home(role))
        name, *arguments = command
        program = commands.program_path(name, environment)
        with self._lock:  # nodes may be started from several threads, and each process needs a number of its own
            self._start_guardian()
            number = len(self._processes)
            log = self._folder / role / f"{number:03d}-{name}.log"
            process = Process([program, *arguments], log=log, mark=f"{self.mark}/{number}", environment=environment)
            self._processes.append(process)
        return process

    def close(self) -> None:
        """Ask all processes to end, then kill what is left."""
        guardian.end_marked(self.mark, grace_seconds=GRACE_SECONDS)
        for process in self._processes:
            process.kill()
        if self._guardian is not None and self._guardian.stdin is not None:
            self._guardian.stdin.close()
            self._guardian.wait(2 * guardian.KILL_TIMEOUT_SECONDS)
            self._guardian = None

    def _start_guardian(self) -> None:
        if self._guardian is None:
            command = [sys.executable, "-I", guardian.__file__, self.mark]
            self._guardian = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
