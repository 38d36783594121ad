"""The weighted mean of many sparse updates, without a dense vector for each.

Positions are sorted, so the mean is computed tile by tile: a tile stays in the second-level cache while every update
adds its entries to it. Sums are float64, in the order of the updates.
"""

from collections.abc import Sequence

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import ArrayLike, NDArray

from fewjoules.arrays import FloatArray
from fewjoules.codec.threads import threads
from fewjoules.codec.update import SparseUpdate
from fewjoules.cores import CORES
from fewjoules.errors import InvalidInputError, require_array

_TILE = 1 << 16  # float64 sums of 512 KiB


def mean_of_updates(updates: Sequence[SparseUpdate], *, weights: ArrayLike | None = None) -> NDArray[np.float32]:
    """Return the weighted mean of updates of the same size as a dense float32 vector, shape (size,).

    Args:
        updates: At least one update.
        weights: One for each update; equal by default.

    Raises:
        InvalidInputError: There is no update, or sizes or weights do not fit.
    """
    shares = _checked(updates, weights)
    if not shares.sum() > 0.0:
        raise InvalidInputError(f"weights must have a positive sum, got {shares.sum():g}")
    return _weighted_sum(updates, shares / shares.sum())


def sum_of_updates(updates: Sequence[SparseUpdate], *, weights: ArrayLike) -> NDArray[np.float32]:
    """Return the sum of the updates, each multiplied by its weight, as a dense vector."""
    return _weighted_sum(updates, _checked(updates, weights))


def _checked(updates: Sequence[SparseUpdate], weights: ArrayLike | None) -> FloatArray:
    """Return one weight for each update; refuse updates of different sizes."""
    if not updates:
        raise InvalidInputError("updates must have at least one entry")
    size = updates[0].size
    for i, update in enumerate(updates):
        if update.size != size:
            raise InvalidInputError(
                f"all updates must have the size {size} of the first, got {update.size} for number {i}"
            )
    shares = np.ones(len(updates)) if weights is None else require_array("weights", weights)
    if shares.shape != (len(updates),):
        raise InvalidInputError(f"weights must have one entry for each of {len(updates)} updates, got {shares.shape}")
    return shares


def _weighted_sum(updates: Sequence[SparseUpdate], shares: FloatArray) -> NDArray[np.float32]:
    size = updates[0].size
    mean = np.empty(size, dtype=np.float32)
    arguments = (
        np.array([update.positions.ctypes.data for update in updates], dtype=np.uint64),
        np.array([update.values.ctypes.data for update in updates], dtype=np.uint64),
        np.array([update.count for update in updates], dtype=np.int64),
        shares,
    )
    tiles = -(-size // _TILE)
    edges = [min(size, tiles * part // CORES * _TILE) for part in range(CORES)] + [size]
    list(
        threads().map(
            lambda part: _aggregate(*arguments, edges[part], mean[edges[part] : edges[part + 1]]), range(CORES)
        )
    )
    return mean


def add_updates(
    sums: NDArray[np.float64], updates: Sequence[SparseUpdate], shares: NDArray[np.float64], first: int = 0
) -> None:
    """Add the updates, times their shares, to ``sums`` in place and in order.

    ``sums`` are those of the entries from ``first`` on. If they start at zero and are rounded to float32 in the end,
    they are those of ``mean_of_updates``, however updates and entries are divided over calls.
    """
    for update, share in zip(updates, shares, strict=True):
        if update.size < first + sums.size:
            raise InvalidInputError(f"updates must have at least {first + sums.size} entries, got {update.size}")
        _add(sums, update.positions, update.values, share, first)


@numba.njit(cache=True, nogil=True)
def _add(sums, positions, values, share, first):
    """Add one update to the sums of the entries from ``first`` on."""
    start, end = np.searchsorted(positions, first), np.searchsorted(positions, first + sums.size)
    for i in range(start, end):
        sums[positions[i] - first] += share * values[i]


@intrinsic
def _pointer(context, address):
    """Turn an address into a pointer, so that arrays of arrays need no copy."""

    def generate(_context, builder, _signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@numba.njit(cache=True, nogil=True)
def _aggregate(position_addresses, value_addresses, counts, shares, first, mean):
    """Compute the part of the mean that starts at position ``first``."""
    done = np.zeros(counts.size, dtype=np.int64)
    sums = np.empty(_TILE, dtype=np.float64)
    for update in range(counts.size):
        positions = numba.carray(_pointer(position_addresses[update]), (counts[update],), np.int64)
        done[update] = np.searchsorted(positions, first)
    for tile in range(0, mean.size, _TILE):
        part = mean[tile : tile + _TILE]
        start, end = first + tile, first + tile + part.size
        sums[:] = 0.0
        for update in range(counts.size):
            positions = numba.carray(_pointer(position_addresses[update]), (counts[update],), np.int64)
            values = numba.carray(_pointer(value_addresses[update]), (counts[update],), np.float32)
            i, share = done[update], shares[update]
            while i < counts[update] and positions[i] < end:
                sums[positions[i] - start] += share * values[i]
                i += 1
            done[update] = i
        for i in range(part.size):
            part[i] = sums[i]
