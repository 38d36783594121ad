"""Mini-batches: at every local step each client draws distinct samples from its own data, uniformly.

A draw depends on (key, client, step) alone, never on other clients, chunks or earlier draws. The generator is
SplitMix64 [STEELE14]; a batch of b samples is the start of a Fisher-Yates shuffle, which is undone afterwards so that a
batch costs O(b) however large the data set is.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import IntArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def draw_batches(
    key: int, clients: IntArray, sizes: IntArray, first_step: int, batch_sizes: IntArray
) -> tuple[IntArray, NDArray[np.float32]]:
    """Draw sample numbers within each client's data, (steps, clients, largest batch), and their weights (float32).

    ``batch_sizes`` is (steps, clients). Weights are 1 / batch size; entries beyond a client's batch repeat its first
    sample with weight 0. A batch as large as the client's data is all of it, in order.
    """
    steps = batch_sizes.shape[0]
    shape = (steps, clients.size, int(batch_sizes.max()))
    numbers, weights = np.empty(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    _draw(np.uint64(key), clients, sizes, first_step, batch_sizes, np.arange(int(sizes.max())), numbers, weights)
    return numbers, weights


@numba.njit(cache=True, nogil=True)
def _mix(value):
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def _draw(key, clients, sizes, first_step, batch_sizes, order, numbers, weights):
    """Fill ``numbers`` and ``weights``; ``order`` holds 0, 1, 2, ... before and after."""
    # element by element: assignments to slices would take numba three times as long to compile
    swaps = np.empty(numbers.shape[2], dtype=np.int64)
    for step in range(batch_sizes.shape[0]):
        for row in range(clients.size):
            size, wanted = sizes[row], batch_sizes[step, row]
            swapped = 0 if wanted == size else wanted
            state = _mix(_mix(key + _GOLDEN * np.uint64(clients[row] + 1)) + _GOLDEN * np.uint64(first_step + step + 1))
            for i in range(swapped):
                state += _GOLDEN
                # the high word of a 32 x 32 bit product: uniform below size to within size / 2^32
                other = i + np.int64((_mix(state) >> np.uint64(32)) * np.uint64(size - i) >> np.uint64(32))
                swaps[i] = other
                order[i], order[other] = order[other], order[i]
            weight = np.float32(1.0) / np.float32(wanted)
            for i in range(numbers.shape[2]):
                numbers[step, row, i] = order[i] if i < wanted else order[0]
                if i < wanted:
                    weights[step, row, i] = weight
            for i in range(swapped - 1, -1, -1):
                order[i], order[swaps[i]] = order[swaps[i]], order[i]
