"""Turns: the benchmark writes a request to a contestant's process, waits for its answer, then asks the next one.

Only one contestant works at a time; the others wait for a line on their standard input.
"""

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from rivals.task import Answer, Record, Task

ANSWER_SECONDS = 400.0
CLOSING_SECONDS = 20.0


class ContestantError(Exception):
    """A contestant stopped or kept silent; the message holds the end of what it printed."""


def busy_core_seconds() -> float:
    """What all cores have worked since the machine started, work that the host took away included."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return math.nan
    user, nice, system, _, _, *interrupts_and_steal = stat.read_text().splitlines()[0].split()[1:9]
    return sum(map(int, (user, nice, system, *interrupts_and_steal))) / os.sysconf("SC_CLK_TCK")


class Contestant:
    """A process that trains one task, as the benchmark sees it."""

    def __init__(self, script: Path, name: str, task: Task) -> None:
        self.name, self.task = name, task
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 (open as long as the process)
        folders = [str(script.parent), *(path for path in sys.path if path)]
        self._process = subprocess.Popen(
            [sys.executable, str(script), "--contestant", name, "--task", json.dumps(asdict(task))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
            start_new_session=True,
        )

    def send(self, **request: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # ``receive`` then says why
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self) -> Record:
        assert self._process.stdout is not None
        heard, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        line = self._process.stdout.readline() if heard else b""
        if not line:
            what = "stopped" if heard else f"gave no answer in {ANSWER_SECONDS:.0f} s"
            raise ContestantError(f"{self.name} {what}: {self._last_words()}")
        return json.loads(line)

    def ask(self, **request: object) -> Record:
        """The answer, with how many cores were busy with anything but this contestant's own process."""
        start, busy = time.perf_counter(), busy_core_seconds()
        self.send(**request)
        answer = self.receive()
        others = busy_core_seconds() - busy - answer["processor_seconds"]
        return answer | {"others_cores": max(others / (time.perf_counter() - start), 0.0)}

    def close(self) -> None:
        """No more requests end the process; one that stays is stopped with the processes it started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(CLOSING_SECONDS)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-3:])


class Server:
    """The same, as the contestant's process sees it: whatever else it prints goes to its log."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def serve(self, answer: Answer) -> None:
        """Say that everything is ready, then answer requests until there are no more."""
        self._say({"ready": True})
        for line in sys.stdin:
            before = time.process_time()
            found = answer(json.loads(line))
            self._say(found | {"processor_seconds": time.process_time() - before})

    def _say(self, record: Record) -> None:
        self._answers.write(json.dumps(record) + "\n")
        self._answers.flush()
