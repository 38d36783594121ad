"""Small CSV tables of measurements: one header line, then numbers."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.errors import InvalidInputError
from fewjoules.files import read_text

_MOST_DIGITS = 18  # of a whole number of 64 bits


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
    table.require(columns)
    limits = _Limits(above, low, high)
    return {name: table.column(name, limits) for name in columns}


def read_whole_numbers(path: str | Path, highest: Mapping[str, int]) -> tuple[IntArray, dict[str, IntArray]]:
    """Read columns of whole numbers from 0 to the ``highest`` of each; return the line of each row and the columns."""
    table = _Table.read(path)
    table.require(highest)
    lines = np.array([line for line, _ in table.rows], dtype=np.int64)
    return lines, {name: table.whole_column(name, high) for name, high in highest.items()}


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

    def require(self, columns: Iterable[str]) -> None:
        """Refuse a table without one of the columns or without rows."""
        for name in columns:
            if self.header.count(name) != 1:
                raise InvalidInputError(
                    f"{self.path}: the header must name {name} once (wanted: {', '.join(columns)}), "
                    f"got {self.header.count(name)} such among {len(self.header)} columns"
                )
        if not self.rows:
            raise InvalidInputError(f"{self.path}: must have at least one row of numbers below the header")

    def whole_column(self, name: str, high: int) -> IntArray:
        """Return the whole numbers of one column, each from 0 to ``high``."""
        index = self.header.index(name)
        found = np.empty(len(self.rows), dtype=np.int64)
        for place, (line, row) in enumerate(self.rows):
            text = row[index]
            digits = text.isascii() and text.isdigit()
            if not digits or len(text) > _MOST_DIGITS or int(text) > high:
                got = "nothing" if not text else text if digits and len(text) <= _MOST_DIGITS else "something else"
                raise InvalidInputError(
                    f"{self.path}, line {line}: {name} must be a whole number from 0 to {high}, got {got}"
                )
            found[place] = int(text)
        return found

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
