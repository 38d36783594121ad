"""Diary of a reproduction: one line of JSON for its start, and one for each call that trained."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fewjoules import __version__

DIARY = "diary.jsonl"


def write_entry(folder: Path, **facts: Any) -> None:
    """Append a line with the facts, the time, the machine, and the commit if the source is in a repository."""
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
        "fewjoules_version": __version__,
        "commit": _commit(),
        "machine": {"platform": platform.platform(), "cores": os.cpu_count(), "gpu": _gpu()},
    }
    with (folder / DIARY).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(entry) + "\n")


def _gpu() -> str | None:
    from fewjoules.runs.device import choose_device

    device = choose_device("auto")
    if device.type == "cpu":
        return None
    from fewjoules.runs.device import device_name

    return device_name(device)


def _commit() -> str | None:
    """Commit of the repository that contains the source; None for an installed package."""
    if not (Path(__file__).parents[3] / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
