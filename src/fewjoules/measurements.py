"""Small CSV tables of measurements: one header line, then numbers."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError
from fewjoules.files import read_text


def read_header(path: str | Path) -> list[str]:
    """Return the column names of a CSV file."""
    return _Table.read(path).header


def read_columns(
    path: str | Path,
    columns: Sequence[str],
    *,
    above: float = -math.inf,
    low: float = -math.inf,
    high: float = math.inf,
) -> dict[str, FloatArray]:
    """Read the named columns: finite numbers > ``above``, >= ``low`` and <= ``high``, at least one row."""
    table = _Table.read(path)
    for name in columns:
        if table.header.count(name) != 1:
            raise InvalidInputError(
                f"{path}: the header must name {name} once (wanted: {', '.join(columns)}), "
                f"got {table.header.count(name)} such among {len(table.header)} columns"
            )
    if not table.rows:
        raise InvalidInputError(f"{path}: must have at least one row of numbers below the header")
    limits = _Limits(above, low, high)
    return {name: table.column(name, limits) for name in columns}


@dataclass(frozen=True, slots=True)
class _Limits:
    above: float
    low: float
    high: float

    def allow(self, value: float) -> bool:
        return math.isfinite(value) and value > self.above and self.low <= value <= self.high

    def __str__(self) -> str:
        parts = (
            f" above {self.above:g}" if math.isfinite(self.above) else "",
            f" of at least {self.low:g}" if math.isfinite(self.low) else "",
            f" and at most {self.high:g}" if math.isfinite(self.high) else "",
        )
        return "a finite number" + "".join(parts)


@dataclass(frozen=True, slots=True)
class _Table:
    path: str | Path
    header: list[str]
    rows: list[tuple[int, list[str]]]  # with line numbers, blank lines left out

    @classmethod
    def read(cls, path: str | Path) -> "_Table":
        """Parse the file; every row must be as long as the header."""
        try:
            reader = csv.reader(read_text(path).splitlines(), strict=True)
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
        except csv.Error as error:
            raise InvalidInputError(f"{path}: must be CSV ({error})") from error
        header = lines[0][1] if lines else []
        rows = [(number, row) for number, row in lines[1:] if any(row)]
        for number, row in rows:
            if len(row) != len(header):
                raise InvalidInputError(
                    f"{path}, line {number}: must have {len(header)} cells like the header, got {len(row)}"
                )
        return cls(path, header, rows)

    def column(self, name: str, limits: _Limits) -> FloatArray:
        """Return the numbers of one column."""
        index = self.header.index(name)
        return np.array([self._number(line, name, row[index], limits) for line, row in self.rows])

    def _number(self, line: int, name: str, text: str, limits: _Limits) -> float:
        """Return a number within its limits; errors never show text, which may be that of a wrong file."""
        try:
            value = float(text)
        except ValueError:
            raise InvalidInputError(
                f"{self.path}, line {line}: {name} must be {limits}, got {'text' if text else 'nothing'}"
            ) from None
        if not limits.allow(value):
            raise InvalidInputError(f"{self.path}, line {line}: {name} must be {limits}, got {value!r}")
        return value
