"""Which schemes are tied with the best one within the noise of the seeds.

A seed gives every scheme the same data, weights and batches, so the schemes are compared seed by seed: the logarithms
of the ratios of their joules are the observations of a paired t test, and Holm's method keeps the chance that any
scheme is wrongly told from the best at 5 %.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import FloatArray

FEWEST_SEEDS = 3  # with fewer, noise cannot be told from a difference
LEVEL = 0.05


def p_values(joules: FloatArray, best: int) -> FloatArray:
    """Return how likely noise alone makes each scheme differ so much from row ``best`` of ``joules``.

    ``joules`` has the shape (schemes, seeds). The value is 1 for a scheme that does not take more on average.
    """
    from scipy.special import stdtr

    ratios = np.log(joules / joules[best])
    seeds = ratios.shape[1]
    means, errors = ratios.mean(axis=1), ratios.std(axis=1, ddof=1) / math.sqrt(seeds)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = 2.0 * stdtr(seeds - 1, -means / errors)  # two-sided
    return np.where(means > 0.0, found, 1.0)


def tied_with_best(joules: FloatArray, best: int) -> NDArray[np.bool_]:
    """Tell which schemes cannot be told from row ``best`` of ``joules``, shape (schemes, seeds); ``best`` is tied."""
    found = p_values(joules, best)
    tied = np.ones(found.size, dtype=np.bool_)
    others = [int(place) for place in np.argsort(found, kind="stable") if place != best]
    for rank, place in enumerate(others):
        if found[place] > LEVEL / (len(others) - rank):
            break
        tied[place] = False
    return tied
