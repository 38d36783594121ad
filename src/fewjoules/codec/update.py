"""A sparse update: which entries of a long vector were kept, and their values."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import IntArray
from fewjoules.errors import InvalidInputError

MAX_SIZE = 2**40


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SparseUpdate:
    """A vector of which only some entries are not zero.

    Args:
        size: Number of entries of the whole vector.
        positions: Where the entries are, from 0, increasing; int64, shape (count,).
        values: The entries, float32, shape (count,).

    Raises:
        InvalidInputError: Positions are not increasing or outside the vector, or types and shapes do not fit.
    """

    size: int
    positions: IntArray
    values: NDArray[np.float32]

    def __post_init__(self) -> None:
        """Convert the arrays to their types and refuse those that do not fit together."""
        if isinstance(self.size, bool) or not isinstance(self.size, int | np.integer) or not 0 <= self.size <= MAX_SIZE:
            raise InvalidInputError(f"size must be a whole number from 0 to {MAX_SIZE}, got {self.size!r}")
        positions, values = _vector("positions", self.positions, np.int64), _vector("values", self.values, np.float32)
        if positions.size != values.size:
            raise InvalidInputError(f"values must be as many as positions ({positions.size}), got {values.size}")
        if positions.size and (positions[0] < 0 or positions[-1] >= self.size):
            raise InvalidInputError(
                f"positions must be from 0 to size - 1 = {self.size - 1}, got {positions[0]} to {positions[-1]}"
            )
        if positions.size > 1 and not np.all(positions[1:] > positions[:-1]):
            entry = int(np.argmin(positions[1:] > positions[:-1]))
            raise InvalidInputError(
                f"positions must be strictly increasing, got {positions[entry]} before {positions[entry + 1]}"
            )
        object.__setattr__(self, "size", int(self.size))
        object.__setattr__(self, "positions", positions)
        object.__setattr__(self, "values", values)

    @classmethod
    def trusted(cls, size: int, positions: IntArray, values: NDArray[np.float32]) -> "SparseUpdate":
        """Make an update without checks, from arrays that are known to be valid."""
        update = object.__new__(cls)
        for name, value in (("size", size), ("positions", positions), ("values", values)):
            object.__setattr__(update, name, value)
        return update

    @property
    def count(self) -> int:
        """k, the number of entries kept."""
        return int(self.positions.size)

    def __eq__(self, other: object) -> bool:
        """Compare to the bit: -0.0 differs from 0.0, and a NaN equals itself."""
        if not isinstance(other, SparseUpdate):
            return NotImplemented
        return (
            self.size == other.size
            and np.array_equal(self.positions, other.positions)
            and np.array_equal(self.values.view(np.uint32), other.values.view(np.uint32))
        )

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def to_dense(self) -> NDArray[np.float32]:
        """Return the dense vector, zero where nothing was kept; shape (size,)."""
        dense = np.zeros(self.size, dtype=np.float32)
        dense[self.positions] = self.values
        return dense


def _vector(name: str, array: Any, kind: type[np.generic]) -> NDArray[Any]:
    """Return a contiguous vector of the type; refuse a conversion that could lose anything."""
    given = np.asarray(array)
    if given.size == 0:
        return np.zeros(0, dtype=kind)
    if given.ndim != 1 or given.dtype == np.bool_ or not np.can_cast(given.dtype, kind, casting="safe"):
        raise InvalidInputError(
            f"{name} must be a vector of {np.dtype(kind).name}, got {given.dtype.name} of shape {given.shape}"
        )
    return np.ascontiguousarray(given, dtype=kind)
