"""Planned participation: how likely each client is drawn so that the estimate of the mean costs the fewest joules.

A draw that takes client m with probability pi_m, and counts its update p_m / pi_m times, estimates sum_m p_m g_m
without bias [HORVITZ52]. A client costs c_m joules when it takes part. If every update has about the same norm, the
draw adds a variance in proportion to

    V(pi) = sum_m p_m^2 / pi_m - sum_m p_m^2.

Least joules for a bounded variance: minimise sum_m pi_m c_m so that sum_m p_m^2 / pi_m <= a bound and pi_m <= 1. The
problem is convex; where its gradient vanishes, c_m = mu p_m^2 / pi_m^2. So

    pi_m = min(1, lambda p_m / sqrt(c_m)),

as [CHEN22] has it with norms of updates in place of 1 / sqrt(c_m). One lambda belongs to each bound, and one to each
mean size of the cohort, sum_m pi_m = n; the caller gives n. For its variance no other draw spends less, and for its
joules none has less variance. Nobody is drawn less than ``LEAST_SHARE`` times as often as in a uniform draw, which
bounds p_m / pi_m where costs differ by orders of magnitude; this is one more bound of the convex problem.
"""

import numpy as np

from fewjoules.arrays import FloatArray

LEAST_SHARE = 0.01
_FREE = 1e-12  # of the largest cost: less counts as this much, so that a client that costs nothing is no special case


def inclusion_probabilities(importance: FloatArray, costs: FloatArray, size: int) -> FloatArray:
    """Return pi_m of a cohort of ``size`` clients that costs the fewest joules for its variance, shape (clients,).

    ``importance`` holds p_m > 0, up to a factor; ``costs`` holds c_m >= 0.
    """
    if size >= importance.size:
        return np.ones(importance.size)
    most = float(costs.max())
    prices = np.maximum(costs, most * _FREE) if most > 0.0 else np.ones(costs.size)
    slopes = importance / np.sqrt(prices)
    slopes = slopes / slopes.max()
    least = LEAST_SHARE * size / importance.size
    return np.clip(_scale(slopes, least, size) * slopes, least, 1.0)


def _scale(slopes: FloatArray, least: float, size: int) -> float:
    """Return lambda with sum_m min(1, max(least, lambda slopes_m)) = size, which rises in straight pieces."""
    kinks = np.sort(np.concatenate([least / slopes, 1.0 / slopes]))
    low, high = 0, kinks.size - 1  # the sum at kinks[low] is at most the size, at kinks[high] at least
    while high - low > 1:
        middle = (low + high) // 2
        if np.clip(kinks[middle] * slopes, least, 1.0).sum() <= size:
            low = middle
        else:
            high = middle
    between = 0.5 * (kinks[low] + kinks[high]) * slopes
    free = (between > least) & (between < 1.0)
    if not free.any():
        return float(kinks[low])
    fixed = np.count_nonzero(between >= 1.0) + least * np.count_nonzero(between <= least)
    return float((size - fixed) / slopes[free].sum())


def added_variance(importance: FloatArray, probabilities: FloatArray) -> float:
    """Return V(pi) times the number of clients, with p_m scaled to sum to one; N/n - 1 for a uniform draw of n of N."""
    shares = importance / importance.sum()
    return float(importance.size * np.sum(shares**2 * (1.0 - probabilities) / probabilities))
