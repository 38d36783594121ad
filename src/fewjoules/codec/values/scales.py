"""Scales that blocks of values share, and sums over blocks that come out alike everywhere."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import FloatArray
from fewjoules.codec.values.kind import Floats
from fewjoules.errors import CorruptPayloadError, InvalidInputError

Number = TypeVar("Number", bound=np.generic)

BLOCK = 1024  # values that share a scale


def block_count(count: int) -> int:
    """Blocks of so many values; the last one may be short."""
    return -(-count // BLOCK)


def over_values(scales: NDArray[Number], count: int) -> NDArray[Number]:
    """For each of ``count`` values the scale of its block."""
    return np.repeat(scales, BLOCK)[:count]


def in_blocks(numbers: FloatArray) -> FloatArray:
    """The numbers, one row a block, zeros where the last block is short; (blocks, ``BLOCK``)."""
    rows = np.zeros((block_count(numbers.size), BLOCK))
    rows.ravel()[: numbers.size] = numbers
    return rows


def sums_by_halves(rows: FloatArray) -> FloatArray:
    """The sum of each row of (blocks, ``BLOCK``), in an order that other array libraries can repeat to the bit."""
    half = rows.shape[1]
    while half > 1:
        half //= 2
        rows = rows[:, :half] + rows[:, half:]
    return rows[:, 0]


def block_norms(values: Floats) -> Floats:
    """Euclidean norm of each block, rounded up to float32 so that no level exceeds the number of levels."""
    squares = sums_by_halves(in_blocks(np.square(values, dtype=np.float64)))
    with np.errstate(over="ignore"):
        norms = np.sqrt(squares).astype(np.float32)
    return np.where(norms.astype(np.float64) ** 2 < squares, np.nextafter(norms, np.float32(np.inf)), norms)


def require_finite(values: Floats, kind: str) -> None:
    """Refuse values whose scale would not be a number."""
    finite = np.isfinite(values)
    if not finite.all():
        entry = int(np.argmin(finite))
        raise InvalidInputError(f"values must be finite to be sent as {kind}, got {values[entry]} at entry {entry}")


def read_scales(side: memoryview) -> Floats:
    """The float32 scales that side information holds; an encoder writes finite ones of at least 0."""
    scales = np.frombuffer(side, dtype="<f4").astype(np.float32)
    wrong = ~np.isfinite(scales) | np.signbit(scales)
    if wrong.any():
        found = scales[int(np.argmax(wrong))]
        raise CorruptPayloadError(f"the scales of the values must be finite and at least 0, got {found}")
    return scales
