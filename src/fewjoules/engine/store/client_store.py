"""The store of what clients keep: rows in memory up to a bound; the least recently used go to a file, none is lost."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fewjoules.arrays import Floats, IntArray
from fewjoules.engine.algorithm.state import ClientState
from fewjoules.engine.store.row import Resident, Row
from fewjoules.engine.store.row_file import RowFile, Vectors

FLOAT32, BFLOAT16 = "float32", "bfloat16"
DTYPES: dict[str, np.dtype[Any]] = {
    FLOAT32: np.dtype(np.float32),
    BFLOAT16: np.dtype(np.int16),
}  # of which NumPy sees the bits only


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where rows are: at most ``memory_bytes`` of them in memory, the others in a file without a name in ``folder``.

    Without a bound all stay in memory; without a folder the system's folder for temporary files is taken.
    """

    memory_bytes: int | None = None
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class ClientTable:
    """What all clients kept after some round: one row for each that took part by then. It never changes."""

    names: tuple[str, ...]
    values: str
    rows: Mapping[int, Row]

    @classmethod
    def empty(cls) -> "ClientTable":
        """Return the table of clients that keep nothing here."""
        return cls((), FLOAT32, {})

    def numbers(self) -> IntArray:
        """The clients that took part, in order."""
        return np.sort(np.fromiter(self.rows, dtype=np.int64, count=len(self.rows)))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return everything in memory: the numbers of the clients, their steps, and a matrix for each vector."""
        numbers = self.numbers()
        rows = [self.rows[client] for client in numbers.tolist()]
        found = {"numbers": torch.from_numpy(numbers), "steps": torch.tensor([row.steps for row in rows]).long()}
        states = [state_of(row, self.names, self.values) for row in rows]
        for name in self.names if states else ():
            found[name] = torch.from_numpy(np.stack([getattr(state, name) for state in states]))
        return found


class ClientStore:
    """Vectors of each client that took part; ``values`` "bfloat16" keeps them rounded, in half the bytes.

    Threads may take and put at the same time, each the rows of its own clients.
    """

    names: tuple[str, ...]
    size: int
    values: str
    row_bytes: int
    place: StorePlace

    def __init__(
        self, names: tuple[str, ...], size: int, place: StorePlace | None = None, *, values: str = FLOAT32
    ) -> None:
        """Allocate nothing yet; vectors have ``size`` entries."""
        self.names, self.size, self.values = names, size, values
        self.row_bytes = len(names) * size * DTYPES[values].itemsize
        self.place = place or StorePlace()
        self._rows: dict[int, Row] = {}
        self._own: set[int] = set()  # clients whose rows no table has
        self._held: dict[int, Row | None] | None = None  # rows of clients that changed since ``hold``, as they were
        self._resident: Resident = OrderedDict()
        self._file: RowFile | None = None
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """How many clients took part."""
        return len(self._rows)

    def __contains__(self, client: int) -> bool:
        """Whether a client took part."""
        return client in self._rows

    def __iter__(self) -> Iterator[int]:
        """The clients that took part."""
        return iter(self._rows)

    @property
    def resident(self) -> int:
        """How many rows are in memory, those of earlier tables included."""
        return len(self._resident)

    def state(self, client: int) -> ClientState | None:
        """Return a copy of what a client kept; None before it first took part."""
        with self._lock:
            row = self._rows.get(client)
            return None if row is None else state_of(row, self.names, self.values)

    def take(self, client: int) -> ClientState | None:
        """Take out what a client kept, to be changed and put back; None before it first took part.

        The vectors are not copied where nobody else needs them.
        """
        with self._lock:
            row = self._rows.get(client)
            if row is None:
                return None
            if self._held is not None or client not in self._own or row.vectors is None or self.values != FLOAT32:
                row.used()
                return state_of(row, self.names, self.values)
            del self._rows[client]
            self._own.discard(client)
            row.leave_memory()
            return _state(row.steps, self.names, row.vectors)

    def put(self, client: int, state: ClientState) -> None:
        """Keep what a client has after a round; its vectors may not be changed afterwards."""
        row = Row(state.steps, tuple(self._kept(getattr(state, name)) for name in self.names))
        with self._lock:
            row.note_in(self._resident)
            self._hold_row(client)
            self._rows[client] = row
            self._own.add(client)
            del row
            self._spill()

    def drop(self, client: int) -> None:
        """Forget a client; tables that have its row keep it."""
        with self._lock:
            self._hold_row(client)
            del self._rows[client]
            self._own.discard(client)

    def table(self) -> ClientTable:
        """Return what all clients keep now, without copying it; later rounds do not change it."""
        with self._lock:
            self._own.clear()
            return ClientTable(self.names, self.values, dict(self._rows))

    def go_back(self, table: ClientTable) -> None:
        """Continue from an earlier table, of this store or of another with the same vectors."""
        with self._lock:
            self._own.clear()
            self._held = None
            self._rows = dict(table.rows)

    def hold(self) -> None:
        """Hold the rows of now until the next call, so that ``take_back`` can return to them."""
        with self._lock:
            self._held = {}

    def take_back(self) -> bool:
        """Return to the rows that ``hold`` has held; False if there are none."""
        with self._lock:
            if self._held is None:
                return False
            for client, row in self._held.items():
                if row is not None:
                    self._rows[client] = row
                else:
                    self._rows.pop(client, None)
            self._own.difference_update(self._held)
            self._held = None
            return True

    def _hold_row(self, client: int) -> None:
        if self._held is not None:
            self._held.setdefault(client, self._rows.get(client))

    def _kept(self, vector: Floats) -> NDArray[Any]:
        if self.values == BFLOAT16:
            return torch.from_numpy(vector).to(torch.bfloat16).view(torch.int16).numpy()
        return vector if vector.base is None else vector.copy()  # a view keeps all of its base in memory

    def _spill(self) -> None:
        """Write the rows used least recently to the file until the others fit."""
        if self.place.memory_bytes is None or not self.row_bytes:
            return
        most = self.place.memory_bytes // self.row_bytes
        while len(self._resident) > most:
            row = next(iter(self._resident))()
            if row is not None:
                row.spill_to(self._spill_file())

    def _spill_file(self) -> RowFile:
        if self._file is None:
            self._file = RowFile.temporary(self.place.folder, len(self.names), self.size, DTYPES[self.values])
        return self._file


def state_of(row: Row, names: tuple[str, ...], values: str) -> ClientState:
    """Return a copy of what a row holds."""
    vectors = row.copied()
    if values == BFLOAT16:
        vectors = tuple(torch.from_numpy(bits).view(torch.bfloat16).float().numpy() for bits in vectors)
    return _state(row.steps, names, vectors)


def _state(steps: int, names: tuple[str, ...], vectors: Vectors) -> ClientState:
    named: dict[str, Any] = dict(zip(names, vectors, strict=True))
    return ClientState(**named, steps=steps)
