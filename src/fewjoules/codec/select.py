"""Top-k with error feedback at memory speed, on the processor.

One pass adds the residual to the update and collects every entry whose magnitude reaches a threshold guessed from a
sample, a little below the k-th largest; the k-th magnitude is then found exactly among those few. Magnitudes are
compared as integers, the bits of a float32 without its sign, which have the same order.
"""

from collections.abc import Sequence

import numba
import numpy as np

from fewjoules.arrays import Floats, IntArray
from fewjoules.codec.threads import threads
from fewjoules.codec.update import SparseUpdate
from fewjoules.cores import CORES
from fewjoules.errors import InvalidInputError, require_integer

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_INFINITY = np.uint32(0x7F800000)
_TILE = 4096  # entries that stay in the first-level cache between addition and search
_RUN = 32  # neighbours in the sample
_PARALLEL_FROM = 1 << 20


def top_k_with_feedback(
    update: Floats, residual: Floats, k: int, *, out: Floats | None = None
) -> tuple[SparseUpdate, Floats]:
    """Send the k entries of ``update + residual`` that are largest in magnitude; ties go to the lowest position.

    Args:
        update: What was learned since the last message, float32, shape (size,).
        residual: What was not sent before, float32, shape (size,).
        k: Number of entries to send, 0 to size.
        out: Where the new residual is written, which may be ``residual`` itself; by default a new array.

    Returns:
        The update to send, and the new residual; their sum is ``update + residual``.

    Raises:
        InvalidInputError: Shapes or types do not fit, or a number is NaN; ``out`` is then invalid.
    """
    require_pair(update, residual)
    size = update.size
    if out is not None:
        require_pair(update, out, "out")
    require_integer("k", k, low=0, high=size)
    left = residual.copy() if out is None else out
    if left is not residual:
        np.copyto(left, residual)
    positions, values = _gather(update, left, _guess(update, residual, k))
    if positions.size < k:
        positions = np.arange(size) if k > size // 4 else _reaching(left, _histogram_threshold(left, k))
        values = left[positions]
    return SparseUpdate.trusted(size, *_take(left, positions, values, k)), left


def top_k_of_clients(
    updates: Floats, residuals: Floats, counts: Sequence[int], *, out: Floats | None = None
) -> tuple[list[SparseUpdate], Floats]:
    """Apply ``top_k_with_feedback`` to each row of (clients, size) stacks, each with its own k."""
    if updates.ndim != 2 or residuals.shape != updates.shape or len(counts) != updates.shape[0]:
        raise InvalidInputError(
            f"updates and residuals must be (clients, size) with one k per client, got shapes {updates.shape} and "
            f"{residuals.shape} with {len(counts)} counts"
        )
    left = residuals.copy() if out is None else out
    if left is not residuals:
        np.copyto(left, residuals)
    rows = zip(updates, left, counts, strict=True)
    return [top_k_with_feedback(update, row, int(k), out=row)[0] for update, row, k in rows], left


def require_pair(update: Floats, other: Floats, name: str = "residual") -> None:
    """Refuse anything but two contiguous float32 vectors of the same size."""
    _require_vector("update", update)
    _require_vector(name, other)
    if other.size != update.size:
        raise InvalidInputError(f"{name} must have update's {update.size} entries, got {other.size}")


def _require_vector(name: str, array: Floats) -> None:
    if (
        not isinstance(array, np.ndarray)
        or array.dtype != np.float32
        or array.ndim != 1
        or not array.flags.c_contiguous
    ):
        shape = getattr(array, "shape", None)
        kind = getattr(array, "dtype", type(array).__name__)
        raise InvalidInputError(f"{name} must be a contiguous float32 vector, got {kind} of shape {shape}")


def _guess(update: Floats, residual: Floats, k: int) -> np.uint32:
    """Return a magnitude that a few more than k entries reach, with high probability."""
    size = update.size
    if k == 0:
        return _MAGNITUDE
    runs = min(4096, size // (32 * _RUN))
    if runs < 16:
        return np.uint32(0)
    sums = np.empty(runs * _RUN, dtype=np.float32)
    _take_sample(update, residual, size // runs, sums)
    sample = sums.view(np.uint32) & _MAGNITUDE
    expected = sample.size * k / size
    rank = int(expected + 4.0 * np.sqrt(expected) + 4.0)
    if rank >= sample.size:
        return np.uint32(0)
    return np.uint32(np.partition(sample, sample.size - rank)[sample.size - rank])


@numba.njit(cache=True, nogil=True)
def _take_sample(update, residual, stride, sample):
    """Sample update + residual in runs of neighbours, one run every ``stride`` entries."""
    for run in range(sample.size // _RUN):
        for i in range(_RUN):
            sample[run * _RUN + i] = update[run * stride + i] + residual[run * stride + i]


def _gather(update: Floats, left: Floats, threshold: np.uint32) -> tuple[IntArray, Floats]:
    """Add the update to ``left``; return the sorted positions and values whose magnitude reaches the threshold."""
    size = update.size
    parts = CORES if size >= _PARALLEL_FROM else 1
    edges = [size * i // parts // _TILE * _TILE for i in range(parts)] + [size]

    def work(part: int) -> tuple[IntArray, Floats]:
        low, high = edges[part], edges[part + 1]
        positions, values = np.empty(high - low, dtype=np.int64), np.empty(high - low, dtype=np.float32)
        sums = left[low:high]
        count = _add_and_gather(update[low:high], sums, sums.view(np.uint32), low, threshold, positions, values)
        if count < 0:
            raise InvalidInputError(f"update + residual must not hold NaN, got one at position {-count - 1}")
        return positions[:count], values[:count]

    if parts == 1:
        return work(0)
    found = list(threads().map(work, range(parts)))
    return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])


@numba.njit(cache=True, nogil=True)
def _add_and_gather(update, left, bits, offset, threshold, positions, values):
    """Add and gather one part in one pass; return how many entries were found, or -1 - position of a NaN.

    Slices keep the indices of the inner loops non-negative, so that they are vectorised. Flags are tested eight at a
    time, since most words of them are zero.
    """
    count = 0
    flags = np.zeros(_TILE, dtype=np.uint8)
    words = flags.view(np.uint64)
    for tile in range(0, update.size, _TILE):
        added, sums, magnitudes = update[tile : tile + _TILE], left[tile : tile + _TILE], bits[tile : tile + _TILE]
        for i in range(added.size):
            sums[i] += added[i]
        for i in range(magnitudes.size):
            flags[i] = (magnitudes[i] & _MAGNITUDE) >= threshold
        flags[magnitudes.size :] = 0
        for word in range(words.size):
            if words[word] != 0:
                for i in range(8 * word, 8 * word + 8):
                    if flags[i] != 0:
                        if (magnitudes[i] & _MAGNITUDE) > _INFINITY:
                            return -1 - (offset + tile + i)
                        positions[count] = offset + tile + i
                        values[count] = sums[i]
                        count += 1
    return count


def _histogram_threshold(left: Floats, k: int) -> np.uint32:
    """Return the largest multiple of 2^16 that at least k magnitudes reach, for vectors that mislead the sample."""
    counts = np.bincount((left.view(np.uint32) & _MAGNITUDE) >> 16, minlength=1 << 15)
    reaching = np.cumsum(counts[::-1])[::-1]
    return np.uint32(int(np.flatnonzero(reaching >= k)[-1]) << 16)


def _reaching(left: Floats, threshold: np.uint32) -> IntArray:
    return np.flatnonzero((left.view(np.uint32) & _MAGNITUDE) >= threshold)


def _take(left: Floats, positions: IntArray, values: Floats, k: int) -> tuple[IntArray, Floats]:
    """Return the k candidates of largest magnitude, sorted by position, ties to the first; clear them in ``left``."""
    kept_positions, kept_values = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.float32)
    if k:
        magnitudes = values.view(np.uint32) & _MAGNITUDE
        smallest = np.partition(magnitudes, magnitudes.size - k)[magnitudes.size - k]
        ties = k - int(np.count_nonzero(magnitudes > smallest))
        _keep(positions, values, magnitudes, smallest, ties, kept_positions, kept_values)
        parts = CORES if left.size >= _PARALLEL_FROM else 1
        spans = np.array_split(kept_positions, parts)  # entries are far apart in memory; threads share the waiting
        if parts == 1:
            _clear(left, kept_positions)
        else:
            list(threads().map(lambda span: _clear(left, span), spans))
    return kept_positions, kept_values


@numba.njit(cache=True, nogil=True)
def _keep(positions, values, magnitudes, smallest, ties, kept_positions, kept_values):
    """Copy the entries above ``smallest`` and the first ``ties`` entries that equal it."""
    kept = 0
    for i in range(magnitudes.size):
        equal = magnitudes[i] == smallest
        if magnitudes[i] > smallest or (equal and ties > 0):
            ties -= equal
            kept_positions[kept] = positions[i]
            kept_values[kept] = values[i]
            kept += 1


@numba.njit(cache=True, nogil=True)
def _clear(left, positions):
    for i in range(positions.size):
        left[np.uint64(positions[i])] = 0.0
