"""What every benchmark prints: the machine it ran on, and tables."""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fewjoules as fj

Record = dict[str, Any]


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> None:
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [
            cell.ljust(width) if i < text_columns else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())


def describe_run(command: str, seed: int, cores: int, packages: Sequence[str], gpu: str | None = None) -> Record:
    return {
        "command": command,
        "seed": seed,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_commit": git_commit(),
        "machine": {
            "platform": platform.platform(),
            "processor": processor(),
            "cpu_count": os.cpu_count(),
            "cores_used": cores,
            "gpu": gpu,
            "load_average": os.getloadavg()[0],
        },
        "packages": {
            "python": platform.python_version(),
            "fewjoules": fj.__version__,
            **{name: package_version(name) for name in packages},
        },
    }


def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def git_commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def duration(seconds: float) -> str:
    if seconds >= 1.0:
        return f"{seconds:.3g} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"
