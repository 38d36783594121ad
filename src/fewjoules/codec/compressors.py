"""Compressors with error feedback: what is sent, and the residual that is kept for the next round.

Each takes an update and the residual of the last round and returns (sent, residual); sent + residual is always what
went in. They keep at least the share k/d of the energy (a contraction), without which error feedback would not
converge [STICH18]: random-k is therefore not scaled up, and QSGD is scaled down by 1 + omega.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fewjoules.codec.select import require_pair, top_k_with_feedback
from fewjoules.codec.update import SparseUpdate
from fewjoules.codec.values import BLOCK, MAX_LEVELS, quantised
from fewjoules.errors import InvalidInputError, require_integer

Floats = NDArray[np.float32]
Sent = tuple[SparseUpdate, Floats]

top_k = top_k_with_feedback


def none(update: Floats, residual: Floats) -> Sent:
    """Everything is sent; nothing is left."""
    total = _total(update, residual)
    return SparseUpdate(size=total.size, positions=np.arange(total.size), values=total), np.zeros_like(total)


def random_k(update: Floats, residual: Floats, k: int, rng: np.random.Generator, *, unbiased: bool = False) -> Sent:
    """k entries at random. ``unbiased`` scales them by d/k; then the residual is not meant to be fed back."""
    total = _total(update, residual)
    positions = random_positions(total.size, k, rng)
    values = total[positions]
    left = total.copy()
    left[positions] = 0.0
    if unbiased and k:
        values = (values * np.float32(total.size / k)).astype(np.float32)
        left[positions] = total[positions] - values
    return SparseUpdate.trusted(total.size, positions, values), left


def random_positions(size: int, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """k different positions, each set equally likely, in order."""
    require_integer("k", k, low=0, high=size)
    return np.sort(rng.choice(size, size=k, replace=False, shuffle=False))


def ternary(update: Floats, residual: Floats, k: int) -> Sent:
    """Sparse ternary compression [SATTLER19]: the k largest, each as the mean of their magnitudes with its sign."""
    sent, left = top_k_with_feedback(update, residual, k)
    return with_values(sent, left, "ternary")


def qsgd(update: Floats, residual: Floats, levels: int, rng: np.random.Generator) -> Sent:
    """QSGD [ALISTARH17] of all entries with ``levels`` levels, divided by 1 + omega to be a contraction."""
    require_integer("levels", levels, low=1, high=MAX_LEVELS)
    total = _total(update, residual)
    values = quantised(total, "qsgd", levels=levels, rng=rng) / np.float32(1.0 + qsgd_variance(levels))
    return SparseUpdate(size=total.size, positions=np.arange(total.size), values=values), total - values


def qsgd_variance(levels: int, block: int = BLOCK) -> float:
    """omega with E|Q(x) - x|^2 <= omega |x|^2 for QSGD of a block [ALISTARH17, lemma 3.1]."""
    return min(block / levels**2, math.sqrt(block) / levels)


def with_values(
    sent: SparseUpdate, residual: Floats, values: str, *, levels: int = 15, rng: np.random.Generator | None = None
) -> Sent:
    """The update as its receiver sees it when sent as this kind; the rounding error goes into the residual."""
    if residual.size != sent.size:
        raise InvalidInputError(f"residual must have the update's {sent.size} entries, got {residual.size}")
    seen = quantised(sent.values, values, levels=levels, rng=rng)
    left = residual.copy()
    left[sent.positions] += sent.values - seen
    return SparseUpdate.trusted(sent.size, sent.positions, seen), left


def _total(update: Floats, residual: Floats) -> Floats:
    require_pair(update, residual)
    return update + residual
