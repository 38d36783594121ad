"""A round for each client, in an array that looks as if it never changed: changing some entries costs only those."""

from typing import Any

import numpy as np

from fewjoules.arrays import IntArray


class LastRounds:
    """Rounds of all clients, (clients,). ``with_round`` returns others and leaves these as they are.

    The newest has the array. An older one has what differs from the next newer one [BAKER91], so that it can be read,
    slowly, as long as somebody keeps it. A copy for every round would take longer than the rest of what a server does
    in a round of few among a million clients.
    """

    __slots__ = ("_array", "_clients", "_newer", "_rounds")

    def __init__(self, rounds: IntArray) -> None:
        """Take the array, which nobody else may change."""
        self._array: IntArray | None = rounds
        self._clients: IntArray = rounds[:0]
        self._rounds: IntArray = rounds[:0]
        self._newer: LastRounds | None = None

    def __getitem__(self, clients: Any) -> Any:
        """Return the rounds of some clients."""
        return (self._rebuilt() if self._array is None else self._array)[clients]

    def __len__(self) -> int:
        """Number of clients."""
        return len(self._rebuilt() if self._array is None else self._array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> IntArray:
        """Return a copy of all rounds."""
        found = self._rebuilt() if self._array is None else self._array.copy()
        return found if dtype is None else found.astype(dtype)

    def with_round(self, clients: IntArray, number: int) -> "LastRounds":
        """Return the rounds with ``number`` in place of those of some clients."""
        if self._array is None:
            return LastRounds(self._rebuilt()).with_round(clients, number)
        newer = LastRounds(self._array)
        self._clients, self._rounds, self._newer = clients, self._array[clients], newer
        self._array[clients] = number
        self._array = None
        return newer

    def _rebuilt(self) -> IntArray:
        older, one = [], self
        while one._array is None:
            older.append(one)
            assert one._newer is not None
            one = one._newer
        rounds: IntArray = np.array(one._array)
        for one in reversed(older):
            rounds[one._clients] = one._rounds
        return rounds
