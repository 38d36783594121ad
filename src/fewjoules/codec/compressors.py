"""Compressors with error feedback: each returns the update to send and the residual for the next round.

Each takes an update and the last residual and returns (sent, residual), whose sum is always update + last residual.
Each sends at least the share k/d of the squared norm (a contraction), which error feedback needs to converge
[STICH18]: random-k is therefore not scaled up, and QSGD is scaled down by 1 + omega.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import Floats
from fewjoules.codec.select import require_pair, top_k_with_feedback
from fewjoules.codec.update import SparseUpdate
from fewjoules.codec.values import BLOCK, MAX_LEVELS, quantised
from fewjoules.errors import InvalidInputError, require_integer

Sent = tuple[SparseUpdate, Floats]

top_k = top_k_with_feedback


def none(update: Floats, residual: Floats) -> Sent:
    """Send every entry and leave no residual.

    Args:
        update: What was learned since the last message, float32, shape (size,).
        residual: What was not sent before, float32, shape (size,).
    """
    total = _total(update, residual)
    return SparseUpdate(size=total.size, positions=np.arange(total.size), values=total), np.zeros_like(total)


def random_k(update: Floats, residual: Floats, k: int, rng: np.random.Generator, *, unbiased: bool = False) -> Sent:
    """Send k entries at random.

    Args:
        update: What was learned since the last message, float32, shape (size,).
        residual: What was not sent before, float32, shape (size,).
        k: Number of entries to send, 0 to size.
        rng: Draws the positions.
        unbiased: Scale the entries by size / k; do not feed the residual back then.
    """
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
    """Draw k different positions, sorted; every set of k is equally likely."""
    require_integer("k", k, low=0, high=size)
    return np.sort(rng.choice(size, size=k, replace=False, shuffle=False))


def ternary(update: Floats, residual: Floats, k: int) -> Sent:
    """Send the signs of the k largest entries times their mean magnitude: sparse ternary compression [SATTLER19].

    Args:
        update: What was learned since the last message, float32, shape (size,).
        residual: What was not sent before, float32, shape (size,).
        k: Number of entries to send, 0 to size.
    """
    sent, left = top_k_with_feedback(update, residual, k)
    return with_values(sent, left, "ternary")


def qsgd(update: Floats, residual: Floats, levels: int, rng: np.random.Generator) -> Sent:
    """Send all entries by QSGD [ALISTARH17], divided by 1 + omega to be a contraction.

    Args:
        update: What was learned since the last message, float32, shape (size,).
        residual: What was not sent before, float32, shape (size,).
        levels: Number of levels to which magnitudes are rounded.
        rng: Random numbers for the rounding.
    """
    require_integer("levels", levels, low=1, high=MAX_LEVELS)
    total = _total(update, residual)
    values = quantised(total, "qsgd", levels=levels, rng=rng) / np.float32(1.0 + qsgd_variance(levels))
    return SparseUpdate(size=total.size, positions=np.arange(total.size), values=values), total - values


def qsgd_variance(levels: int, block: int = BLOCK) -> float:
    """Return omega with E|Q(x) - x|^2 <= omega |x|^2 for QSGD of a block [ALISTARH17, lemma 3.1]."""
    return min(block / levels**2, math.sqrt(block) / levels)


def with_values(
    sent: SparseUpdate, residual: Floats, values: str, *, levels: int = 15, rng: np.random.Generator | None = None
) -> Sent:
    """Round an update to a kind of values, as its receiver decodes it; add the rounding error to the residual.

    Args:
        sent: The update to send.
        residual: The residual that goes with it, float32, shape (size,).
        values: Kind of values, as for ``encode``.
        levels: Number of levels of "qsgd".
        rng: Random numbers, which "qsgd" needs to round.
    """
    if residual.size != sent.size:
        raise InvalidInputError(f"residual must have the update's {sent.size} entries, got {residual.size}")
    seen = quantised(sent.values, values, levels=levels, rng=rng)
    left = residual.copy()
    with np.errstate(invalid="ignore"):  # an infinite value leaves NaN, by which the run is told to have diverged
        left[sent.positions] += sent.values - seen
    return SparseUpdate.trusted(sent.size, sent.positions, seen), left


def _total(update: Floats, residual: Floats) -> Floats:
    require_pair(update, residual)
    return update + residual
