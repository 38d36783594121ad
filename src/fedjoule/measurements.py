"""Small CSV tables of measurements: one header line, then numbers."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedjoule.arrays import FloatArray
from fedjoule.errors import InvalidInputError

MAX_TABLE_BYTES = 256 * 2**20


def read_text(path: str | Path, *, max_bytes: int = MAX_TABLE_BYTES) -> str:
    """Text of a UTF-8 file, or an error that names it."""
    file = Path(path)
    try:
        size = file.stat().st_size
        if size > max_bytes:
            raise InvalidInputError(f"{file}: the file must have at most {max_bytes} bytes, got {size}")
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file}: must be UTF-8 text, got byte {error.start} invalid") from error
    except OSError as error:
        raise InvalidInputError(f"{file}: cannot be read ({error.strerror or error})") from error


def read_header(path: str | Path) -> list[str]:
    """Column names of a CSV file."""
    first = next(iter(read_text(path).splitlines()), "")
    return [name.strip() for name in next(csv.reader([first]), [])]


def read_columns(
    path: str | Path, columns: Sequence[str], *, above: float = -math.inf, low: float = -math.inf
) -> dict[str, FloatArray]:
    """The named columns as float64 arrays: finite numbers > ``above`` and >= ``low``, at least one row."""
    header = read_header(path)
    missing = [name for name in columns if name not in header]
    if missing:
        raise InvalidInputError(
            f"{path}: the header must name {', '.join(columns)}; {missing[0]} is missing, got {','.join(header)!r}"
        )
    wanted = [header.index(name) for name in columns]
    rows = list(csv.reader(read_text(path).splitlines()[1:]))
    values = [
        [_cell(path, line, name, row, i, above, low) for name, i in zip(columns, wanted, strict=True)]
        for line, row in enumerate(rows, start=2)
        if any(cell.strip() for cell in row)
    ]
    if not values:
        raise InvalidInputError(f"{path}: must have at least one row of numbers below the header, got none")
    table = np.array(values, dtype=np.float64)
    return {name: table[:, i].copy() for i, name in enumerate(columns)}


def _cell(path: str | Path, line: int, name: str, row: list[str], index: int, above: float, low: float) -> float:
    text = row[index].strip() if index < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > above and value >= low):
        bound = f" above {above:g}" if math.isfinite(above) else f" of at least {low:g}" if math.isfinite(low) else ""
        raise InvalidInputError(f"{path}, line {line}: {name} must be a finite number{bound}, got {text!r}")
    return value
