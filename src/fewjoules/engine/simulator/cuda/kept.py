"""State of clients on a GPU: rows of a few matrices, in front of the store on the host.

A client gets a row when it first takes part. Where the GPU has no room for more, the rows used least recently go to the
store, which has a copy of the others too once a state was saved. Rows that are held are copied on the GPU before they
change, as far as a small share of its memory goes.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from fewjoules.arrays import IntArray
from fewjoules.engine.algorithm.saved import BLOCK_BYTES
from fewjoules.engine.algorithm.state import ClientState
from fewjoules.engine.store.client_store import BFLOAT16, ClientStore, ClientTable

ROWS_SHARE = 0.4  # share of a GPU's memory that rows may take; the rest of them is on the host
HELD_SHARE = 0.05  # share of it that copies of rows may take, by which a round can be taken back
Rows = slice | torch.Tensor  # a slice where rows are neighbours, so that they need no copy


class KeptRows:
    """One matrix for each kept vector, with rows for at most ``most`` clients, or for those that are asked for at once.

    A matrix in bfloat16 gives float32 values and rounds what is put into it.
    """

    def __init__(self, store: ClientStore, most: int, device: torch.device, *, most_held: int | None = None) -> None:
        """Allocate nothing yet; at most ``most_held`` rows are copied to be held, by default ``most``."""
        self.names, self._store, self._most = store.names, store, most
        self._most_held = most if most_held is None else most_held
        self._device, self._size = device, store.size
        self._dtype = torch.bfloat16 if store.values == BFLOAT16 else torch.float32
        self._matrices = {name: self._zeros(0) for name in self.names}
        self._row_of: dict[int, int] = {}  # the clients used least recently first
        self._changed: set[int] = set()  # clients whose rows the store does not have
        self._steps = np.zeros(0, dtype=np.int64)
        self._held: dict[int, Callable[[], ClientState | None]] | None = None  # what clients had at ``hold``

    def rows(self, clients: IntArray) -> Rows:
        """Return the rows of these clients, which may be changed; new clients get new rows."""
        wanted = clients.tolist()
        missing = [client for client in wanted if client not in self._row_of]
        new = {client for client in missing if client not in self._store}
        if missing:
            self._make_room(wanted, missing)
        self._hold_rows(wanted, new)
        for client in wanted:
            self._row_of[client] = self._row_of.pop(client)
        self._changed.update(wanted)
        found = np.array([self._row_of[client] for client in wanted])
        if np.array_equal(found, np.arange(found[0], found[0] + found.size)):
            return slice(int(found[0]), int(found[0]) + found.size)
        return torch.from_numpy(found).to(self._device)

    def take(self, name: str, rows: Rows) -> torch.Tensor:
        """Return rows of a matrix as float32: a view if they are neighbours, else a copy."""
        return self._matrices[name][rows].float()

    def put(self, name: str, rows: Rows, values: torch.Tensor) -> None:
        """Write rows of a matrix; a view that was changed in place needs no copy."""
        target = self._matrices[name]
        if not isinstance(rows, slice) or target[rows].data_ptr() != values.data_ptr():
            target[rows] = values.to(self._dtype)

    def steps(self, rows: Rows) -> IntArray:
        """Number of local steps that each of these clients has taken."""
        return self._steps[_on_host(rows)]

    def count_steps(self, rows: Rows, taken: int) -> None:
        """Add the local steps of a round."""
        self._steps[_on_host(rows)] += taken

    def client(self, number: int) -> ClientState | None:
        """State of one client; None before it first took part."""
        row = self._row_of.get(number)
        if row is None:
            return self._store.state(number)
        return _state(self._matrices, row, int(self._steps[row]))

    def put_client(self, number: int, state: ClientState) -> None:
        """Take over the state of a client; it gets a row when it takes part."""
        self._hold_client(number)
        self._forget_row(number)
        self._store.put(number, state)

    def drop_client(self, number: int) -> None:
        """Forget a client."""
        self._hold_client(number)
        self._forget_row(number)
        if number in self._store:
            self._store.drop(number)

    def _forget_row(self, number: int) -> None:
        self._row_of.pop(number, None)
        self._changed.discard(number)

    def save(self) -> ClientTable:
        """Return one row for each client that took part; only rows that changed are copied to the host."""
        self._write_back(self._changed)
        return self._store.table()

    def restore(self, table: ClientTable) -> None:
        """Restore the client states that ``save`` returned."""
        self._store.go_back(table)
        self._row_of, self._changed, self._held = {}, set(), None

    def hold(self) -> None:
        """Hold what clients have now until the next call, so that ``take_back`` can return to it."""
        self._held = {}

    def take_back(self) -> bool:
        """Return to what ``hold`` has held; False if there was no room to hold it."""
        held, self._held = self._held, None
        for client, before in ({} if held is None else held).items():
            state = before()
            if state is None:
                self.drop_client(client)
            else:
                self.put_client(client, state)
        return held is not None

    def _hold_rows(self, clients: list[int], new: Collection[int]) -> None:
        """Copy the rows of these clients on the GPU before they change; ``new`` ones have kept nothing yet."""
        if self._held is None:
            return
        if len(self._held) + len(clients) > self._most_held:
            self._held = None
            return
        wanted = [client for client in clients if client not in self._held]
        rows = np.array([self._row_of[client] for client in wanted], dtype=np.int64)
        steps, where = self._steps[rows], torch.from_numpy(rows).to(self._device)
        copies = {name: matrix[where] for name, matrix in self._matrices.items()}
        for at, client in enumerate(wanted):
            self._held[client] = _nothing if client in new else partial(_state, copies, at, int(steps[at]))

    def _hold_client(self, client: int) -> None:
        if self._held is not None and client not in self._held:
            state = self.client(client)
            self._held[client] = lambda: state

    def _make_room(self, wanted: list[int], missing: list[int]) -> None:
        """Give the missing clients rows: unused ones, new ones, or those of the clients used least recently."""
        needed = len(self._row_of) + len(missing)
        self._grow(min(needed, max(self._most, len(wanted))))
        staying = set(wanted)
        surplus = needed - self._steps.size
        leaving = [client for client in self._row_of if client not in staying][: max(0, surplus)]
        self._write_back(self._changed.intersection(leaving))
        for client in leaving:
            del self._row_of[client]
        used = set(self._row_of.values())
        unused = (row for row in range(self._steps.size) if row not in used)
        new = dict(zip(missing, unused, strict=False))
        self._row_of |= new
        self._fill(new)

    def _fill(self, new: dict[int, int]) -> None:
        """Fill rows with what the store has of their clients, else with zeros."""
        where = list(new.values())
        self._steps[where] = 0
        for matrix in self._matrices.values():
            matrix[where] = 0.0
        for client, row in new.items():
            state = self._store.state(client)
            if state is not None:
                self._steps[row] = state.steps
                for name, matrix in self._matrices.items():
                    matrix[row] = torch.from_numpy(getattr(state, name)).to(self._device, self._dtype)

    def _write_back(self, clients: Collection[int]) -> None:
        """Copy rows to the store, some at a time."""
        left = sorted(clients)
        at_a_time = max(1, BLOCK_BYTES // max(1, self._dtype.itemsize * self._size))
        for start in range(0, len(left), at_a_time):
            some = left[start : start + at_a_time]
            rows = torch.tensor([self._row_of[client] for client in some])
            vectors = {
                name: matrix[rows.to(self._device)].float().cpu().numpy() for name, matrix in self._matrices.items()
            }
            for at, client in enumerate(some):
                own: dict[str, Any] = {name: stack[at] for name, stack in vectors.items()}
                self._store.put(client, ClientState(**own, steps=int(self._steps[self._row_of[client]])))
        self._changed.difference_update(left)

    def _zeros(self, rows: int) -> torch.Tensor:
        return torch.zeros((rows, self._size), device=self._device, dtype=self._dtype)

    def _grow(self, needed: int) -> None:
        have = self._steps.size
        if needed <= have:
            return
        capacity = max(needed, min(self._most, 2 * have))
        self._steps = np.concatenate([self._steps, np.zeros(capacity - have, dtype=np.int64)])
        for name, matrix in self._matrices.items():
            self._matrices[name] = self._zeros(capacity)
            self._matrices[name][:have] = matrix


def gpu_rows(row_bytes: int, clients: int, device: torch.device, *, share: float = ROWS_SHARE) -> int:
    """Return for how many of the clients a share of a GPU's memory has room; other devices have room for all."""
    if device.type != "cuda" or not row_bytes:
        return clients
    return min(clients, max(1, int(share * torch.cuda.mem_get_info(device)[1] / row_bytes)))


def _state(matrices: Mapping[str, torch.Tensor], row: int, steps: int) -> ClientState:
    vectors: dict[str, Any] = {name: matrix[row].float().cpu().numpy() for name, matrix in matrices.items()}
    return ClientState(**vectors, steps=steps)


def _nothing() -> None:
    return None


def _on_host(rows: Rows) -> Any:
    return rows if isinstance(rows, slice) else rows.cpu().numpy()
