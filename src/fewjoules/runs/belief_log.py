"""What a tuning believed after each pilot, one line of JSON with a checksum each, for those who watch it."""

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fewjoules.files import open_regular
from fewjoules.runs.sealed import finite_or_null, sealed_line, unsealed_line

if TYPE_CHECKING:
    from fewjoules.runs.tuning_news import Progress

BELIEFS_VERSION = 1


class BeliefLog:
    """Writes what is told after each pilot. A resumed tuning tells everything again, so the file begins anew."""

    def __init__(self, path: Path) -> None:
        """Write to this file from the first news on."""
        self._path, self._mode = path, "wb"

    def __call__(self, progress: "Progress") -> None:
        """Write one line; a disk that cannot take it is no reason to stop."""
        with contextlib.suppress(OSError):
            with self._path.open(self._mode) as stream:
                stream.write(sealed_line({"version": BELIEFS_VERSION, **_record(progress)}))
            self._mode = "ab"


def beliefs_of(path: Path) -> list[dict[str, Any]]:
    """Return what was believed after each pilot; a line that is being written, or damaged, ends the list."""
    if not path.exists():
        return []
    with open_regular(path) as stream:
        lines = stream.read().splitlines()
    found = []
    for line in lines:
        data = unsealed_line(line)
        if data is None or data.get("version") != BELIEFS_VERSION:
            break
        found.append(data)
    return found


def _record(progress: "Progress") -> dict[str, Any]:
    news, plan, law = progress.news, progress.plan, progress.law
    return finite_or_null(
        {
            "pilots": news.pilots,
            "doing": news.doing,
            "client_steps": news.client_steps,
            "joules": news.joules,
            "allowed_client_steps": progress.allowed_client_steps,
            "allowed_joules": progress.allowed_joules,
            "optimiser": progress.optimiser,
            "learning_rate": progress.learning_rate,
            "expected_steps": progress.expected_steps,
            "spread": progress.spread,
            "law": None if law is None else finite_or_null(asdict(law)),
            "local_steps": None if plan is None else plan.local_steps,
            "planned_rounds": None if plan is None else plan.rounds,
            "planned_joules": None if plan is None else plan.energy_joules,
        }
    )
