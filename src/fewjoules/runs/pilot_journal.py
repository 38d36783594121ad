"""Every finished pilot as one line of JSON with a checksum, so that a tuning that was killed repeats none of them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fewjoules.runs.checkpoint import require_same_identity
from fewjoules.runs.pilot_lines import JOURNAL_VERSION, journal_of, whole_lines
from fewjoules.runs.sealed import sealed_line
from fewjoules.tuning.pilot import PilotResult, PilotSpec


class PilotJournal:
    """Results of pilots by what they trained, in a file or, without one, in memory.

    The first line tells the version and the identity of the task. A last line that a kill has torn is dropped; any
    other damage is refused, and so is the journal of another task.
    """

    def __init__(self, path: Path | None = None, identity: Mapping[str, Any] | None = None) -> None:
        """Read the journal; where there is none, the first pilot begins a new one."""
        self._path, self._found = path, dict[str, PilotResult]()
        self._header: dict[str, Any] | None = None  # of a new file
        if path is None:
            return
        if not _mended(path):
            self._header = {"version": JOURNAL_VERSION, "identity": json.loads(json.dumps(identity))}
            return
        stored, results = journal_of(path)
        require_same_identity(f"{path}: the pilots belong to another task", stored, identity or {})
        for result in results:
            self._keep(result)

    def __len__(self) -> int:
        """Return the number of pilots."""
        return len(self._found)

    def find(self, spec: PilotSpec) -> PilotResult | None:
        """Return the result of a pilot that was trained before."""
        return self._found.get(spec.key)

    def add(self, result: PilotResult) -> None:
        """Keep a result, on disk before anything else happens."""
        self._append(result.to_dict())
        self._keep(result)

    def _keep(self, result: PilotResult) -> None:
        self._found[result.spec.key] = result

    def _append(self, data: dict[str, Any]) -> None:
        if self._path is None:
            return
        lines = [data] if self._header is None else [self._header, data]
        with self._path.open("ab") as stream:
            stream.write(b"".join(map(sealed_line, lines)))
            stream.flush()
            os.fsync(stream.fileno())
        self._header = None


def _mended(path: Path) -> bool:
    """Cut off a last line without its end; return whether the journal has any line."""
    lines, whole, size = whole_lines(path)
    if whole < size:
        os.truncate(path, whole)
    return bool(lines)
