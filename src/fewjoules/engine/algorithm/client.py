"""FT-LSGD-DB, [LI21] Algorithm 1, as functions of state. A recorded GPU graph has line 6 in its own words.

With M clients, global weights w, local weights v_m, memories e_m (zero at first), step sizes eta_t, H local steps:

    line 4    b_t = floor(rho^t b_0)                        ``batch_sizes``
    line 6    v_m <- v_m - eta_t grad f_m(v_m; batch)       ``local_step``, at the local weights as in the appendix
    line 8    u_m = e_m + w - v_m                           ``compress``
    line 9    g_m = Top_k(u_m)
    line 10   e_m <- u_m - g_m                              and ``take_back`` where g_m was lost: e_m <- u_m
    line 20   g = sum_m p_m g_m, p_m = 1/M                  ``shares``, ``mean_update``
    line 21   w <- w - g

docs/training.md lists what differs from the printed algorithm and why.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.codec.aggregate import mean_of_updates
from fewjoules.codec.update import SparseUpdate

Floats = NDArray[np.float32]
Compressor = Callable[[Floats, Floats], tuple[SparseUpdate, Floats]]


def batch_sizes(first_step: int, steps: int, initial: int | None, growth: float, sizes: IntArray) -> IntArray:
    """b_t of line 4 at steps first_step, ..., capped by each client's data: (steps, clients). None: all data."""
    if initial is None:
        return np.tile(sizes, (steps, 1))
    largest = int(sizes.max())
    grown = [_grown(initial, growth, step, largest) for step in range(first_step, first_step + steps)]
    return np.minimum(np.array(grown, dtype=np.int64)[:, None], sizes[None, :])


def _grown(initial: int, growth: float, step: int, largest: int) -> int:
    if step * math.log(growth) > math.log(largest / initial) + 1.0:
        return largest
    return min(math.floor(growth**step * initial), largest)


def local_step(
    weights: list[torch.Tensor],
    gradients: list[torch.Tensor],
    rate: float,
    velocities: list[torch.Tensor] | None = None,
    momentum: float = 0.0,
) -> None:
    """Line 6 in place; with momentum, velocity <- momentum velocity + gradient, and the step is along the velocity."""
    if velocities:
        torch._foreach_mul_(velocities, momentum)
        torch._foreach_add_(velocities, gradients)
        gradients = velocities
    torch._foreach_add_(weights, gradients, alpha=-rate)


def compress(weights: Floats, local: Floats, memory: Floats, compressor: Compressor) -> tuple[SparseUpdate, Floats]:
    """Lines 8 to 10 for one client: what it sends and its new memory. ``local`` may be overwritten."""
    np.subtract(weights, local, out=local)
    return compressor(local, memory)


def take_back(sent: SparseUpdate, memory: Floats) -> SparseUpdate:
    """A lost upload returns to the memory in place; what the server sees of the client is empty."""
    memory[sent.positions] += sent.values
    return SparseUpdate.trusted(sent.size, sent.positions[:0], sent.values[:0])


def shares(weights: FloatArray, participants: IntArray) -> FloatArray:
    """p_m of the participants of a round: their weights, which sum to one."""
    chosen = weights[participants]
    return chosen / chosen.sum()


def mean_update(sent: Sequence[SparseUpdate], parts: FloatArray) -> Floats:
    """Line 20: the dense sum of p_m g_m; a client whose upload was lost sends nothing but keeps its p_m."""
    return mean_of_updates(sent, weights=parts)
