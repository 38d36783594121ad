"""Train on a deployment of three nodes while its processes are killed and stopped: part of ``make soak-deploy``.

Nodes, their workers and client processes, the ServerApp and the SuperLink are killed at random moments, and what was
killed is started again. After each run, whatever happened in it, the uploads that the server accepted and the residuals
of the clients must add up to everything that the clients computed, each round counted once, and nodes must have begun
the last round with the server's model.
"""

import argparse
import collections
import contextlib
import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from fewjoules.errors import DeploymentError
from fewjoules.integrations.flower.loopback import HEARTBEAT_WINDOW_SECONDS
from fewjoules.runs.files import CHECKPOINT
from tests.integrations.flower.deployed import CLIENT, SERVER, WORKER, Deployed, computed_rounds, ledger, require_models

NODES = 3
ROUNDS = 8  # of each run
RULES = {"deadline_seconds": 30.0, "min_replies": 1, "attempts": 8}
FAULTS = {
    "worker": 0.32,
    "client process": 0.32,
    "node": 0.15,
    "stopped node": 0.1,
    "ServerApp": 0.07,
    "SuperLink": 0.04,
}
LONGEST_DELAY = 1.5  # rounds: a fault comes at most so much later than the round before it
PATIENCE_SECONDS = 90.0  # the next fault comes after so long, even if the round has not ended
STOP_SECONDS = (5.0, 75.0)  # how long a node stands still
FIND_SECONDS = 10.0  # how long to look for a process that comes and goes
RUN_SECONDS = 1800.0
RESTART_SECONDS = 400.0
REFUSED = re.compile(r"the reply of client \S+ is refused: (.*)")


class Soak:
    """Runs one after the other on one deployment, with faults from a seeded generator."""

    def __init__(self, place: Path, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.place, self.counts = place, collections.Counter()
        self.deployed = Deployed(place, "counting", [{"step-seconds": 0.5}] * NODES)
        self.fleet = self.deployed.fleet
        self.busy: dict[int, threading.Thread] = {}
        self.wrong: list[str] = []
        self.refusals: collections.Counter[str] = collections.Counter()

    # One run.

    def run(self, number: int, deadline: float) -> None:
        """Train a run to its end, through all faults, and check what must be true of it."""
        folder, seed = self.place / f"run-{number}", int(self.rng.integers(2**31))
        end = time.monotonic() + RUN_SECONDS
        run, logs = self.begin(folder, seed), []
        pace = Pace(self.rng)
        while True:
            if time.monotonic() > end:
                self.problem(f"{folder.name} did not end in {RUN_SECONDS:g} s: {run.log_text()[-2000:]}")
                return
            if run.ended():
                logs.append(run.log_text())
                if (folder / "final.npz").exists():
                    break
                if not self.expected_end:
                    self.problem(f"{folder.name} ended by itself: {run.log_text()[-2000:]}")
                self.counts["runs taken up again"] += 1
                run = self.begin(folder, seed)
            if pace.is_due((folder / CHECKPOINT).stat().st_mtime if (folder / CHECKPOINT).exists() else 0.0):
                if time.monotonic() < deadline:
                    self.fault(run)
                pace.next()
            time.sleep(0.2)
        self.refusals.update(text[:70] for log in logs for text in REFUSED.findall(log))
        self.check(folder, seed)

    def begin(self, folder: Path, seed: int):
        self.expected_end = False
        return Following(self.deployed.run(folder, rounds=ROUNDS, seed=seed, **RULES))

    def check(self, folder: Path, seed: int) -> None:
        rows = ledger(folder)
        if rows.size != NODES * ROUNDS:
            self.problem(f"{folder.name}: {rows.size} rows in the ledger")
        try:
            computed = computed_rounds(self.deployed, folder, seed)
            self.counts["models of nodes like the server's"] += require_models(self.deployed, folder)
        except AssertionError as error:
            self.problem(f"{folder.name}: {error}")
            return
        accepted = int(rows["delivered"].sum())
        self.counts["runs"] += 1
        self.counts["rounds"] += ROUNDS
        self.counts["uploads asked for"] += rows.size
        self.counts["uploads computed"] += sum(map(len, computed))
        self.counts["uploads accepted"] += accepted
        self.counts["uploads kept for later rounds"] += sum(map(len, computed)) - accepted
        print(f"{folder.name}: {accepted} of {rows.size} uploads accepted, faults so far {self.faults()}", flush=True)

    def faults(self) -> int:
        return sum(count for what, count in self.counts.items() if what.startswith("faults:"))

    def problem(self, text: str) -> None:
        self.wrong.append(text)
        print(f"WRONG: {text}", flush=True)

    # Faults.

    def fault(self, run: "Following") -> None:
        what = str(self.rng.choice(list(FAULTS), p=list(FAULTS.values())))
        node = int(self.rng.integers(NODES))
        if what == "SuperLink":
            done = self.kill_superlink(run)
        elif what == "ServerApp":
            done = self.kill_server_app(run)
        elif node in self.busy and self.busy[node].is_alive():
            return
        elif what == "node":
            done = True
            self.fleet.kill_node(node)
            self.beside(node, self.start_node)
        elif what == "stopped node":
            done = True
            self.beside(node, self.stand_still, self.rng.uniform(*STOP_SECONDS))
        else:
            done = self.kill_part(node, WORKER if what == "worker" else CLIENT)
        if done:
            self.counts[f"faults: {what}"] += 1

    def kill_superlink(self, run: "Following") -> bool:
        self.expected_end = True
        self.fleet.kill_superlink()
        run.stop()
        self.fleet.start_superlink()
        return True

    def kill_server_app(self, run: "Following") -> bool:
        if not self.deployed.kill(self.fleet.superlink_processes(), SERVER):
            return False
        self.expected_end = True
        run.stop()  # Flower shows the end of the run only when heartbeats are missing
        return True

    def kill_part(self, node: int, what: str) -> bool:
        end = time.monotonic() + FIND_SECONDS
        while time.monotonic() < end:
            if self.deployed.kill(self.fleet.node_processes(node), what):
                return True
            time.sleep(0.05)
        return False

    def beside(self, node: int, work, *arguments) -> None:
        self.busy[node] = threading.Thread(target=work, args=(node, *arguments))
        self.busy[node].start()

    def start_node(self, node: int) -> None:
        end = time.monotonic() + RESTART_SECONDS
        while True:
            try:
                return self.fleet.start_node(node, retry_seconds=HEARTBEAT_WINDOW_SECONDS)
            except DeploymentError as error:  # also while the SuperLink is down
                if time.monotonic() > end:
                    return self.problem(f"node {node} did not come back: {error}")
            time.sleep(1.0)

    def stand_still(self, node: int, seconds: float) -> None:
        processes = self.fleet.node_processes(node)
        self.deployed.kill(processes, "", signal.SIGSTOP)
        time.sleep(seconds)
        self.deployed.kill(processes, "", signal.SIGCONT)

    def close(self) -> None:
        for thread in self.busy.values():
            thread.join()
        self.fleet.close()


class Pace:
    """Faults about as often as rounds end, however fast the machine is, each at a random moment of a round."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._round_seconds = rng, 10.0
        self._saved, self._saved_at = 0.0, time.monotonic()
        self._due, self._latest = None, 0.0
        self.next()

    def is_due(self, saved: float) -> bool:
        """Whether it is time for a fault; ``saved`` changes when a round has ended."""
        now = time.monotonic()
        if saved != self._saved:
            self._round_seconds = min(now - self._saved_at, PATIENCE_SECONDS)
            self._saved, self._saved_at = saved, now
            if self._due is None:
                self._due = now + self._rng.uniform(0.0, LONGEST_DELAY) * self._round_seconds
        return now > (self._latest if self._due is None else self._due)

    def next(self) -> None:
        """Wait for the end of another round before the next fault."""
        self._due, self._latest = None, time.monotonic() + PATIENCE_SECONDS


class Following:
    """A run of the app, whose end is noticed when ``flwr run`` ends or the run is given up."""

    def __init__(self, run) -> None:
        self._run, self._given_up = run, False

    def ended(self) -> bool:
        return self._given_up or self._run.ended

    def log_text(self) -> str:
        return self._run.log_text()

    def stop(self) -> None:
        self._given_up = True
        with contextlib.suppress(DeploymentError):
            self._run.stop()


def soak(minutes: float, seed: int, place: Path) -> int:
    """Train and disturb for so many minutes; return how often something was wrong."""
    began = time.monotonic()
    deadline, number = began + 60.0 * minutes, 0
    one = Soak(place, seed)
    try:
        one.fleet.start()
        while time.monotonic() < deadline:
            number += 1
            one.run(number, deadline)
    finally:
        one.close()
    for what, count in sorted(one.counts.items()):
        print(f"{what:44} {count:6}")
    for what, count in one.refusals.most_common():
        print(f"refused: {what:70} {count:6}")
    print(f"{'wrong':44} {len(one.wrong):6}")
    print(f"{time.monotonic() - began:.0f} seconds, seed {seed}")
    return len(one.wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no further run after so many minutes (60)")
    parser.add_argument("--seed", type=int, default=0, help="of the faults (0)")
    parser.add_argument("--keep", type=Path, help="a new folder for all files, which stay; else they are removed")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        where = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sys.exit(min(1, soak(given.minutes, given.seed, where)))
