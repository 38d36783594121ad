"""One row of the store: what a client kept after some round."""

from collections import OrderedDict
from typing import Any
from weakref import ref

from fewjoules.engine.store.row_file import RowFile, Vectors

Resident = OrderedDict[int, "ref[Row]"]  # rows with their vectors in memory, the least recently used first


class Row:
    """What one client kept after some round, which never changes: in memory, in a file, or in both."""

    __slots__ = ("__weakref__", "_number", "_resident", "checksum", "file", "slot", "steps", "vectors")
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
        self._number = -1

    @classmethod
    def in_file(cls, steps: int, file: RowFile, slot: int, checksum: int) -> "Row":
        """Return a row that is in a file already."""
        row = cls(steps, None)
        row.file, row.slot, row.checksum = file, slot, checksum
        file.hold(slot)
        return row

    def copied(self) -> Vectors:
        """Return copies of the vectors."""
        if self.vectors is not None:
            return tuple(vector.copy() for vector in self.vectors)
        assert self.file is not None
        return self.file.read(self.slot)

    def note_in(self, resident: Resident, number: int) -> None:
        """Enter the row as the one used last, under a number of its own."""
        self._resident, self._number = resident, number
        resident[number] = ref(self)

    def used(self) -> None:
        """Note that the row was read."""
        if self._resident is not None and self._number in self._resident:
            self._resident.move_to_end(self._number)

    def move_to(self, file: RowFile) -> None:
        """Write the row to this file, unless it is there, and leave another file that it was in."""
        if self.file is file:
            return
        slot, checksum = file.write(self.vectors if self.vectors is not None else self.copied())
        self._leave_file()
        self.file, self.slot, self.checksum = file, slot, checksum

    def spill_to(self, file: RowFile) -> None:
        """Free the memory of the vectors; they are written to this file unless they are in one."""
        if self.file is None:
            self.move_to(file)
        self.vectors = None
        self.leave_memory()

    def __del__(self) -> None:
        """Free the memory and the slot."""
        self.leave_memory()
        self._leave_file()

    def leave_memory(self) -> None:
        """Count no longer among the rows in memory."""
        if self._resident is not None:
            self._resident.pop(self._number, None)
            self._resident = None

    def _leave_file(self) -> None:
        if self.file is not None:
            self.file.release(self.slot)
            self.file = None

    def __reduce__(self) -> Any:
        """Refuse to be pickled or copied: two rows must not own one slot."""
        raise TypeError("a row of the store cannot be copied")
