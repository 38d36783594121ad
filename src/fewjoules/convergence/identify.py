"""Whether pilot runs identify the constants of a rounds model, and which run to add where they do not.

An interval leaves its constant open by some decades. A factor counts the decades between its ends, an exponent what its
width makes of a decade of H or of sparsity. A constant that is open by more than one decade is not identified.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.convergence.intervals import Interval
from fewjoules.errors import require_integer, require_number

EXPONENTS = ("a", "q")
MAX_OPEN_DECADES = 1.0


@dataclass(frozen=True, slots=True)
class NextRun:
    """A pilot run to add."""

    local_steps: int
    sparsity: float


@dataclass(frozen=True, slots=True)
class Candidates:
    """The runs that may be suggested: H and sparsity at 1, 2, 5, 10, ... up to their largest values."""

    local_steps: FloatArray
    sparsity: FloatArray

    @classmethod
    def up_to(cls, max_local_steps: int, max_sparsity: float) -> "Candidates":
        """Return every pair of the two series."""
        steps = require_integer("max_local_steps", max_local_steps, low=1, high=10**9)
        sparsity = require_number("max_sparsity", max_sparsity, low=1.0)
        grids = np.meshgrid(_series(float(steps)), _series(sparsity), indexing="ij")
        return cls(*(grid.ravel() for grid in grids))

    def best(self, gradients: FloatArray, scatter: FloatArray, constant: int) -> NextRun:
        """Return the run that shrinks the variance of one constant most.

        ``gradients`` are those of ln(rounds) at the candidates, ``scatter`` is C = (J'J)^-1 of the runs so far.
        One more row takes (C g)_i^2 / (1 + g'C g) off the variance of constant i (Sherman and Morrison).
        """
        spread = gradients @ scatter
        shrinkage = spread[:, constant] ** 2 / (1.0 + np.sum(spread * gradients, axis=1))
        chosen = int(np.argmax(shrinkage))
        return NextRun(int(self.local_steps[chosen]), float(self.sparsity[chosen]))


def open_decades(name: str, interval: Interval) -> float:
    """Return the decades by which an interval leaves its constant open."""
    low, high = interval
    if name in EXPONENTS:
        return high - low
    return math.log10(high) - math.log10(low) if low > 0.0 and math.isfinite(high) else math.inf


def unidentified(intervals: Mapping[str, Interval]) -> tuple[str, ...]:
    """Return the constants that are not identified, the worst first."""
    decades = {name: open_decades(name, interval) for name, interval in intervals.items()}
    poor = [name for name, width in decades.items() if not width <= MAX_OPEN_DECADES]
    return tuple(sorted(poor, key=lambda name: -decades[name]))


def not_identified(intervals: Mapping[str, Interval], by: str = "") -> str:
    """Name the constants that are not identified, with their intervals."""
    names = unidentified(intervals)
    ends = [f"{low:.3g} to {high:.3g}" for low, high in (intervals[name] for name in names)]
    verb, noun = ("is", "interval") if len(names) == 1 else ("are", "intervals")
    return f"{_listed(names)} {verb} not identified{by} ({noun} {_listed(ends)})"


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _series(largest: float) -> FloatArray:
    """Return 1, 2, 5, 10, 20, 50, ... below ``largest``, and ``largest``."""
    decades = 10.0 ** np.arange(math.floor(math.log10(largest)) + 1)
    numbers = np.outer(decades, [1.0, 2.0, 5.0]).ravel()
    return np.append(numbers[numbers < largest], largest)
