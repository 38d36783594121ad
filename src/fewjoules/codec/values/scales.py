"""Scales of blocks of values, and sums over blocks that are the same to the bit on every machine."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import FloatArray, Floats
from fewjoules.errors import CorruptPayloadError, InvalidInputError

Number = TypeVar("Number", bound=np.generic)

BLOCK = 1024  # values that share a scale


def block_count(count: int) -> int:
    """Number of blocks for ``count`` values; the last one may be short."""
    return -(-count // BLOCK)


def over_values(scales: NDArray[Number], count: int) -> NDArray[Number]:
    """Return the scale of the block of each of ``count`` values."""
    return np.repeat(scales, BLOCK)[:count]


def in_blocks(numbers: FloatArray) -> FloatArray:
    """Return the numbers with one row per block, padded with zeros; (blocks, ``BLOCK``)."""
    rows = np.zeros((block_count(numbers.size), BLOCK))
    rows.ravel()[: numbers.size] = numbers
    return rows


def sums_by_halves(rows: FloatArray) -> FloatArray:
    """Sum each row of (blocks, ``BLOCK``) in an order that other array libraries can repeat to the bit."""
    half = rows.shape[1]
    while half > 1:
        half //= 2
        rows = rows[:, :half] + rows[:, half:]
    return rows[:, 0]


def block_norms(values: Floats) -> Floats:
    """Return the Euclidean norm of each block, rounded up to float32 so that no level exceeds the number of levels."""
    squares = sums_by_halves(in_blocks(np.square(values, dtype=np.float64)))
    with np.errstate(over="ignore"):
        norms = np.sqrt(squares).astype(np.float32)
    return np.where(norms.astype(np.float64) ** 2 < squares, np.nextafter(norms, np.float32(np.inf)), norms)


def require_finite(values: Floats, kind: str) -> None:
    """Refuse NaN and infinite values, whose block would have no finite scale."""
    finite = np.isfinite(values)
    if not finite.all():
        entry = int(np.argmin(finite))
        raise InvalidInputError(f"values must be finite to be sent as {kind}, got {values[entry]} at entry {entry}")


def read_scales(side: memoryview) -> Floats:
    """Read the float32 scales from side information; they must be finite and at least 0."""
    scales = np.frombuffer(side, dtype="<f4").astype(np.float32)
    wrong = ~np.isfinite(scales) | np.signbit(scales)
    if wrong.any():
        found = scales[int(np.argmax(wrong))]
        raise CorruptPayloadError(f"the scales of the values must be finite and at least 0, got {found}")
    return scales
