"""Sums of a ledger that another process may be writing: by round, by device and by where joules come from."""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.errors import InvalidInputError
from fewjoules.ledger.log import parts_of
from fewjoules.ledger.parquet import groups_of, read_group
from fewjoules.ledger.schema import LEDGER
from fewjoules.ledger.sums import SUMMED_COLUMNS, joules_by_kind
from fewjoules.provenance import KINDS
from fewjoules.reports.progress_figures import KindTotals
from fewjoules.runs.files import LEDGER_TABLE, RUN
from fewjoules.studio.runs.ledger_filter import Columns

Made = TypeVar("Made")
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Sums:
    """Joules of some rows; ``by_round`` and ``by_device`` have a column for each kind, 0 where joules are unknown."""

    first_round: int
    by_round: FloatArray
    by_device: FloatArray
    split: dict[str, dict[str, float]]
    rows: int


def ledger_files(folder: Path) -> list[Path]:
    """Return the files of a run's ledger in the order of their rounds: one, or the parts of a run that goes on."""
    if (folder / RUN).exists() or not (folder / LEDGER.name).is_dir():
        return [folder / LEDGER_TABLE] if (folder / LEDGER_TABLE).exists() else []
    return [file for _, _, file in parts_of(folder / LEDGER.name)]


def steadily(read: Callable[[], Made]) -> Made:
    """Return what is read from files that another process may be replacing, after a few attempts."""
    for attempt in range(_ATTEMPTS):
        try:
            return read()
        except (InvalidInputError, FileNotFoundError):
            if attempt + 1 == _ATTEMPTS:
                raise
            time.sleep(0.02)
    raise AssertionError  # the last attempt returns or raises


def sums_of(folder: Path) -> Sums:
    """Return the sums of a whole ledger, as far as it is written."""
    return steadily(lambda: _joined([_of_file(file, *_stamp(file)) for file in ledger_files(folder)]))


def totals_of(sums: Sums) -> KindTotals:
    """Return the joules by kind up to each round."""
    rounds: IntArray = np.arange(sums.by_round.shape[0], dtype=np.int64) + sums.first_round
    totals = np.cumsum(sums.by_round, axis=0)
    return KindTotals(rounds, {kind: totals[:, place] for place, kind in enumerate(KINDS) if kind in sums.split})


def joules_of_devices(sums: Sums, devices: int) -> dict[str, FloatArray]:
    """Return the joules of each device by kind; devices that took no part have none."""
    if sums.by_device.shape[0] > devices:
        raise InvalidInputError(f"devices of the ledger must be below {devices}, got {sums.by_device.shape[0] - 1}")
    padded = np.zeros((devices, len(KINDS)))
    padded[: sums.by_device.shape[0]] = sums.by_device
    return {kind: padded[:, place] for place, kind in enumerate(KINDS) if kind in sums.split}


def _stamp(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size


@functools.lru_cache(maxsize=4096)
def _of_file(file: Path, _changed: int, _size: int) -> Sums:
    """Sum one file, block by block; a file that has not changed is summed once."""
    columns = ["round", "device", *SUMMED_COLUMNS]
    found = [_of_group(read_group(file, LEDGER, group, columns)) for group in range(len(groups_of(file, LEDGER)))]
    return _joined(found)


def _of_group(block: Columns) -> Sums:
    first = int(block["round"].min()) if block["round"].size else 1
    rounds, devices = block["round"] - first, block["device"]
    joules = [np.nan_to_num(block[f"{kind}_joules"]) for kind in KINDS]
    by_round: FloatArray = np.stack([np.bincount(rounds, weights=one) for one in joules], axis=1).astype(np.float64)
    by_device: FloatArray = np.stack([np.bincount(devices, weights=one) for one in joules], axis=1).astype(np.float64)
    return Sums(first, by_round, by_device, joules_by_kind([block]), block["round"].size)


def _joined(found: Sequence[Sums]) -> Sums:
    if not found:
        return Sums(1, np.zeros((0, len(KINDS))), np.zeros((0, len(KINDS))), {}, 0)
    if len(found) == 1:
        return found[0]
    first = min(one.first_round for one in found)
    last = max(one.first_round + one.by_round.shape[0] for one in found)
    by_round = np.zeros((last - first, len(KINDS)))
    by_device = np.zeros((max(one.by_device.shape[0] for one in found), len(KINDS)))
    split: dict[str, dict[str, float]] = {}
    for one in found:
        start = one.first_round - first
        by_round[start : start + one.by_round.shape[0]] += one.by_round
        by_device[: one.by_device.shape[0]] += one.by_device
        for kind, marks in one.split.items():
            own = split.setdefault(kind, {})
            for mark, joules in marks.items():
                own[mark] = own.get(mark, 0.0) + joules
    return Sums(first, by_round, by_device, split, sum(one.rows for one in found))
