"""Marks of when the rounds of an app ended, on a clock that all processes of a machine share."""

import json
import time
from pathlib import Path


def mark_round(path: str, number: int) -> None:
    """Note that a round has ended; round 0 ends when the first one begins."""
    with Path(path).open("a") as file:
        file.write(json.dumps({"round": number, "at_seconds": time.monotonic()}) + "\n")


def read_marks(path: Path) -> list[float]:
    """Return the times in seconds at which rounds 0, 1, ... ended."""
    return [json.loads(line)["at_seconds"] for line in path.read_text().splitlines()]
