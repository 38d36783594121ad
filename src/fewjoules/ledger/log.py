"""A table that grows during a run: part files that survive a kill, joined into one file at the end."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from fewjoules.errors import InvalidInputError
from fewjoules.files import PARTIAL_SUFFIX, checksum_of, make_folder, require_intact, sync_folder
from fewjoules.ledger.parquet import read_blocks, write_table
from fewjoules.ledger.schema import RowArray, TableSchema

_PART = re.compile(r"part-(\d{8,})-(\d{8,})\.parquet")
_PARTIAL = re.compile(rf"\.part-\d{{8,}}-\d{{8,}}\.parquet{re.escape(PARTIAL_SUFFIX)}")


class RowLog:
    """Rows in the order of their rounds, in a folder of part files or, without a folder, in memory."""

    folder: Path | None
    keeps_rows: bool
    table: TableSchema

    def __init__(self, folder: Path | None, table: TableSchema, *, keeps_rows: bool = True) -> None:
        """Start a log; a folder with parts is refused. Without ``keeps_rows`` another process has the rows."""
        self.folder, self.keeps_rows = folder, keeps_rows
        self.table = table
        self._kept: list[RowArray] = []  # rows not flushed yet; all rows without a folder
        self._flushed_round = 0
        self._appended_round = 0
        self.checksums: dict[str, int] = {}  # of the parts by name
        if folder is not None:
            make_folder(folder)
            if parts_of(folder):
                raise InvalidInputError(f"{folder}: a new {table.name} needs a folder without parts of an older one")

    @classmethod
    def resume(cls, folder: Path, table: TableSchema, last_round: int, checksums: Mapping[str, int]) -> "RowLog":
        """Open a log to continue after ``last_round``; remove later parts and half-written ones.

        ``checksums`` are those of the log at that time. Parts that are missing or damaged are refused.
        """
        require_parts(folder, last_round, checksums)
        for _, last, file in parts_of(folder):
            if last > last_round:
                file.unlink()
        make_folder(folder)
        _remove_partials(folder)
        sync_folder(folder)
        log = cls(None, table)
        log.folder = folder
        log._flushed_round = log._appended_round = last_round
        log.checksums = dict(checksums)
        return log

    @classmethod
    def copied(cls, folder: Path, table: TableSchema, last_round: int | None = None) -> "RowLog":
        """Return a log in memory with the rows that another process has flushed to a folder, up to ``last_round``."""
        log = cls(None, table)
        for _, last, file in parts_of(folder):
            if last_round is None or last <= last_round:
                for block in read_blocks(file, table):
                    log.append(block)
        return log

    def append(self, rows: RowArray) -> None:
        """Append a copy of the rows, which must belong to the current round or to later ones."""
        rows = self.table.require_rows(rows)
        if not rows.size:
            return
        rounds = rows["round"]
        least = max(self._appended_round, self._flushed_round + 1)
        if rounds[0] < least or np.any(np.diff(rounds) < 0):
            raise InvalidInputError(
                f"rounds appended to the {self.table.name} must be at least {least} and never fall, "
                f"got {int(rounds[0])} to {int(rounds.min())}"
            )
        self._kept += [rows.copy()] if self.keeps_rows else []
        self._appended_round = int(rounds[-1])

    def amend(self, rows: RowArray) -> None:
        """Replace the rows that were appended last, which must be those of their round and not be flushed."""
        rows = self.table.require_rows(rows)
        if self._appended_round == self._flushed_round or np.any(rows["round"] != self._appended_round):
            raise InvalidInputError(
                f"rows of the {self.table.name} can be replaced until they are flushed, got round "
                f"{int(rows['round'][0])} after a flush of {self._flushed_round} and rows of {self._appended_round}"
            )
        if self.keeps_rows:
            self._kept[-1] = rows.copy()

    def flush(self, last_round: int) -> None:
        """Write the rows since the last flush as one part that ends with ``last_round``."""
        if last_round < max(self._appended_round, self._flushed_round):
            raise InvalidInputError(
                f"last_round must be at least {max(self._appended_round, self._flushed_round)}, got {last_round}"
            )
        if last_round == self._flushed_round:
            return
        if self.folder is not None:
            name = f"part-{self._flushed_round + 1:08d}-{last_round:08d}.parquet"
            write_table(self.folder / name, self.table, self._kept)
            self.checksums[name] = checksum_of(self.folder / name)
            self._kept = []
        self._flushed_round = self._appended_round = last_round

    def unflushed(self) -> list[RowArray]:
        """Return the rows since the last flush, or all rows of a log without a folder."""
        return list(self._kept)

    def blocks(self) -> Iterator[RowArray]:
        """Yield every row so far, a block at a time."""
        if self.folder is not None:
            for _, _, file in parts_of(self.folder):
                yield from read_blocks(file, self.table)
        yield from self._kept

    def rows(self) -> RowArray:
        """Return every row so far."""
        blocks = list(self.blocks())
        return np.concatenate(blocks) if blocks else self.table.new_rows(0)

    def finish(self, target: Path, *, keep_parts: bool = False) -> None:
        """Write all rows as one file, then remove the parts unless ``keep_parts``."""
        self.flush(self._appended_round)
        write_table(target, self.table, self.blocks())
        if not keep_parts:
            self.remove_parts()

    def remove_parts(self) -> None:
        """Remove the parts, and the folder if it is then empty."""
        if self.folder is None or not self.folder.is_dir():
            return
        for _, _, file in parts_of(self.folder):
            file.unlink()
        _remove_partials(self.folder)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


def require_parts(folder: Path, last_round: int, checksums: Mapping[str, int]) -> None:
    """Refuse parts that do not cover all rounds up to ``last_round`` once, or that are damaged."""
    _require_cover(folder, [(first, last) for first, last, _ in parts_of(folder) if last <= last_round], last_round)
    for name, checksum in checksums.items():
        require_intact(folder / name, checksum)


def parts_of(folder: Path) -> list[tuple[int, int, Path]]:
    """Return first round, last round and file of each part, in order."""
    if not folder.is_dir():
        return []
    named = ((_PART.fullmatch(file.name), file) for file in folder.iterdir())
    return sorted((int(match[1]), int(match[2]), file) for match, file in named if match)


def _remove_partials(folder: Path) -> None:
    for file in folder.iterdir():
        if _PARTIAL.fullmatch(file.name):
            file.unlink()


def _require_cover(folder: Path, ranges: list[tuple[int, int]], last_round: int) -> None:
    """Refuse parts with gaps or overlaps."""
    expected = 1
    for first, last in ranges:
        if first != expected or last < first:
            raise InvalidInputError(f"{folder}: a part must start with round {expected}, got {first} to {last}")
        expected = last + 1
    if expected != last_round + 1:
        raise InvalidInputError(f"{folder}: the parts must cover rounds 1 to {last_round}, got 1 to {expected - 1}")
