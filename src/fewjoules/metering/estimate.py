"""Means with 95 % confidence intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of ``count`` values and half the width of its interval, which is infinite for a single value."""

    mean: float
    half_width: float
    count: int

    @property
    def relative(self) -> float:
        """Half the width of the interval as a share of the mean."""
        return self.half_width / abs(self.mean) if self.mean else math.inf

    def __str__(self) -> str:
        """Return the mean and how far its interval reaches."""
        return f"{self.mean:.4g} {reach(self.relative)}"


def reach(relative: float) -> str:
    """Say how far an interval reaches, as a share of its mean."""
    return f"+- {relative:.1%}" if math.isfinite(relative) else "+- an unknown share"


def mean_of(values: Sequence[float]) -> Estimate:
    """Return the mean with its interval by the t distribution."""
    known = np.asarray(values, dtype=np.float64)
    if known.size < 2:
        return Estimate(float(known.mean()), math.inf, known.size)
    spread = float(known.std(ddof=1)) / math.sqrt(known.size)
    return Estimate(float(known.mean()), quantile(known.size - 1) * spread, known.size)


def quantile(freedom: float) -> float:
    """Return how many standard errors the interval reaches to each side; infinite freedom is the normal law."""
    from scipy.special import ndtri, stdtrit

    tail = 0.5 + 0.5 * CONFIDENCE
    return float(ndtri(tail) if math.isinf(freedom) else stdtrit(freedom, tail))
