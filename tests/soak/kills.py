"""Kill trainings at random moments a thousand times, resume them, and compare every byte: part of ``make soak``.

Beside kills: a second user of a folder, clocks that jump, disks that fill and empty, and power cuts after every
operation. It prints how often each was tried and how often it went wrong; what went wrong is printed as it happens.
"""

import argparse
import collections
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runs.test_resume import CHECKPOINT, Program, lively, restore
from tests.soak.power import Recorder
from tests.test_bad_input import run
from tests.test_training_cli import TABLES

LAST_SECONDS = 60.0  # what a process gets that is not to be killed
SCHEMES = ("--schemes", "flexible,dense,fedavg")
TUNED_RATES = (0.05, 0.1, 0.2)
SPILLED = ("--memory-gib", "0")  # what clients keep is on disk


def tables_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.name in TABLES}


@dataclass
class Table:
    """Counts of what was tried and what went wrong."""

    tried: collections.Counter[str] = field(default_factory=collections.Counter)
    wrong: collections.Counter[str] = field(default_factory=collections.Counter)

    def count(self, what: str, problem: str | None = None) -> None:
        self.tried[what] += 1
        if problem is not None:
            self.wrong[what] += 1
            print(f"WRONG: {what}: {problem}", flush=True)

    def show(self) -> None:
        print(f"{'what':44} {'times':>6} {'wrong':>6}")
        for what, count in self.tried.items():
            print(f"{what:44} {count:6} {self.wrong[what]:6}")


class Soak:
    """All that is tried, on scenarios so small that importing takes longer than training."""

    def __init__(self, place: Path, seed: int, device: str) -> None:
        self.place, self.rng, self.table = place, np.random.default_rng(seed), Table()
        self.device, self.trained_on = device, set[str]()
        self.every_round = ("--checkpoint-seconds", "0", "--device", device)
        self.programs = []
        for name in ("first", "second"):
            (place / name).mkdir()
            self.programs.append(Program(place / name))
        self.program = self.programs[0]
        self.scenarios = {rate: self._scenario(rate) for rate in TUNED_RATES}
        self.scenario = self.scenarios[0.1]

    def _scenario(self, rate: float) -> Path:
        path = self.place / f"rate-{rate}.toml"
        path.write_text(lively(rounds=6).replace("learning_rate = 0.1", f"learning_rate = {rate}"))
        return path

    # Kills.

    def whole(self, command: str, scenario: Path, *more: str) -> tuple[dict[str, bytes], float]:
        """Results of a run that nobody disturbs, and the seconds it takes."""
        folder, began = self.place / "whole", time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        assert self.program(command, scenario, *more, "--out", folder, *self.every_round) == 0, self.program.stderr
        self.trained_on |= {json.loads(path.read_text())["device"] for path in folder.rglob("run.json")}
        return tables_of(folder), time.monotonic() - began

    def killed(
        self, what: str, command: str, path: Path, expected: Any, seconds: float, *more: str, how: tuple[str, ...] = ()
    ) -> int:
        """Kill a run until it is done all the same; return how many kills it took. ``how`` is told to each process."""
        folder, kills = self.place / "killed", 0
        shutil.rmtree(folder, ignore_errors=True)
        while True:
            begun = (folder / "settings.json").exists() and not (folder / ".begun.partial").exists()
            start = ["--resume", folder] if begun else [path, *more, "--out", folder]
            delay = self.rng.uniform(0.0, 0.7 * seconds) if kills < 12 else LAST_SECONDS
            code = self.program(command, *start, *how, *self.every_round, signals=[signal.SIGKILL], after=delay)
            if code == 0:
                if tables_of(folder) != expected:
                    self.table.count(what, f"other bytes after {kills} kills")
                left = [path.name for path in folder.rglob("*") if path.name.endswith(".partial")]
                if left:
                    self.table.count(what, f"half-written files stay: {left}")
                return kills
            if code != -signal.SIGKILL:
                self.table.count(what, f"exit code {code}: {self.program.stderr[-300:]}")
                return kills
            kills += 1
            self.table.count(what)

    def kill(self, kills: int, deadline: float) -> None:
        """Kill trainings, comparisons and sequences of trainings in turn."""
        alone = {rate: self.whole("train", path) for rate, path in self.scenarios.items()}
        compared, compare_seconds = self.whole("compare", self.scenario, *SCHEMES)
        turn = [
            partial(self.killed, "kills of train", "train", self.scenario, *alone[0.1]),
            partial(self.killed, "kills of train, spilled", "train", self.scenario, *alone[0.1], how=SPILLED),
            partial(self.killed, "kills of compare", "compare", self.scenario, compared, compare_seconds, *SCHEMES),
        ]
        for rate, path in self.scenarios.items():  # as a script would that tunes the step size
            turn.append(partial(self.killed, "kills of a sequence of trainings", "train", path, *alone[rate]))
        done = 0
        for kill_one in itertools.cycle(turn):
            if done >= kills or time.monotonic() > deadline:
                return
            done += kill_one()

    # Two users.

    def second_user(self) -> None:
        what, folder = "a second user of the folder", self.place / "shared"
        shutil.rmtree(folder, ignore_errors=True)
        first, second = self.programs
        text = self.scenario.read_text().replace("rounds = 6", "rounds = 150")
        (self.place / "long.toml").write_text(text)
        codes: list[int] = []
        start = [self.place / "long.toml", "--out", folder, *self.every_round]
        thread = threading.Thread(target=lambda: codes.append(first("train", *start)))
        thread.start()
        while thread.is_alive() and not (folder / CHECKPOINT).exists():
            time.sleep(0.01)
        beside = second("train", "--resume", folder, *self.every_round)
        running = thread.is_alive()
        thread.join()
        if codes != [0]:
            self.table.count(what, f"the first ended with {codes}: {first.stderr[-300:]}")
        elif running and (beside != 2 or "is writing to this folder" not in second.stderr):
            self.table.count(what, f"the second ended with {beside}: {second.stderr[-300:]}")
        else:
            self.table.count(what)

    # Clocks.

    def jumping_clock(self) -> None:
        what, folder = "clocks that jump", self.place / "jumped"
        shutil.rmtree(folder, ignore_errors=True)
        offset = [0.0]

        def monotonic() -> float:
            if self.rng.random() < 0.3:
                offset[0] += self.rng.choice([-1e9, -3600.0, -1.0, 1.0, 40.0, 3600.0, 1e9])
            return time.monotonic() + offset[0]

        fake = types.SimpleNamespace(monotonic=monotonic)
        with pytest.MonkeyPatch.context() as patch:
            for module in ("fewjoules.runs.interval", "fewjoules.runs.folder", "fewjoules.cli.progress"):
                __import__(module)
                patch.setattr(sys.modules[module], "time", fake)
            done = run("train", self.scenario, "--out", folder, "--device", self.device)
        same = done.exit_code == 0 and tables_of(folder) == self.expected()
        self.table.count(what, None if same else f"exit code {done.exit_code}: {done.stderr[-300:]}")

    def expected(self) -> dict[str, bytes]:
        if not hasattr(self, "_expected"):
            self._expected, _ = self.whole("train", self.scenario)
        return self._expected

    # Disks.

    def full_disk(self) -> None:
        """Files larger than a limit cannot be written, until the disk is emptied."""
        what, folder = "disks that fill and empty", self.place / "filled"
        shutil.rmtree(folder, ignore_errors=True)
        limit = int(10 ** self.rng.uniform(2.5, 6.8))
        code = self.program("train", self.scenario, "--out", folder, *self.every_round, file_bytes=limit)
        said = self.program.stderr
        if code not in (0, 1) or (code == 1 and "larger than the system allows" not in said and limit > 1000):
            self.table.count(what, f"exit code {code} with {limit} bytes: {said[-300:]}")
            return
        begun = (folder / "settings.json").exists()
        how = ["--resume", folder] if begun else [self.scenario, "--out", folder]
        code = self.program("train", *how, *self.every_round)
        same = code == 0 and tables_of(folder) == self.expected()
        self.table.count(what, None if same else f"exit code {code} after {limit} bytes: {self.program.stderr[-300:]}")

    # Power cuts.

    def power_cuts(self, deadline: float) -> None:
        """What is safe on disk after every operation must do to go on or to begin anew."""
        what, whole, cut = "power cuts", self.place / "recorded", self.place / "cut"
        recorder = Recorder(whole)
        with pytest.MonkeyPatch.context() as patch:
            recorder.install(patch)
            assert run("train", self.scenario, "--out", whole, *self.every_round).exit_code == 0
        for state in recorder.states:
            if time.monotonic() > deadline:
                return
            restore(state, cut)
            done = run("train", "--resume", cut, *self.every_round)
            if done.exit_code != 0 and CHECKPOINT not in state:
                done = run("train", self.scenario, "--out", cut, *self.every_round)
            same = done.exit_code == 0 and tables_of(cut) == tables_of(whole)
            self.table.count(what, None if same else f"{sorted(state)}: {done.stderr[-300:]}")

    def close(self) -> None:
        for program in self.programs:
            program.close()


def soak(kills: int, seed: int, minutes: float, device: str, only_kills: bool = False) -> int:
    """Carry everything out, at most for so many minutes; return how often something went wrong."""
    began = time.monotonic()
    deadline = began + 60.0 * minutes
    few: list[tuple[Callable[[Soak], None], int]] = [
        (Soak.second_user, max(1, kills // 100)),
        (Soak.jumping_clock, max(1, kills // 20)),
        (Soak.full_disk, max(1, kills // 20)),
    ]
    with tempfile.TemporaryDirectory() as place:
        one = Soak(Path(place), seed, device)
        try:
            if not only_kills:
                one.power_cuts(began + 15.0 * minutes)
            for attempt, times in [] if only_kills else few:
                end = min(deadline, time.monotonic() + 6.0 * minutes)
                for _ in range(times):
                    if time.monotonic() < end:
                        attempt(one)
            one.kill(kills, deadline)
        finally:
            one.close()
    one.table.show()
    print(f"{time.monotonic() - began:.0f} seconds, seed {seed}, on {', '.join(sorted(one.trained_on))}")
    return sum(one.table.wrong.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="how many processes to kill")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so many minutes")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to train")
    parser.add_argument("--only-kills", action="store_true", help="no power cuts, second users, clocks and disks")
    given = parser.parse_args()
    os.nice(19)
    sys.exit(min(1, soak(given.kills, given.seed, given.minutes, given.device, given.only_kills)))
