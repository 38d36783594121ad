"""What clients keep, beside the checkpoint: a file of rows, to which a checkpoint adds only those that changed.

The checkpoint says in which slot each row is and what its checksum is. Slots of the last checkpoint are never
overwritten before the next one is on the disk; so at any moment the checkpoint and its rows fit each other.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fewjoules.engine.algorithm.client import kept_vectors
from fewjoules.engine.algorithm.saved import SavedTensor
from fewjoules.engine.coordinator import Coordinator
from fewjoules.engine.store.client_store import DTYPES, ClientTable
from fewjoules.engine.store.row import Row
from fewjoules.engine.store.row_file import RowFile
from fewjoules.errors import InvalidInputError, shown
from fewjoules.files import require_regular, sync_folder

TABLE = ("numbers", "steps", "slots", "checksums")  # int64 tensors of a table: one entry for each client
_SPARE_SLOTS = 64  # of a file that is not worth writing anew, whatever their share


@contextmanager
def stored(path: Path, tables: Sequence[ClientTable], before: RowFile | None) -> Iterator[RowFile | None]:
    """Write the rows of these tables that are not beside the checkpoint yet; inside, write the checkpoint itself.

    ``before`` is the file of the last checkpoint, if there is one; where most of it is unused, the rows move to a new
    one. Afterwards, what only earlier checkpoints needed is free; after an error, the last one still has its rows,
    whether that is the new one (Ctrl-C may come just after it got its name) or the one before.
    """
    rows = list({id(row): row for table in tables for row in table.rows.values()}.values())
    fits = before is not None and before.slots <= 2 * len(rows) + _SPARE_SLOTS
    file = None if not rows else before if fits else _new_file(path, next(table for table in tables if table.rows))
    earlier = _inode(path)
    try:
        if file is not None:
            for row in rows:
                row.move_to(file)
            file.sync()
        if file is not before:
            sync_folder(path.parent)
        yield file
    except BaseException:
        if file is not None and file is not before and _inode(path) == earlier:
            file.path.unlink(missing_ok=True)
        raise
    if file is not None:
        file.pin(row.slot for row in rows)
    for other in row_files(path):
        if file is None or other != file.path:
            other.unlink()


def _inode(path: Path) -> int | None:
    """Return what tells a file from the one that replaces it."""
    return path.stat().st_ino if path.exists() else None


def row_files(checkpoint: Path) -> Iterator[Path]:
    """Return the files of rows beside a checkpoint."""
    return checkpoint.parent.glob(f"{_stem(checkpoint)}*.rows")


def rows_header(file: RowFile | None) -> dict[str, Any] | None:
    """Return what a checkpoint says of its file of rows."""
    return None if file is None else {"file": file.path.name, "row_bytes": file.row_bytes}


def table_tensors(table: ClientTable) -> dict[str, SavedTensor]:
    """Return where each row of a table is, in the order of the clients."""
    numbers = table.numbers()
    rows = [table.rows[client] for client in numbers.tolist()]
    columns = ([row.steps for row in rows], [row.slot for row in rows], [row.checksum for row in rows])
    arrays = (numbers, *(np.array(column, dtype=np.int64) for column in columns))
    return {name: SavedTensor.of(torch.from_numpy(array)) for name, array in zip(TABLE, arrays, strict=True)}


class StoredRows:
    """The rows of a checkpoint: its tables are made from it, and share the rows that they have in common."""

    def __init__(self, path: Path, told: Any, tables: Sequence[Mapping[str, torch.Tensor]], owner: Coordinator) -> None:
        """Open the file that the checkpoint names; refuse one in which a row is missing or damaged."""
        self.names, self.values = kept_vectors(owner.options), owner.options.kept_values
        self._rows: dict[int, Row] = {}
        self.file: RowFile | None = None
        slots = {slot for table in tables for slot in table["slots"].tolist()}
        if not slots:
            return
        place = path.with_name(_named(path, told))
        last = 3 * len(slots) + _SPARE_SLOTS  # a file with more is written anew
        if not 0 <= min(slots) <= max(slots) <= last:
            raise InvalidInputError(f"{path}: the slots of rows must be from 0 to {last}, got {max(slots)}")
        require_regular(place)
        size = owner.state.weights.numel()
        self.file = RowFile.reopen(place, len(self.names), size, DTYPES[self.values], slots)
        if told.get("row_bytes") != self.file.row_bytes:
            wanted = shown(told.get("row_bytes"))
            raise InvalidInputError(f"{path}: a row must have {self.file.row_bytes} bytes, got {wanted}")
        for table in tables:
            self._require(place, table)

    def table(self, tensors: Mapping[str, torch.Tensor]) -> ClientTable:
        """Return the table of these tensors."""
        columns = zip(*(tensors[name].tolist() for name in TABLE), strict=True)
        return ClientTable(self.names, self.values, {client: self._row(*where) for client, *where in columns})

    def _row(self, steps: int, slot: int, checksum: int) -> Row:
        assert self.file is not None
        if slot not in self._rows:
            self._rows[slot] = Row.in_file(steps, self.file, slot, checksum)
        return self._rows[slot]

    def _require(self, place: Path, table: Mapping[str, torch.Tensor]) -> None:
        assert self.file is not None
        columns = zip(*(table[name].tolist() for name in TABLE), strict=True)
        for client, _, slot, checksum in columns:
            found = self.file.checksum(slot)
            if found != checksum:
                problem = "is missing" if found is None else "does not have its checksum"
                raise InvalidInputError(f"{place}: the file is damaged: what client {client} kept {problem}")


def _named(path: Path, told: Any) -> str:
    name = told.get("file") if isinstance(told, dict) else None
    if not isinstance(name, str) or Path(name).name != name or not name.startswith(_stem(path)):
        raise InvalidInputError(f"{path}: the checkpoint must name its file of rows, got {shown(name)}")
    return name


def _new_file(path: Path, table: ClientTable) -> RowFile:
    vectors = next(iter(table.rows.values())).copied()
    size = vectors[0].size if vectors else 0
    taken = {file.name for file in row_files(path)}
    free = (f"{_stem(path)}{number}.rows" for number in range(1, len(taken) + 2))
    place = path.with_name(next(name for name in free if name not in taken))
    return RowFile.create(place, len(vectors), size, DTYPES[table.values])


def _stem(checkpoint: Path) -> str:
    return f"{checkpoint.name.split('.')[0]}-clients-"
