"""Intervals of the constants of a rounds law, and the laws that lie furthest out within them."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.convergence.rounds import MAX_EXPONENT, MIN_POWER, PaperRounds, PowerLawRounds
from fewjoules.errors import InvalidInputError, require_number

Interval = tuple[float, float]
FittedLaw = PaperRounds | PowerLawRounds

SMALLEST_FACTOR, LARGEST_FACTOR = 1e-100, 1e100
_RANGES = {"a": (-MAX_EXPONENT, MAX_EXPONENT), "q": (MIN_POWER, MAX_EXPONENT)}
_ROUNDING = 1e-5  # of correlations in a file
_STEP = 1e-4  # of a central difference


def within_range(name: str, interval: Interval) -> Interval:
    """Return the part of an interval in which its constant may lie; that of a poor fit may be infinite."""
    least, most = _RANGES.get(name, (SMALLEST_FACTOR, LARGEST_FACTOR))
    low, high = interval
    return min(max(low, least), most), max(min(high, most), least)


@dataclass(frozen=True, slots=True)
class LawIntervals:
    """Intervals of some or all constants of a law, and optionally how the constants are correlated.

    ``correlations`` are those of ln tau, ln c, a and ln q (or ln alpha and ln beta), the upper triangle row by row.
    With them the law lies in an ellipsoid, else anywhere in the box of the intervals, which is larger.
    """

    law: FittedLaw
    intervals: Mapping[str, Interval]
    correlations: Sequence[float] | None = None

    def __post_init__(self) -> None:
        """Refuse intervals that do not hold their constant, and correlations that no constants can have."""
        constants = asdict(self.law)
        for name, (low, high) in self.intervals.items():
            if name not in constants:
                raise InvalidInputError(f"intervals must be of {', '.join(constants)}, got one of {name!r}")
            if not low <= constants[name] <= high:
                raise InvalidInputError(
                    f"the interval of {name} must hold {name} = {constants[name]:g}, got {low:g} to {high:g}"
                )
        if self.correlations is not None:
            self._require_correlations(tuple(constants))

    def _require_correlations(self, constants: tuple[str, ...]) -> None:
        assert self.correlations is not None
        pairs = len(constants) * (len(constants) - 1) // 2
        if tuple(self.intervals) != constants:
            raise InvalidInputError(f"correlations need intervals of {', '.join(constants)}, in this order")
        if len(self.correlations) != pairs:
            wanted = f"{pairs} number{'s' * (pairs > 1)}"
            raise InvalidInputError(f"correlations must be {wanted}, got {len(self.correlations)}")
        for value in self.correlations:
            require_number("correlations", value, low=-1.0, high=1.0)
        least = float(np.linalg.eigvalsh(self._correlation_matrix()).min())
        if least < -_ROUNDING:
            raise InvalidInputError(
                f"correlations must form a matrix without negative eigenvalues, got the eigenvalue {least:.3g}"
            )

    def gradient(self, function: Callable[[FittedLaw], float]) -> FloatArray:
        """Return the slopes of a function of the law at its value."""
        centre, steps = self._centre(), _STEP * np.eye(len(self.intervals))
        rise = [function(self._law_at(centre + step)) - function(self._law_at(centre - step)) for step in steps]
        return np.array(rise) / (2.0 * _STEP)

    def furthest(self, gradient: FloatArray) -> tuple[FittedLaw, FittedLaw]:
        """Return the laws at which a function with this gradient is least and largest, if it is linear."""
        low, high = self._ends()
        if self.correlations is None:
            rises = gradient > 0.0
            return self._law_at(np.where(rises, low, high)), self._law_at(np.where(rises, high, low))
        spread = self._covariance() @ gradient
        step = spread / max(math.sqrt(max(float(gradient @ spread), 0.0)), 1e-300)
        return self._law_at(self._centre() - step), self._law_at(self._centre() + step)

    def outermost(self) -> list[FittedLaw]:
        """Return the corners of the box, or the ends of the axes of the ellipsoid."""
        if self.correlations is None:
            return [self._law_at(np.array(corner)) for corner in itertools.product(*zip(*self._ends(), strict=True))]
        variances, axes = np.linalg.eigh(self._covariance())
        steps = (axes * np.sqrt(np.maximum(variances, 0.0))).T
        return [self._law_at(self._centre() + sign * step) for step in steps for sign in (-1.0, 1.0)]

    def _law_at(self, theta: FloatArray) -> FittedLaw:
        constants = {}
        for name, value in zip(self.intervals, theta.tolist(), strict=True):
            constant = value if name == "a" else math.exp(min(value, 700.0))
            constants[name] = within_range(name, (constant, constant))[0]
        return replace(self.law, **constants)  # type: ignore[arg-type] # fields of either law

    def _centre(self) -> FloatArray:
        return np.array([_theta(name, getattr(self.law, name)) for name in self.intervals])

    def _ends(self) -> tuple[FloatArray, FloatArray]:
        ends = [[_theta(name, end) for end in interval] for name, interval in self.intervals.items()]
        low, high = np.array(ends).T
        return low, high

    def _covariance(self) -> FloatArray:
        low, high = self._ends()
        half = 0.5 * (high - low)
        return self._correlation_matrix() * np.outer(half, half)

    def _correlation_matrix(self) -> FloatArray:
        assert self.correlations is not None
        upper = np.zeros((len(self.intervals), len(self.intervals)))
        upper[np.triu_indices_from(upper, 1)] = self.correlations
        return upper + upper.T + np.eye(len(self.intervals))


def _theta(name: str, constant: float) -> float:
    """Return the parameter of the fit: an exponent a itself, any other constant as its logarithm."""
    inside = within_range(name, (constant, constant))[0]
    return inside if name == "a" else math.log(inside)
