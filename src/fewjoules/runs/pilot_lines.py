"""The lines of a journal of pilots, read without changing the file: another process may be writing it."""

from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError
from fewjoules.files import open_regular
from fewjoules.runs.sealed import unsealed_line
from fewjoules.tuning.pilot import PilotResult

JOURNAL_VERSION = 1


def whole_lines(path: Path) -> tuple[list[bytes], int, int]:
    """Return the lines that have an end, the bytes they take, and the bytes of the file; nothing without a file."""
    if not path.exists():
        return [], 0, 0
    with open_regular(path) as stream:
        data = stream.read()
    whole = data[: data.rfind(b"\n") + 1]
    return whole.splitlines(), len(whole), len(data)


def checked_line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """Return the table of a line; refuse a damaged one."""
    data = unsealed_line(line)
    if data is None:
        raise InvalidInputError(
            f"{path}: the file is damaged: line {number} must be JSON with its checksum; without this line and those "
            "below it, their pilots are trained again"
        )
    return data


def journal_of(path: Path) -> tuple[dict[str, Any], list[PilotResult]]:
    """Return the identity of the task and every pilot of a journal; both are empty before the first pilot."""
    lines, _, _ = whole_lines(path)
    if not lines:
        return {}, []
    header, *results = (checked_line(path, number, line) for number, line in enumerate(lines, start=1))
    if header.get("version") != JOURNAL_VERSION or not isinstance(header.get("identity"), dict):
        raise InvalidInputError(f"{path}: version must be {JOURNAL_VERSION}, got {header.get('version')!r}")
    return header["identity"], [PilotResult.from_dict(data) for data in results]
