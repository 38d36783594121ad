"""Draws of a fixed size in which each client has its own, exact probability to be drawn.

Clients are laid end to end in a random order, each as long as its probability, and every whole number behind a random
start between 0 and 1 draws the client that lies there: systematic sampling [MADOW49] in random order [HARTLEY62].
Nobody is longer than 1, so nobody is drawn twice. Lengths are whole multiples of 1 / ``UNITS`` and sums of integers
are exact, so the size is always the same and the probabilities are exactly those by which updates are weighted.
Independent draws (Poisson sampling) would be simpler, but their cohort is sometimes empty and sometimes everybody.
"""

import numpy as np

from fewjoules.arrays import FloatArray, IntArray

UNITS = 1 << 40  # as many make a probability of 1; 2^63 of them are more than eight million participants


def in_units(probabilities: FloatArray, size: int) -> IntArray:
    """Return probabilities that sum to about ``size`` in units that sum to exactly that, each from 1 to ``UNITS``.

    What rounding left over is spread evenly over those who are not certain to be drawn.
    """
    units = np.clip(np.floor(probabilities * UNITS).astype(np.int64), 1, UNITS)
    while missing := size * UNITS - int(units.sum()):
        step = 1 if missing > 0 else -1
        movable = np.flatnonzero((units < UNITS) & ((step > 0) | (units > 1)))[: abs(missing)]
        if not movable.size:  # everybody is certain, and somebody must not be
            movable = np.arange(units.size)[: abs(missing)]
        units[movable] = np.clip(units[movable] + step * (abs(missing) // movable.size), 1, UNITS)
    return units


def draw(units: IntArray, size: int, rng: np.random.Generator) -> IntArray:
    """Return ``size`` different clients in increasing order; client m is drawn with probability units_m / UNITS."""
    order = rng.permutation(units.size)
    return laid_out(units, order, size, int(rng.integers(UNITS)))


def laid_out(units: IntArray, order: IntArray, size: int, start: int) -> IntArray:
    """Return the clients drawn by a start from 0 to ``UNITS`` - 1 when they lie in this order."""
    ends = np.cumsum(units[order])
    points = start + UNITS * np.arange(size, dtype=np.int64)
    return np.sort(order[np.searchsorted(ends, points, side="right")])
