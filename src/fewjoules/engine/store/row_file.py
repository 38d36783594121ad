"""Rows of equal length in a file: written by calls, read through a memory map; rows that nobody needs are overwritten.

A full disk under a mapped write is a signal that kills the process, while a call returns an error; so only reading
uses the map.
"""

import errno
import mmap
import os
import tempfile
import threading
import weakref
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

Vectors = tuple[NDArray[Any], ...]


class RowFile:
    """Slots for rows of ``vectors`` vectors of ``size`` entries; a slot is free unless a row or a checkpoint has it.

    The file is closed when neither its owner nor any row refers to it any more.
    """

    path: Path
    vectors: int
    size: int
    dtype: np.dtype[Any]
    row_bytes: int

    def __init__(
        self, stream: BinaryIO, path: Path, vectors: int, size: int, dtype: np.dtype[Any], slots: int = 0
    ) -> None:
        """Use an open, unbuffered stream with so many ``slots``; errors name ``path``."""
        self.path, self.vectors, self.size, self.dtype = path, vectors, size, dtype
        self.row_bytes = vectors * size * dtype.itemsize
        self._stream, self._slots = stream, slots
        self._free: list[int] = []
        self._holders: dict[weakref.ref[Any], int] = {}  # rows in memory, and the slots that they refer to
        self._gone: deque[weakref.ref[Any]] = deque()  # of these rows, those that nobody has any more
        self._note_gone = self._gone.append
        self._pinned: set[int] = set()
        self._map: mmap.mmap | None = None
        self._lock = threading.RLock()
        weakref.finalize(self, stream.close)

    @classmethod
    def temporary(cls, folder: Path | None, vectors: int, size: int, dtype: np.dtype[Any]) -> "RowFile":
        """Make a file without a name in a folder; whatever happens, nothing of it stays."""
        stream: Any = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed with its last row
        return cls(stream, Path(folder or tempfile.gettempdir()), vectors, size, dtype)

    @classmethod
    def create(cls, path: Path, vectors: int, size: int, dtype: np.dtype[Any]) -> "RowFile":
        """Make a new file; an existing one is refused."""
        stream: Any = path.open("x+b", buffering=0)
        return cls(stream, path, vectors, size, dtype)

    @classmethod
    def reopen(cls, path: Path, vectors: int, size: int, dtype: np.dtype[Any], pinned: Iterable[int]) -> "RowFile":
        """Open the file of a checkpoint that has the ``pinned`` slots; the others are free."""
        stream: Any = path.open("r+b", buffering=0)
        kept = set(pinned)
        file = cls(stream, path, vectors, size, dtype, slots=1 + max(kept, default=-1))
        file._pinned = kept
        file._free = sorted(set(range(file._slots)) - kept, reverse=True)
        return file

    @property
    def slots(self) -> int:
        """How many slots the file has, free ones included."""
        return self._slots

    def write(self, row: Sequence[NDArray[Any]]) -> tuple[int, int]:
        """Write a row into a free slot, to be held by it; return the slot and the CRC-32 of the row."""
        with self._lock:
            self._free_gone()
            slot = self._free.pop() if self._free else self._slots
            try:
                checksum = self._write(slot, row)
            except BaseException:
                if slot < self._slots:
                    self._free.append(slot)
                raise
            self._slots = max(self._slots, slot + 1)
            return slot, checksum

    def read(self, slot: int) -> Vectors:
        """Return a copy of a row."""
        with self._lock:
            return tuple(np.array(vector) for vector in self._view(slot))

    def checksum(self, slot: int) -> int | None:
        """CRC-32 of the bytes in a slot; None where the file ends before it."""
        with self._lock:
            if os.fstat(self._stream.fileno()).st_size < (slot + 1) * self.row_bytes:
                return None
            return zlib.crc32(np.ascontiguousarray(self._view(slot)).tobytes())

    def hold(self, row: object, slot: int) -> None:
        """Note that a row in memory refers to a slot, until it is released or nobody has it any more."""
        with self._lock:
            self._holders[weakref.ref(row, self._note_gone)] = slot

    def release(self, row: object) -> None:
        """Note that a row in memory refers to its slot no longer."""
        with self._lock:
            self._free_slot_of(weakref.ref(row))

    def pin(self, slots: Iterable[int]) -> None:
        """Never overwrite these slots, which a checkpoint has, until others are pinned in their place."""
        with self._lock:
            self._free_gone()
            before, self._pinned = self._pinned, set(slots)
            self._free += sorted(before - self._pinned - set(self._holders.values()), reverse=True)

    def sync(self) -> None:
        """Wait until all rows are on the disk."""
        try:
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise self._named(error) from error

    def _free_gone(self) -> None:
        while self._gone:
            self._free_slot_of(self._gone.popleft())

    def _free_slot_of(self, row: weakref.ref[Any]) -> None:
        slot = self._holders.pop(row)
        if slot not in self._pinned:
            self._free.append(slot)

    def _write(self, slot: int, row: Sequence[NDArray[Any]]) -> int:
        checksum = 0
        try:
            self._stream.seek(slot * self.row_bytes)
            for vector in row:
                data = np.ascontiguousarray(vector).view(np.uint8).data
                checksum = zlib.crc32(data, checksum)
                while data.nbytes:
                    written = self._stream.write(data)
                    if not written:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    data = data[written:]
        except OSError as error:
            raise self._named(error) from error
        return checksum

    def _view(self, slot: int) -> NDArray[Any]:
        if not self.row_bytes:
            return np.zeros((self.vectors, self.size), self.dtype)
        end = (slot + 1) * self.row_bytes
        if self._map is None or len(self._map) < end:
            self._map = mmap.mmap(self._stream.fileno(), 0, access=mmap.ACCESS_READ)
        entries = np.frombuffer(self._map, self.dtype, self.vectors * self.size, slot * self.row_bytes)
        return entries.reshape(self.vectors, self.size)

    def _named(self, error: OSError) -> OSError:
        return error if error.errno is None else OSError(error.errno, error.strerror, str(self.path))
