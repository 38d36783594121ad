"""How long FewJoules takes to start: imports, short commands, and the first line and first round of ``compare``.

    python benchmarks/startup.py [--repeat 5] [--out results/startup.txt]

Every figure is the least of some fresh processes, in seconds of the clock; beside it stand the seconds of the
processor, which other programs of the machine disturb less. ``compare`` runs on a pseudo-terminal, as a person sees
it: *cold* with an empty cache of numba, as after an installation, *warm* with the cache that the cold run left. It is
stopped after its first round.
"""

import argparse
import os
import platform
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

GOALS = {"fewjoules plan": 0.4, "compare, warm: first round": 5.0, "compare, cold: first round": 5.0}
COMMANDS = ("--version", "plan", "plan --json", "profiles", "init --yes --force fleet.toml")


class Taken(NamedTuple):
    wall_seconds: float
    cpu_seconds: float


def timed(command: list[str], folder: str) -> Taken:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def least(command: list[str], folder: str, repeat: int) -> Taken:
    every = [timed(command, folder) for _ in range(repeat)]
    return Taken(min(one.wall_seconds for one in every), min(one.cpu_seconds for one in every))


def compare(folder: str, cache: str, number: int) -> dict[str, Taken]:
    """Return when the first line and the first round of a comparison were drawn."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "fewjoules", "compare", "--out", f"comparison{number}", "--device", "cpu"]
    surroundings = os.environ | {"TERM": "xterm", "COLUMNS": "160", "NUMBA_CACHE_DIR": cache}
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=theirs, stderr=theirs, env=surroundings)
    os.close(theirs)
    drawn, found = b"", {}
    while "first round" not in found and (new := read(ours)):
        drawn += new
        passed = Taken(time.monotonic() - began, cpu_seconds(process.pid))
        if "first line" not in found and re.search(rb"[a-z]{4}", drawn):
            found["first line"] = passed
        if re.search(rb"round \d+/\d+", drawn):
            found["first round"] = passed
    for _ in range(2):  # the second one ends it at once
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    while read(ours):
        pass
    process.wait()
    os.close(ours)
    return found


def read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that nobody writes any more
        return b""


def cpu_seconds(process: int) -> float:
    """Processor time of a running process, of all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(repeat: int) -> dict[str, Taken]:
    program = [sys.executable, "-m", "fewjoules"]
    with tempfile.TemporaryDirectory() as folder:
        cold = [compare(folder, f"{folder}/cache{number}", number) for number in range(max(1, repeat // 2))]
        warm = [compare(folder, f"{folder}/cache0", 100 + number) for number in range(repeat)]
        rows = {
            "python -c pass": least([sys.executable, "-c", "pass"], folder, repeat),
            "import fewjoules": least([sys.executable, "-c", "import fewjoules"], folder, repeat),
            "import torch": least([sys.executable, "-c", "import torch"], folder, repeat),
            "import numba": least([sys.executable, "-c", "import numba"], folder, repeat),
        }
        for text in COMMANDS:
            rows[f"fewjoules {text}"] = least([*program, *text.split()], folder, repeat)
    for kind, runs in (("cold", cold), ("warm", warm)):
        for what in ("first line", "first round"):
            times = [run[what] for run in runs]
            rows[f"compare, {kind}: {what}"] = Taken(
                min(t.wall_seconds for t in times), min(t.cpu_seconds for t in times)
            )
    return rows


def table(rows: dict[str, Taken]) -> list[str]:
    lines = [f"{'':<44}{'seconds':>9}{'CPU s':>9}{'goal':>7}"]
    for name, taken in rows.items():
        goal = "" if name not in GOALS else f"{GOALS[name]:g}"
        lines.append(f"{name:<44}{taken.wall_seconds:>9.2f}{taken.cpu_seconds:>9.2f}{goal:>7}".rstrip())
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    lines = [
        f"$ python benchmarks/startup.py {shlex.join(sys.argv[1:])}".rstrip(),
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load {load:.1f} at first",
        *table(measured(arguments.repeat)),
    ]
    print("\n".join(lines))
    if arguments.out is not None:
        arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
