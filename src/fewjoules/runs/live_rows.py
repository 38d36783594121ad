"""The metrics of rounds since the last checkpoint, for those who watch a run while it trains."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fewjoules.errors import InvalidInputError
from fewjoules.ledger.log import RowLog, parts_of
from fewjoules.ledger.parquet import read_table, write_table
from fewjoules.ledger.schema import METRICS, RowArray
from fewjoules.runs.files import LIVE, METRICS_TABLE, RUN

SECONDS = 1.0  # between two writes
_ATTEMPTS = 5  # to read a table whose parts are being replaced


class LiveRows:
    """Writes now and then the rows that no part of the metrics has yet, until the run ends; only a kill leaves them."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Write below the folder of a run."""
        self._file, self._clock = folder / METRICS.name / LIVE, clock
        self._log: RowLog | None = None  # the first of several ranks has one
        self._written = -SECONDS

    def follow(self, log: RowLog) -> None:
        """Show the rows of this log from now on; forget those of a run that was killed."""
        self._log = log
        self._file.unlink(missing_ok=True)

    def __enter__(self) -> "LiveRows":
        """Begin with nothing to show."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Show nothing any more."""
        if self._log is not None:
            self._file.unlink(missing_ok=True)

    def show_now_and_then(self) -> None:
        """Write the rows if the last write was a second ago; a disk that cannot take them is no reason to stop."""
        now = self._clock()
        if self._log is None or now - self._written < SECONDS:
            return
        with contextlib.suppress(OSError):
            write_table(self._file, self._log.table, self._log.unflushed(), lasting=False)
        self._written = now


def metrics_so_far(folder: Path, *, living: bool) -> RowArray:
    """Read the metrics of a run that another process may be writing; of a ``living`` one also the newest rows.

    Rows of a run that was killed count up to its last part, after which it can be resumed.
    """
    place = folder / METRICS.name
    for attempt in range(_ATTEMPTS):
        if (folder / RUN).exists():
            return read_table(folder / METRICS_TABLE, METRICS)
        try:
            newest = _newest(place) if living else None  # first: what a flush then moves to a part is not missed
            blocks = [read_table(file, METRICS) for _, _, file in parts_of(place)]
        except (InvalidInputError, FileNotFoundError):  # parts are removed when a run is resumed or ends
            if attempt + 1 == _ATTEMPTS:
                raise
            time.sleep(0.02)
            continue
        return _joined(blocks, newest)
    raise AssertionError  # the last attempt returns or raises


def _newest(place: Path) -> RowArray | None:
    return read_table(place / LIVE, METRICS) if (place / LIVE).exists() else None


def _joined(blocks: list[RowArray], newest: RowArray | None) -> RowArray:
    """Return the rows of all parts, followed by the newest ones if no round is missing between them."""
    rows = np.concatenate(blocks) if blocks else METRICS.new_rows(0)
    last = int(rows["round"][-1]) if rows.size else 0
    if newest is None:
        return rows
    more = newest[newest["round"] > last]
    if not more.size or int(more["round"][0]) != last + 1:
        return rows
    return np.concatenate([rows, more]) if rows.size else more
