"""One row of the store: what a client kept after some round.

A row has no ``__del__``: Python drops a Ctrl-C that comes while one runs. Its memory and its slot know it by weak
references, whose callbacks are methods written in C, and no signal is handled inside those.
"""

from collections import OrderedDict
from typing import Any
from weakref import ref

from fewjoules.engine.store.row_file import RowFile, Vectors

Resident = OrderedDict["ref[Row]", None]  # rows with their vectors in memory, the least recently used first


class Row:
    """What one client kept after some round, which never changes: in memory, in a file, or in both."""

    __slots__ = ("__weakref__", "_resident", "checksum", "file", "slot", "steps", "vectors")
    steps: int
    vectors: Vectors | None
    slot: int
    checksum: int

    def __init__(self, steps: int, vectors: Vectors | None) -> None:
        """Take ``vectors``, which nobody may change any more."""
        self.steps, self.vectors = steps, vectors
        self.file: RowFile | None = None
        self.slot, self.checksum = -1, 0
        self._resident: Resident | None = None

    @classmethod
    def in_file(cls, steps: int, file: RowFile, slot: int, checksum: int) -> "Row":
        """Return a row that is in a file already."""
        row = cls(steps, None)
        row.file, row.slot, row.checksum = file, slot, checksum
        file.hold(row, slot)
        return row

    def copied(self) -> Vectors:
        """Return copies of the vectors."""
        if self.vectors is not None:
            return tuple(vector.copy() for vector in self.vectors)
        assert self.file is not None
        return self.file.read(self.slot)

    def note_in(self, resident: Resident) -> None:
        """Enter the row as the one used last; it leaves when it is gone."""
        self._resident = resident
        resident[ref(self, resident.__delitem__)] = None

    def used(self) -> None:
        """Note that the row was read."""
        if self._resident is not None and ref(self) in self._resident:
            self._resident.move_to_end(ref(self))

    def move_to(self, file: RowFile) -> None:
        """Write the row to this file, unless it is there, and leave another file that it was in."""
        before = self.file
        if before is file:
            return
        slot, checksum = file.write(self.vectors if self.vectors is not None else self.copied())
        file.hold(self, slot)
        self.file, self.slot, self.checksum = file, slot, checksum
        if before is not None:
            before.release(self)

    def spill_to(self, file: RowFile) -> None:
        """Free the memory of the vectors; they are written to this file unless they are in one."""
        if self.file is None:
            self.move_to(file)
        self.vectors = None
        self.leave_memory()

    def leave_memory(self) -> None:
        """Count no longer among the rows in memory."""
        if self._resident is not None:
            self._resident.pop(ref(self), None)
            self._resident = None

    def __reduce__(self) -> Any:
        """Refuse to be pickled or copied: two rows must not own one slot."""
        raise TypeError("a row of the store cannot be copied")
