"""Bring what clients of all ranks keep to the first one, for a checkpoint: only rows that it does not have yet travel.

Rows never change, so each has a number by which its rank and the first one know it. What arrives goes to a file without
a name, one row at a time, so that memory does not grow with the number of clients.
"""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from fewjoules.engine.ranks import Ranks
from fewjoules.engine.store.client_store import DTYPES, ClientTable
from fewjoules.engine.store.row import Row
from fewjoules.engine.store.row_file import RowFile

Listing = list[list[list[int]]]  # client, number of its row and local steps, for each client of each table


class Gathering:
    """Remembers which rows the first rank has."""

    def __init__(self, ranks: Ranks, size: int, folder: Path | None = None) -> None:
        """Rows have vectors of ``size`` entries; those of other ranks wait in a file in ``folder``."""
        self._ranks, self._size, self._folder = ranks, size, folder
        self._numbers: WeakKeyDictionary[Row, int] = WeakKeyDictionary()
        self._next = itertools.count()
        self._sent: set[int] = set()
        self._received: dict[tuple[int, int], Row] = {}
        self._file: RowFile | None = None

    def tables(self, own: Sequence[ClientTable]) -> list[ClientTable]:
        """Return the tables with the clients of all ranks on the first one; every rank must call it."""
        listing = [] if self._ranks.is_first else [self._listed(table) for table in own]
        listings: list[Listing] = [json.loads(text) for text in self._ranks.texts(json.dumps(listing))]
        if not self._ranks.is_first:
            self._send(own, listing)
            return list(own)
        found = [dict(table.rows) for table in own]
        needed: dict[tuple[int, int], Row] = {}
        for rank, told in enumerate(listings):
            for place, entries in enumerate(told):
                for client, number, steps in entries:
                    key = rank, number
                    needed[key] = needed.get(key) or self._received.get(key) or self._receive(own[0], rank, steps)
                    found[place][client] = needed[key]
        self._received = needed
        return [ClientTable(own[0].names, own[0].values, rows) for rows in found]

    def _listed(self, table: ClientTable) -> list[list[int]]:
        for row in table.rows.values():
            if row not in self._numbers:
                self._numbers[row] = next(self._next)
        return [[client, self._numbers[row], row.steps] for client, row in table.rows.items()]

    def _send(self, own: Sequence[ClientTable], listing: Listing) -> None:
        """Send the rows that the first rank lacks, in the order of the listing."""
        sent: set[int] = set()
        for table, entries in zip(own, listing, strict=True):
            for client, number, _ in entries:
                if number not in self._sent and number not in sent:
                    for vector in table.rows[client].copied():
                        self._ranks.send(torch.from_numpy(vector), 0)
                sent.add(number)
        self._sent = sent

    def _receive(self, like: ClientTable, rank: int, steps: int) -> Row:
        dtype = DTYPES[like.values]
        vectors: tuple[NDArray[Any], ...] = tuple(np.zeros(self._size, dtype) for _ in like.names)
        for vector in vectors:
            self._ranks.receive(torch.from_numpy(vector), rank)
        row = Row(steps, vectors)
        if self._file is None:
            self._file = RowFile.temporary(self._folder, len(like.names), self._size, dtype)
        row.spill_to(self._file)
        return row
