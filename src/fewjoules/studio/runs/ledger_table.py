"""Pages, sums and CSV of a ledger of any length: row groups are read one at a time, and only the columns needed."""

import csv
import functools
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import IntArray
from fewjoules.errors import InvalidInputError, shown
from fewjoules.ledger.parquet import groups_of, read_group
from fewjoules.ledger.schema import LEDGER
from fewjoules.provenance import MARKS
from fewjoules.studio.runs.ledger_filter import Columns, LedgerFilter
from fewjoules.studio.runs.ledger_sums import ledger_files

MOST_SORTED = 5_000_000
UNITS = {column.name: column.unit for column in LEDGER.columns}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run a name that begins so


@dataclass(frozen=True, slots=True)
class Devices:
    """Name and group of each device."""

    names: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Matches:
    """The rows that a filter wants: how many each row group has, and their sums."""

    places: tuple[tuple[Path, int], ...]  # file and row group
    counts: IntArray
    sums: dict[str, float]

    @property
    def total(self) -> int:
        """Number of rows."""
        return int(self.counts.sum())


def stamp_of(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return what changes when a ledger does."""
    return tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in ledger_files(folder))


@functools.lru_cache(maxsize=32)
def matches_of(stamp: tuple[tuple[str, int, int], ...], wanted: LedgerFilter, devices: Devices) -> Matches:
    """Count and sum what a filter wants; row groups outside its rounds are not read."""
    chosen = wanted.chosen_devices(devices.names, devices.groups)
    columns = list(dict.fromkeys([*wanted.reads(), *wanted.summed]))
    places, counts = [], []
    parts: dict[str, list[float]] = {name: [] for name in wanted.summed}
    for file, _, _ in stamp:
        for group, (_, first, last) in enumerate(groups_of(file, LEDGER)):
            if last < wanted.first_round or first > wanted.last_round:
                continue
            rows = read_group(file, LEDGER, group, columns)
            found = wanted.wanted(rows, chosen)
            places.append((Path(file), group))
            counts.append(np.count_nonzero(found))
            for name, own in parts.items():
                own.append(float(np.nansum(rows[name][found])))
    sums = {name: math.fsum(own) for name, own in parts.items()}
    return Matches(tuple(places), np.array(counts, dtype=np.int64), sums)


@functools.lru_cache(maxsize=4)
def _order(
    stamp: tuple[tuple[str, int, int], ...], wanted: LedgerFilter, devices: Devices, column: str, falling: bool
) -> IntArray:
    """Return the places of the wanted rows in the order of a column; equal ones stay in the order of the rounds."""
    matches = matches_of(stamp, wanted, devices)
    if matches.total > MOST_SORTED:
        raise InvalidInputError(
            f"at most {MOST_SORTED:,} rows are sorted, got {matches.total:,}; choose fewer rounds or devices"
        )
    chosen = wanted.chosen_devices(devices.names, devices.groups)
    source = "device" if column in ("name", "group") else column
    blocks = [
        rows[source][wanted.wanted(rows, chosen)]
        for rows in (read_group(file, LEDGER, group, [*wanted.reads(), source]) for file, group in matches.places)
    ]
    values = np.concatenate(blocks) if blocks else np.zeros(0)
    if column in ("name", "group"):
        texts = devices.names if column == "name" else devices.groups
        rank = {text: place for place, text in enumerate(sorted(set(texts)))}
        values = np.array([rank[text] for text in texts])[values]
    keys: NDArray[Any] = values.astype(np.float64)
    unknown = np.isnan(keys)
    keys = np.where(unknown, np.inf, -keys if falling else keys)  # what is unknown comes last
    return np.argsort(keys, kind="stable")


def page_of(
    folder: Path, wanted: LedgerFilter, devices: Devices, *, page: int, size: int, sort: str, falling: bool
) -> dict[str, Any]:
    """Return one page of the wanted rows, their number, and their sums."""
    if sort and sort not in wanted.columns:
        raise InvalidInputError(f"sort must be one of {', '.join(wanted.columns)}, got {shown(sort)}")
    stamp = stamp_of(folder)
    matches = matches_of(stamp, wanted, devices)
    start = (page - 1) * size
    if sort and (sort, falling) != ("round", False):
        places = _order(stamp, wanted, devices, sort, falling)[start : start + size]
    else:
        places = np.arange(start, min(start + size, matches.total), dtype=np.int64)
    rows = _rows_at(matches, wanted, devices, places)
    return {
        "columns": list(wanted.columns),
        "units": [UNITS.get(name, "") for name in wanted.columns],
        "rows": [list(cells) for cells in _cells(rows, wanted, devices)],
        "total": matches.total,
        "sums": matches.sums,
        "page": page,
        "pages": max(1, math.ceil(matches.total / size)),
    }


def _rows_at(matches: Matches, wanted: LedgerFilter, devices: Devices, places: IntArray) -> Columns:
    """Return the wanted rows at some places among all wanted ones; only row groups that have one are read."""
    ends = np.cumsum(matches.counts)
    owner = np.searchsorted(ends, places, side="right")
    empty = LEDGER.new_rows(places.size)
    found = {name: empty[name].copy() for name in _stored(wanted)}
    chosen = wanted.chosen_devices(devices.names, devices.groups)
    for number in np.unique(owner):
        file, group = matches.places[number]
        rows = _wanted_rows(file, group, wanted, chosen)
        mine = owner == number
        within = places[mine] - (ends[number] - matches.counts[number])
        for name, values in found.items():
            values[mine] = rows[name][within]
    return found


def _wanted_rows(file: Path, group: int, wanted: LedgerFilter, chosen: NDArray[np.bool_] | None) -> Columns:
    rows = read_group(file, LEDGER, group, [*wanted.reads(), *_stored(wanted)])
    found = wanted.wanted(rows, chosen)
    return {name: rows[name][found] for name in _stored(wanted)}


def _stored(wanted: LedgerFilter) -> list[str]:
    """Return the columns shown that the ledger has; names and groups are known by the device."""
    return [name for name in wanted.columns if name in UNITS]


def _cells(rows: Columns, wanted: LedgerFilter, devices: Devices) -> Iterator[tuple[Any, ...]]:
    """Yield the cells of each row as plain values; what is unknown is None."""
    columns = [_column(rows, name, devices) for name in wanted.columns]
    yield from zip(*columns, strict=True)


def _column(rows: Columns, name: str, devices: Devices) -> list[Any]:
    if name in ("name", "group"):
        texts = devices.names if name == "name" else devices.groups
        return [texts[device] if 0 <= device < len(texts) else "" for device in rows["device"]]
    if name.endswith("_mark"):
        return [MARKS[code] for code in rows[name]]
    values = rows[name].tolist()
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def csv_lines(folder: Path, wanted: LedgerFilter, devices: Devices) -> Iterator[str]:
    """Yield the CSV of the wanted rows in the order of their rounds, a row group at a time.

    A name that a spreadsheet would take for a formula gets an apostrophe.
    """
    chosen = wanted.chosen_devices(devices.names, devices.groups)
    yield ",".join(wanted.columns) + "\r\n"
    for file, group in matches_of(stamp_of(folder), wanted, devices).places:
        text = io.StringIO()
        writer = csv.writer(text)
        for cells in _cells(_wanted_rows(file, group, wanted, chosen), wanted, devices):
            writer.writerow([csv_cell(cell) for cell in cells])
        yield text.getvalue()


def csv_cell(value: Any) -> Any:
    """Return a cell of a CSV file."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value
