"""Damage every file of run folders, a byte at a time, and see that each damage is noticed or does no harm.

Every file that a command reads is cut and has a bit flipped at every tenth byte, and every value in its JSON is
replaced by hostile ones. The command must then give the same results, or refuse in one sentence and leave the folder
as it is. ``make soak`` runs it all, tests/runs/test_damage.py a sample.
"""

import argparse
import collections
import json
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fewjoules.cli import app
from fewjoules.engine.simulator.simulator import Simulator
from tests.scenario.test_training_scenario import ROUNDS, trained_with
from tests.test_training_cli import TABLES, contents

CHECKPOINT = "checkpoint.safetensors"
NOT_READ = ("page.html", "comparison.json")  # by any command
PASSING = ("wall_seconds", "checksum")  # what differs between equal runs in run.json
ROUNDS_TRAINED = 3
HOSTILE = (
    *("1e308", "-1e308", "1e999", "NaN", "-Infinity", "-1", "0", "0.5", "1" + "0" * 400, "1" + "0" * 5000),
    *("null", "true", '""', '"\\ud800"', '"../../etc"', '"a\\nb\\u001b[2J"', '"' + "x" * 100_000 + '"'),
    *("[]", "{}", '["a"]', "[1e308, 1e308]", '{"a": {"b": 1}}', "[" * 100_000 + "]" * 100_000),
)
WHOLE = (b"", b"\x00" * 50, b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"null", b"[]", b'"text"', b"[" * 100_000, b"{" * 100_000)


@dataclass(frozen=True)
class Case:
    """A folder as files with their bytes, the command that reads it, and what it gives when nothing is damaged."""

    name: str
    files: dict[str, bytes]
    arguments: tuple[str, ...]
    expected: Any

    def targets(self) -> list[str]:
        """Files that the command reads."""
        return sorted(name for name in self.files if Path(name).name not in NOT_READ)


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def restore(files: dict[str, bytes], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def results_of(folder: Path, stdout: str) -> Any:
    """What must be the same however often a run was resumed."""
    tables = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.name in TABLES}
    outcomes = {}
    for path in folder.rglob("run.json"):
        outcome = json.loads(path.read_text())
        outcomes[str(path)] = {key: value for key, value in outcome.items() if key not in PASSING}
    return tables, outcomes, stdout


# The folders.


def stopped_after(rounds: int, *arguments: Any) -> None:
    """Begin a run that fails after so many rounds, of all schemes together."""
    begin, done = Simulator.start_round, [0]

    def failing(simulator: Simulator, **how: Any) -> Any:
        if done[0] == rounds:
            raise OSError("the power is gone")
        done[0] += 1
        return begin(simulator, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulator, "start_round", failing)
        assert run(*arguments, "--device", "cpu", "--checkpoint-seconds", "0").exit_code == 1


def cases_in(place: Path) -> Iterator[Case]:
    """Make every folder once, in ``place``, where the commands will look for it."""
    text = trained_with("participation = 0.5", 'downlink = "charged"').replace(ROUNDS, f"rounds = {ROUNDS_TRAINED}")
    scenario, folder, model = place / "scenario.toml", place / "run", place / "model"
    scenario.write_text(text)
    stopped_after(ROUNDS_TRAINED - 1, "train", scenario, "--out", folder)
    stopped = contents(folder)
    again = ("train", "--resume", str(folder))
    yield case("stopped training", stopped, folder, again)
    yield case("export", stopped, folder, ("export", str(folder), "--out", str(model)))
    restore(stopped, folder)
    assert run(*again).exit_code == 0
    yield case("finished training", contents(folder), folder, again)
    shutil.rmtree(folder)
    schemes = ("--schemes", "flexible,dense")
    stopped_after(ROUNDS_TRAINED + 1, "compare", scenario, "--out", folder, *schemes)
    again = ("compare", "--resume", str(folder))
    yield case("stopped comparison", contents(folder), folder, again)
    assert run(*again).exit_code == 0
    yield case("finished comparison", contents(folder), folder, again)


def case(name: str, files: dict[str, bytes], folder: Path, arguments: tuple[str, ...]) -> Case:
    restore(files, folder)
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return Case(name, files, arguments, outcome_of(folder, done.stdout))


def outcome_of(folder: Path, stdout: str) -> Any:
    model = folder.parent / "model"  # of an export
    exported = model.read_bytes() if model.exists() else None
    model.unlink(missing_ok=True)
    return results_of(folder, stdout), exported


# Damage.


def cuts_and_flips(data: bytes, step: int) -> Iterator[tuple[str, bytes]]:
    for place in range(0, len(data), step):
        yield f"cut at {place}", data[:place]
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place // step) % 8
        yield f"flip at {place}", bytes(flipped)


def hostile(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """The JSON of a file, or of the header of a checkpoint, with each value in turn replaced by hostile ones."""
    if name.endswith(CHECKPOINT):
        length = int.from_bytes(data[:8], "little")
        outer = json.loads(data[8 : 8 + length])
        inner = json.loads(outer["__metadata__"]["fewjoules"])
        for what, text in replaced(inner):
            metadata = {"fewjoules": text, "checksum": f"{zlib.crc32(text.encode()):010d}"}
            header = json.dumps(outer | {"__metadata__": metadata}).encode()
            yield what, len(header).to_bytes(8, "little") + header + data[8 + length :]
    if name.endswith(".json"):
        document = {key: value for key, value in json.loads(data).items() if not key.startswith("checksum")}
        yield from ((what, text.encode()) for what, text in replaced(document))
        yield from ((f"whole file {number}", text) for number, text in enumerate(WHOLE))
        text = json.dumps(document)
        yield "every key twice", (text[:-1] + ", " + text[1:]).encode()
        yield "a byte that is not UTF-8", text.encode().replace(b'"', b'"\xc3', 1)


def replaced(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for path in paths_in(document):
        marked = json.loads(json.dumps(document))
        *way, last = path
        inner = marked
        for key in way:
            inner = inner[key]
        inner[last] = "@@"
        text = json.dumps(marked)
        for number, value in enumerate(HOSTILE):
            yield f"{'.'.join(map(str, path))} = value {number}", text.replace('"@@"', value)


def paths_in(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Ways to every value; of a list only to the first."""
    entries = (
        value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    )
    for key, inner in entries:
        yield (*way, key)
        yield from paths_in(inner, (*way, key))


# Judgement.


def attempt(case: Case, folder: Path, target: str, data: bytes, *, may_differ: bool) -> str:
    """Run the command on the damaged folder: "same", "accepted", "refused", or what is wrong with it."""
    damaged = case.files | {target: data}
    restore(damaged, folder)
    done = run(*case.arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return f"escaped: {type(done.exception).__name__}: {str(done.exception)[:200]}"
    if done.exit_code == 0:
        same = outcome_of(folder, done.stdout) == case.expected
        return "same" if same else "accepted" if may_differ else "other results"
    lines = done.stderr.splitlines()
    if done.exit_code != 2 or len(lines) != 1 or not lines[0].startswith("error: ") or len(lines[0]) > 1000:
        return f"exit code {done.exit_code}: {done.stderr[:300]}"
    return "refused" if contents(folder) == damaged else "refused, but the folder has changed"


GOOD = ("same", "accepted", "refused")
Attempt = tuple[str, Callable[[], str]]


def attempts(case: Case, folder: Path, step: int) -> Iterator[Attempt]:
    for target in case.targets():
        data = case.files[target]
        for what, spoilt in cuts_and_flips(data, step):
            yield f"{target}: {what}", lambda t=target, s=spoilt: attempt(case, folder, t, s, may_differ=False)
        for what, spoilt in hostile(target, data):
            unsealed = Case(case.name, without_checksums(case.files), case.arguments, case.expected)
            yield f"{target}: {what}", lambda t=target, s=spoilt, u=unsealed: attempt(u, folder, t, s, may_differ=True)


def without_checksums(files: dict[str, bytes]) -> dict[str, bytes]:
    """The folder as if it had been written without checksums, so that hostile values are not refused for them."""
    found = dict(files)
    for name in (name for name in files if Path(name).name in ("settings.json", "run.json")):
        document = {key: value for key, value in json.loads(files[name]).items() if not key.startswith("checksum")}
        found[name] = json.dumps(document).encode()
    return found


def campaign(every: int, minutes: float, share: slice) -> int:
    """Print what came of every attempt, or of as many as there is time for; return how many went wrong."""
    deadline, wrong = time.monotonic() + 60 * minutes, 0
    with tempfile.TemporaryDirectory() as place:
        cases = list(cases_in(Path(place)))
        seconds = minutes * 60 / len(cases)
        for number, case in enumerate(cases):
            counts: collections.Counter[str] = collections.Counter()
            todo = list(attempts(case, Path(place) / "run", every))[share]
            end = min(deadline, time.monotonic() + seconds) if number < len(cases) - 1 else deadline
            # spread over the whole case, whenever the time is over
            for index in sorted(range(len(todo)), key=lambda index: (index * 2_654_435_761) % 2**32):
                if time.monotonic() > end:
                    break
                what, judge = todo[index]
                verdict = judge()
                counts[verdict if verdict in GOOD else "WRONG"] += 1
                if verdict not in GOOD:
                    print(f"  {case.name}: {what}: {verdict}", flush=True)
            wrong += counts["WRONG"]
            told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
            print(f"{case.name:20} {sum(counts.values()):6} of {len(todo):6} attempts: {told}", flush=True)
    return wrong


def part(text: str) -> slice:
    """Return which attempts are those of a share such as 3/8, for campaigns in several processes."""
    number, count = map(int, text.split("/"))
    return slice(number - 1, None, count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=10, help="damage every so many bytes")
    parser.add_argument("--minutes", type=float, default=10.0, help="stop after so many minutes")
    parser.add_argument("--share", type=part, default="1/1", help="only this share of the attempts, such as 3/8")
    given = parser.parse_args()
    sys.exit(min(1, campaign(given.every, given.minutes, given.share)))
