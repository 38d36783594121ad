"""The server's message to devices that were away: all entries that changed since they last took part.

With n of N devices drawn uniformly in each round, p = n/N, the gap g between two rounds of a device is geometric:
P(g) = p (1 - p)^(g - 1). A device that comes back lacks g changes of d / delta entries each. Were their places drawn
anew in every round, an entry would be among them with probability 1 - (1 - 1/delta)^g, and on average over g

    entries = d / (1 + p (delta - 1)):

the message has the sparsity D = 1 + p (delta - 1), never below 1, which is the whole model. Places of real training
repeat, so that messages are shorter (results/catch-up.txt).

For a multiplier mu the server minimises c h(ln D) + mu delta^q, which is not convex for q < 1. In x = ln delta it rises
where G(x) < mu and falls where G(x) > mu, with

    G = c p y delta^(1 - q) / (q D^2 ln 2),    y = ln D - 1 + kappa ln 2,
    d ln G / dx = (1 - q) - t (2 - 1/y),       t = p delta / D.

Both t and 2 - 1/y rise with x, and the second is positive for y > 1/2, so for q < 1 G rises and then falls: the least
value is at the lower limit or where G falls through mu. For q >= 1 and y >= 1 / (q + 1) G falls throughout. So the
minimum is global, and its tangent bounds every choice of the server (docs/planner.md).
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.planner.frontier import Points

_LN2 = math.log(2.0)
_HALVINGS = 80  # of an interval of logarithms, to its last bit
_BEYOND = 1e-9  # in ln(mu): so that rounding does not keep the server from its limits


def received_sparsity(sparsity: ArrayLike, participation: float) -> FloatArray:
    """Return the mean sparsity of what devices receive if the server changes one weight in ``sparsity`` each round."""
    return 1.0 + participation * (np.asarray(sparsity, dtype=np.float64) - 1.0)


class CatchUpFrontier:
    """The server's frontier of joules against delta^q, as of one device; the same interface as ``Frontier``."""

    devices = 1

    def __init__(
        self,
        joules_per_bit: float,
        *,
        participation: float,
        parameters: int,
        entry_bits: float,
        exponent: float,
        lower: float,
        upper: float,
    ) -> None:
        """Find the peak of G; a device of cost ``joules_per_bit`` stands for all that receive."""
        self._cost, self._part = joules_per_bit * float(parameters), participation
        self._kappa, self._exponent = entry_bits, exponent
        self._lower, self._upper = math.log(lower), math.log(upper)
        self._peak = float(_falls_through(self._gain_slope, np.zeros(1), self._lower, self._upper)[0])

    @property
    def log_multiplier_range(self) -> tuple[float, float]:
        """Return ln(mu) below which the server is at its upper limit, and one above which it is at the lower."""
        if not self._cost > 0.0 or self._lower == self._upper:
            return 0.0, 0.0
        ends = np.array([self._lower, self._upper])
        radio, power = self._radio(ends), np.exp(self._exponent * ends)
        chord = float(np.log((radio[0] - radio[1]) / (power[1] - power[0])))
        highest = max(chord, float(self._log_gain(np.array(self._peak))))
        return min(chord, float(self._log_gain(ends)[1])) - _BEYOND, highest + _BEYOND

    def points(self, log_multipliers: ArrayLike) -> Points:
        """Return the points where tangents of these slopes touch the frontier, in the order given."""
        logs = np.atleast_1d(np.asarray(log_multipliers, dtype=np.float64))
        x = self._chosen(logs)
        return Points(logs, np.exp(self._exponent * x), self._radio(x))

    def sparsity(self, log_multiplier: float) -> FloatArray:
        """Return the server's sparsity where the tangent of this slope touches the frontier, shape (1,)."""
        return np.exp(self._chosen(np.array([log_multiplier])))

    def _chosen(self, logs: FloatArray) -> FloatArray:
        """Return x of the least joules + mu delta^q."""
        if not self._cost > 0.0:
            return np.full(logs.shape, self._lower)
        inner = _falls_through(self._log_gain, logs, self._peak, self._upper)
        lower = np.full(logs.shape, self._lower)
        values = [self._radio(x) + np.exp(logs + self._exponent * x) for x in (lower, inner)]
        return np.where(values[1] < values[0], inner, lower)

    def _received(self, x: FloatArray) -> FloatArray:
        return received_sparsity(np.exp(x), self._part)

    def _radio(self, x: FloatArray) -> FloatArray:
        D = self._received(x)
        return np.asarray(self._cost * (np.log2(D) + self._kappa) / D)

    def _log_gain(self, x: FloatArray) -> FloatArray:
        """ln G."""
        D = self._received(x)
        y = np.log(D) - 1.0 + self._kappa * _LN2
        factor = self._cost * self._part / (self._exponent * _LN2)
        return np.asarray(math.log(factor) + np.log(y) - 2.0 * np.log(D) + (1.0 - self._exponent) * x)

    def _gain_slope(self, x: FloatArray) -> FloatArray:
        """d ln G / dx."""
        D = self._received(x)
        y = np.log(D) - 1.0 + self._kappa * _LN2
        return np.asarray((1.0 - self._exponent) - self._part * np.exp(x) / D * (2.0 - 1.0 / y))


def _falls_through(
    function: Callable[[FloatArray], FloatArray], levels: FloatArray, low: float, high: float
) -> FloatArray:
    """Return where a function that falls from ``low`` to ``high`` passes each level; the nearer end if it does not."""
    left, right = np.full(levels.shape, low), np.full(levels.shape, high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (left + right)
        above = function(middle) > levels
        left, right = np.where(above, middle, left), np.where(above, right, middle)
    return right
