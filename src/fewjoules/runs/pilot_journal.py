"""Every finished pilot as one line of JSON with a checksum, so that a tuning that was killed repeats none of them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError
from fewjoules.files import open_regular
from fewjoules.runs.checkpoint import require_same_identity
from fewjoules.runs.sealed import sealed_line, unsealed_line
from fewjoules.tuning.pilot import PilotResult, PilotSpec

JOURNAL_VERSION = 1


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
        lines = _whole_lines(path)
        if not lines:
            self._header = {"version": JOURNAL_VERSION, "identity": json.loads(json.dumps(identity))}
            return
        header, *results = (_checked(path, number, line) for number, line in enumerate(lines, start=1))
        if header.get("version") != JOURNAL_VERSION or not isinstance(header.get("identity"), dict):
            raise InvalidInputError(f"{path}: version must be {JOURNAL_VERSION}, got {header.get('version')!r}")
        require_same_identity(f"{path}: the pilots belong to another task", header["identity"], identity or {})
        for data in results:
            self._keep(PilotResult.from_dict(data))

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


def _whole_lines(path: Path) -> list[bytes]:
    """Return the lines of a journal; cut off a last one without its end."""
    if not path.exists():
        return []
    with open_regular(path) as stream:
        data = stream.read()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    return whole.splitlines()


def _checked(path: Path, number: int, line: bytes) -> dict[str, Any]:
    data = unsealed_line(line)
    if data is None:
        raise InvalidInputError(
            f"{path}: the file is damaged: line {number} must be JSON with its checksum; without this line and those "
            "below it, their pilots are trained again"
        )
    return data
