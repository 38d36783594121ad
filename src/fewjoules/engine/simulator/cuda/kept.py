"""State of clients on a GPU: rows of a few matrices, allocated when a client first takes part."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from fewjoules.arrays import IntArray
from fewjoules.engine.algorithm.saved import BLOCK_BYTES, SavedTensor
from fewjoules.engine.algorithm.state import ClientState

Rows = slice | torch.Tensor  # a slice where rows are neighbours, so that they need no copy


class KeptRows:
    """One matrix for each kept vector, with rows for the clients that took part so far, at most ``clients``."""

    def __init__(self, names: tuple[str, ...], size: int, clients: int, device: torch.device) -> None:
        """Allocate nothing yet."""
        self.names, self._clients = names, clients
        self._matrices = {name: torch.zeros((0, size), device=device) for name in names}
        self._device, self._size = device, size
        self._row_of: dict[int, int] = {}
        self._steps = np.zeros(0, dtype=np.int64)

    def rows(self, clients: IntArray) -> Rows:
        """Return the rows of these clients; new clients get new rows."""
        for client in clients.tolist():
            self._row_of.setdefault(client, len(self._row_of))
        self._grow(len(self._row_of))
        found = np.array([self._row_of[client] for client in clients.tolist()])
        if np.array_equal(found, np.arange(found[0], found[0] + found.size)):
            return slice(int(found[0]), int(found[0]) + found.size)
        return torch.from_numpy(found).to(self._device)

    def take(self, name: str, rows: Rows) -> torch.Tensor:
        """Return rows of a matrix: a view if they are neighbours, else a copy."""
        return self._matrices[name][rows]

    def put(self, name: str, rows: Rows, values: torch.Tensor) -> None:
        """Write rows of a matrix; a view that was changed in place needs no copy."""
        target = self._matrices[name]
        if not isinstance(rows, slice) or target[rows].data_ptr() != values.data_ptr():
            target[rows] = values

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
            return None
        vectors: dict[str, Any] = {name: matrix[row].cpu().numpy() for name, matrix in self._matrices.items()}
        return ClientState(**vectors, steps=int(self._steps[row]))

    def save(self) -> dict[str, SavedTensor]:
        """Return one row for each client that took part, in the order of their numbers."""
        clients = sorted(self._row_of)
        rows = torch.tensor([self._row_of[client] for client in clients], dtype=torch.int64)
        tensors = {
            "numbers": SavedTensor.of(torch.tensor(clients, dtype=torch.int64)),
            "steps": SavedTensor.of(torch.from_numpy(self._steps)[rows]),
        }
        return tensors | {name: self._saved(name, rows) for name in (self.names if clients else ())}

    def _saved(self, name: str, rows: torch.Tensor) -> SavedTensor:
        matrix = self._matrices[name]
        at_a_time = max(1, BLOCK_BYTES // (matrix.element_size() * self._size))

        def blocks() -> Iterator[torch.Tensor]:
            return (matrix[some.to(self._device)].cpu() for some in rows.split(at_a_time))

        return SavedTensor((rows.numel(), self._size), matrix.dtype, blocks)

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the client states that ``save`` returned."""
        clients = tensors["numbers"].tolist()
        self._row_of = {client: row for row, client in enumerate(clients)}
        self._steps = tensors["steps"].cpu().numpy().copy()
        for name in self.names:
            empty = torch.zeros((0, self._size), device=self._device)
            self._matrices[name] = tensors[name].to(self._device) if clients else empty

    def _grow(self, needed: int) -> None:
        have = self._steps.size
        if needed <= have:
            return
        capacity = min(self._clients, max(needed, 2 * have))
        self._steps = np.concatenate([self._steps, np.zeros(capacity - have, dtype=np.int64)])
        for name, matrix in self._matrices.items():
            self._matrices[name] = torch.zeros((capacity, self._size), device=self._device)
            self._matrices[name][:have] = matrix


def _on_host(rows: Rows) -> Any:
    return rows if isinstance(rows, slice) else rows.cpu().numpy()
