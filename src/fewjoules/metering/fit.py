"""Costs as a sum of two non-negative terms, such as a fixed part and one for each sample, with intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError
from fewjoules.metering.estimate import Estimate, quantile

_LEAST_SPREAD = 1e-9


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A fitted cost and its 95 % interval."""

    value: float
    low: float
    high: float

    def __add__(self, other: "Coefficient") -> "Coefficient":
        """Return the sum of two costs that were measured apart."""
        value = self.value + other.value
        below = math.hypot(self.value - self.low, other.value - other.low)
        above = math.hypot(self.high - self.value, other.high - other.value)
        return Coefficient(value, max(0.0, value - below), value + above)

    def __truediv__(self, parts: float) -> "Coefficient":
        """Return the cost of one of so many equal parts."""
        return Coefficient(self.value / parts, self.low / parts, self.high / parts)


@dataclass(frozen=True, slots=True)
class CostFit:
    """The coefficients of all terms, and the largest residual as a share of its cost."""

    coefficients: tuple[Coefficient, ...]
    largest_residual: float


def fit_costs(terms: ArrayLike, costs: Sequence[Estimate]) -> CostFit:
    """Fit costs as ``terms @ coefficients``, by least squares of relative errors, with no coefficient below zero.

    ``terms`` is (measurements, coefficients). The intervals follow the residuals where those exceed what the intervals
    of the costs explain: a straight line is then only an approximation.
    """
    from scipy.optimize import nnls

    design = np.asarray(terms, dtype=np.float64)
    values = np.array([cost.mean for cost in costs])
    sigma = _sigma(values, costs)
    rows, scale = design / sigma[:, None], np.abs(design / sigma[:, None]).max(axis=0)
    if np.linalg.matrix_rank(rows / scale) < design.shape[1]:
        found = np.unique(design, axis=0).shape[0]
        raise InvalidInputError(f"a fit of {design.shape[1]} costs needs as many different measurements, got {found}")
    solution, _ = nnls(rows / scale, values / sigma)
    free = solution > 0.0
    everything = _least_squares(rows / scale, values / sigma)
    chosen = _least_squares((rows / scale)[:, free], values / sigma)
    reaches = np.zeros(free.size)
    reaches[free] = chosen.reaches
    highs = np.where(free, solution + reaches, np.maximum(0.0, everything.solution + everything.reaches))
    coefficients = tuple(
        Coefficient(float(value / unit), float(max(0.0, value - reach) / unit), float(high / unit))
        for value, reach, high, unit in zip(solution, reaches, highs, scale, strict=True)
    )
    residuals = values - (design / scale) @ solution
    return CostFit(coefficients, float(np.abs(residuals / np.where(values == 0.0, 1.0, values)).max()))


def _sigma(values: FloatArray, costs: Sequence[Estimate]) -> FloatArray:
    """Return a standard deviation for each cost, the same share of all."""
    half_widths = np.array([cost.half_width for cost in costs])
    size = math.sqrt(float(np.mean(values**2))) or 1.0
    share = math.sqrt(float(np.mean(half_widths**2))) / size / quantile(math.inf)
    share = max(share, _LEAST_SPREAD) if math.isfinite(share) else 1.0
    return share * np.maximum(np.abs(values), _LEAST_SPREAD * size)


@dataclass(frozen=True, slots=True)
class _LeastSquares:
    solution: FloatArray
    reaches: FloatArray


def _least_squares(rows: FloatArray, values: FloatArray) -> _LeastSquares:
    """Return the solution and how far its intervals reach, for rows of unit variance."""
    if rows.shape[1] == 0:
        return _LeastSquares(np.zeros(0), np.zeros(0))
    solution: FloatArray = np.linalg.lstsq(rows, values, rcond=None)[0].astype(np.float64)
    freedom = rows.shape[0] - rows.shape[1]
    residuals = values - rows @ solution
    excess = float(residuals @ residuals) / freedom if freedom else 0.0
    reach = math.sqrt(excess) * quantile(freedom) if excess > 1.0 else quantile(math.inf)
    return _LeastSquares(solution, reach * np.sqrt(np.diag(np.linalg.inv(rows.T @ rows))))
