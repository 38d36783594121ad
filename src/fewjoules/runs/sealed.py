"""JSON files of a run that carry a checksum of their own content, so that damage is noticed."""

import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError, shown
from fewjoules.files import read_text, whole_file

SEAL = "checksum"


def finite_or_null(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with null in place of every number that is not finite, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }


def write_sealed(path: Path, data: dict[str, Any], *, indent: int | None = 1) -> None:
    """Write a table as JSON with its checksum, completely or not at all."""
    text = json.dumps(data | {SEAL: _checksum(data)}, indent=indent, allow_nan=False)
    with whole_file(path) as stream:
        stream.write((text + "\n").encode())


def read_sealed(path: Path) -> Any:
    """Read JSON without its checksum; refuse a table that does not fit it. Older files without one are read."""
    try:
        data = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidInputError(f"{path}: must be JSON ({error})") from error
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{path}: must be JSON with numbers of usual length ({error})") from error
    if not isinstance(data, dict):
        return data
    if SEAL not in data:
        _require_unsealed(path, data)
        return data
    told = data.pop(SEAL)
    found = _checksum(data)
    if told is not None and told != found:
        raise InvalidInputError(f"{path}: the file is damaged: its {SEAL} must be {found}, got {shown(told)}")
    return data


def _require_unsealed(path: Path, data: dict[str, Any]) -> None:
    """Refuse a table whose last entry is its checksum under a name that damage changed."""
    last = next(reversed(data), "")
    rest = {key: value for key, value in data.items() if key != last}
    if data.get(last) == _checksum(rest):
        raise InvalidInputError(f"{path}: the file is damaged: its last key must be {SEAL}, got {shown(last)}")


def sealed_line(data: dict[str, Any]) -> bytes:
    """Return a table as one line of JSON with its checksum."""
    return (json.dumps(data | {SEAL: _checksum(data)}, allow_nan=False) + "\n").encode()


def unsealed_line(line: bytes) -> dict[str, Any] | None:
    """Return the table of such a line without its checksum; None if the line is damaged."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.pop(SEAL, None) != _checksum(data):
        return None
    return data


def _checksum(data: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True).encode())
