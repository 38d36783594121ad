"""A table of results: columns of equal length, written as CSV and read back exactly."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError
from fewjoules.files import read_text, whole_file

Cell = str | int | float


@dataclass(frozen=True, slots=True)
class Table:
    """Columns by name; the entries of a column are all text, all integers or all floats."""

    columns: Mapping[str, tuple[Cell, ...]]

    def __post_init__(self) -> None:
        """Refuse columns of different lengths or of mixed kinds."""
        if not self.columns:
            raise InvalidInputError("a table must have at least 1 column, got 0")
        lengths = {name: len(entries) for name, entries in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidInputError(f"the columns of a table must have equal lengths, got {lengths}")
        for name, entries in self.columns.items():
            kinds = {type(entry) for entry in entries}
            if len(kinds) > 1 or not kinds <= {str, int, float}:
                found = ", ".join(sorted(kind.__name__ for kind in kinds))
                raise InvalidInputError(f"column {name!r} must be all str, all int or all float, got {found}")

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Cell]]) -> "Table":
        """Make a table from rows, which must all have the same keys."""
        listed = list(rows)
        if not listed:
            raise InvalidInputError("a table must have at least 1 row to know its columns, got 0")
        for row in listed:
            if row.keys() != listed[0].keys():
                raise InvalidInputError(f"every row must have the keys {list(listed[0])}, got {list(row)}")
        return cls({name: tuple(row[name] for row in listed) for name in listed[0]})

    def __len__(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> tuple[Cell, ...]:
        """One column."""
        if name not in self.columns:
            raise InvalidInputError(f"the column must be one of {', '.join(self.columns)}, got {name!r}")
        return self.columns[name]

    def numbers(self, name: str) -> FloatArray:
        """One column of numbers, shape (rows,)."""
        return np.array(self[name], dtype=np.float64)

    def rows(self) -> list[dict[str, Cell]]:
        """All rows, each by column name."""
        return [dict(zip(self.columns, entries, strict=True)) for entries in zip(*self.columns.values(), strict=True)]

    def where(self, **values: Cell) -> "Table":
        """The rows in which each named column has the given value."""
        wanted = [
            all(row == value for row, value in zip(rows, values.values(), strict=True))
            for rows in zip(*(self[name] for name in values), strict=True)
        ]
        return Table(
            {
                name: tuple(entry for entry, keep in zip(entries, wanted, strict=True) if keep)
                for name, entries in self.columns.items()
            }
        )

    def write_csv(self, path: Path) -> None:
        """Write one line per row; text is quoted, and floats have enough digits to be read back exactly."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(zip(*self.columns.values(), strict=True))
        with whole_file(path) as stream:
            stream.write(text.getvalue().encode())

    @classmethod
    def read_csv(cls, path: Path) -> "Table":
        """Read the table that ``write_csv`` wrote."""
        text = read_text(path)
        try:
            raw = _lines(text, csv.QUOTE_MINIMAL)
            kinds = _lines(text, csv.QUOTE_NONNUMERIC)  # entries that are not quoted become floats
        except (csv.Error, ValueError) as error:  # which may quote the file
            raise InvalidInputError(f"{path}: must be CSV with quoted text") from error
        if not raw or any(len(line) != len(raw[0]) for line in raw) or len(set(raw[0])) < len(raw[0]):
            raise InvalidInputError(f"{path}: must have a header and lines of its length, got {len(raw)} lines")
        columns = zip(*raw[1:], strict=True) if len(raw) > 1 else iter([()] * len(raw[0]))
        typed = zip(*kinds[1:], strict=True) if len(raw) > 1 else iter([()] * len(raw[0]))
        return cls(
            {
                str(name): tuple(map(_kind(entries, known), entries))
                for name, entries, known in zip(raw[0], columns, typed, strict=True)
            }
        )


def _lines(text: str, quoting: int) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), quoting=quoting))  # type: ignore[arg-type]


def _kind(entries: Sequence[str], known: Sequence[Cell]) -> Callable[[str], Cell]:
    """Type of a column: text if an entry is quoted, otherwise integers or floats."""
    if any(isinstance(entry, str) for entry in known):
        return str
    return int if all(entry.lstrip("-").isdigit() for entry in entries) else float
