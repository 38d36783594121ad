"""The frontier between radio joules and mean power of sparsity, with its tangents in closed form.

For every multiplier mu > 0 each device minimises, in x = ln(delta),

    c h(x) + (mu / M) exp(q x),    h(x) = (x / ln 2 + kappa) exp(-x),    c = joules_per_bit * d,

where kappa is ``entry_bits`` of the law of messages. h is convex in exp(q x) where y >= 1 / n (message_size.py).
With B = 1 - kappa ln 2, n = q + 1 and y = x - B the stationary point solves

    n y - ln y = t,    t = ln c - ln(q ln 2 mu / M) - n B:

Corollary 3 of [LI21] for q = 2, where y = -W(-exp(-t) n) / n on the Lambert branch W_{-1}. The other branch
is a maximum below the least sparsity. An entry that costs joules of its own, beside its bits, has a larger kappa.
Working with t keeps exp(3 B), about 1e-29, out of the arithmetic. Devices with c = 0 have t = -inf and stay at their
lower bound.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.cores import CORES

_CHUNK = 1 << 14  # entries that stay in the second-level cache through one evaluation
_CHUNKS_FOR_THREADS = 16  # fewer are computed faster than threads start on them
_LN2 = math.log(2.0)


def lambert_root(t: FloatArray, n: float, low: FloatArray | float) -> FloatArray:
    """Return the root y >= low > 1/n of n y - ln y = t, by Newton's method; t must be at least n low - ln low.

    It equals -W_{-1}(-n exp(-t)) / n. The function is convex and increasing there, so all iterates after the first lie
    to the right of the root and fall towards it.
    """
    y = np.log(t / n)
    y += t
    y /= n
    np.maximum(y, low, out=y)
    for _ in range(60):
        # the step y - (n y - ln y - t) / (n - 1 / y) as a factor, with few passes over memory
        factor = np.log(y)
        factor += t
        factor -= 1.0
        slope = n * y
        slope -= 1.0
        factor /= slope
        y *= factor
        factor -= 1.0
        if not max(factor.max(), -factor.min()) > 1e-8:  # quadratic: the next step would be below 1e-16
            break
    return y


def invert_message_bits(bits_per_parameter: FloatArray, kappa: FloatArray | float, low: float) -> FloatArray:
    """Return the ln(delta) >= ln(low) at which h(ln delta) is the given positive number, at most h(ln low)."""
    t = kappa * _LN2 - np.log(bits_per_parameter * _LN2)
    return lambert_root(t, 1.0, kappa * _LN2 + math.log(low)) - kappa * _LN2


def _distinct(costs: FloatArray, bits: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the different pairs of cost and bits of an entry in order, and how often each occurs."""
    if bits.ndim == 0:
        ordered = np.sort(costs)
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        return ordered[first], bits, np.diff(first, append=costs.size).astype(np.float64)
    order = np.argsort(costs)
    if np.any(np.diff(costs[order]) == 0.0):
        order = np.lexsort((bits, costs))
    ordered, beside = costs[order], bits[order]
    first = np.flatnonzero(np.concatenate([[True], (ordered[1:] != ordered[:-1]) | (beside[1:] != beside[:-1])]))
    return ordered[first], beside[first], np.diff(first, append=costs.size).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Points:
    """Points of the frontier with their tangents: radio falls by ``multiplier`` for each unit of mean power."""

    log_multiplier: FloatArray
    mean_power: FloatArray
    radio_joules: FloatArray

    @property
    def multiplier(self) -> FloatArray:
        """mu = -d radio / d mean_power."""
        return np.exp(self.log_multiplier)


class Senders(Protocol):
    """All that send in a round, seen from one multiplier: ``Frontier`` and what is built on it."""

    @property
    def devices(self) -> int:
        """Number of devices."""

    @property
    def log_multiplier_range(self) -> tuple[float, float]:
        """Return ln(mu) below which every sender is at its upper bound, and above which at its lower."""

    def points(self, log_multipliers: ArrayLike) -> Points:
        """Return the points where tangents of these slopes touch the frontier, in the order given."""

    def sparsity(self, log_multiplier: float) -> FloatArray:
        """Return the sparsity of each device where the tangent of this slope touches the frontier."""


class _Bounds(NamedTuple):
    """B of the equation above, and y and t at the bounds of the sparsity: numbers, or one for each device."""

    B: FloatArray
    y_lower: FloatArray
    y_upper: FloatArray
    t_lower: FloatArray
    t_upper: FloatArray

    @classmethod
    def of(cls, B: FloatArray, lower: FloatArray, upper: float, n: float) -> "_Bounds":
        y_lower, y_upper = np.log(lower) - B, np.log(upper) - B
        convex = (np.maximum(y, 1.0 / n) for y in (y_lower, y_upper))  # y may be less where the bounds meet
        return cls(B, y_lower, y_upper, *(np.asarray(n * y - np.log(y)) for y in convex))

    def part(self, part: slice) -> "_Bounds":
        return _Bounds(*(one[part] if one.ndim else one for one in self))


class Frontier:
    """Least radio joules of a round for each mean power s = mean(delta^q), under bounds on each sparsity.

    ``lower`` and ``upper`` are numbers or arrays of shape (devices,). With plain numbers, devices of
    equal cost are merged, and the order of devices does not matter to the last bit.
    """

    def __init__(
        self,
        joules_per_bit: FloatArray,
        *,
        parameters: int,
        entry_bits: ArrayLike,
        exponent: float,
        lower: ArrayLike,
        upper: float,
    ) -> None:
        """Precompute the terms that do not depend on the multiplier.

        ``entry_bits`` are kappa, with other joules of an entry as bits: one number, or one for each device.
        """
        costs, kappa = joules_per_bit * float(parameters), np.asarray(entry_bits, dtype=np.float64)
        self._devices = costs.size
        self._cost_of_device = costs
        self._B_of_device = 1.0 - kappa * _LN2
        self._count: FloatArray | float = 1.0
        if np.ndim(lower) == 0:
            costs, kappa, self._count = _distinct(costs, kappa)
        self._cost = costs
        with np.errstate(divide="ignore"):
            self._log_cost = np.log(costs)
        self._exponent = exponent
        self._n = exponent + 1.0
        self._lower = np.asarray(lower, dtype=np.float64)
        self._upper = upper
        self._bounds = _Bounds.of(1.0 - kappa * _LN2, self._lower, upper, self._n)
        self._pool = ThreadPoolExecutor(CORES) if costs.size > _CHUNKS_FOR_THREADS * _CHUNK else None

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self._devices

    @property
    def log_multiplier_range(self) -> tuple[float, float]:
        """Return ln(mu) below which all devices with costs are at their upper bound, and above which at the lower."""
        paying = self._cost > 0.0
        if not paying.any():
            return 0.0, 0.0
        shifted = self._log_cost + self._offset(0.0, self._bounds.B)
        lowest = float((shifted - self._bounds.t_upper)[paying].min())
        highest = float((shifted - self._bounds.t_lower).max())
        return min(lowest, highest), highest

    def points(self, log_multipliers: ArrayLike) -> Points:
        """Return the points where tangents of these slopes touch the frontier, in the order given."""
        logs = np.atleast_1d(np.asarray(log_multipliers, dtype=np.float64))
        if self._cost.size <= _CHUNK:
            power, radio = self._sums(logs[:, None], slice(None))
        else:
            parts = [slice(i, i + _CHUNK) for i in range(0, self._cost.size, _CHUNK)]
            tasks = [(log, part) for log in logs for part in parts]
            apply = map if self._pool is None else self._pool.map
            sums = list(apply(lambda task: self._sums(np.array([[task[0]]]), task[1]), tasks))
            power, radio = np.array(sums)[:, :, 0].reshape(logs.size, len(parts), 2).sum(axis=1).T
        return Points(logs, power / self.devices, radio)

    def sparsity(self, log_multiplier: float) -> FloatArray:
        """Return the sparsity of each device where the tangent of this slope touches the frontier, shape (devices,)."""
        sparsity = np.empty(self.devices)
        parts = [slice(i, i + _CHUNK) for i in range(0, self.devices, _CHUNK)]

        def fill(part: slice) -> None:
            with np.errstate(divide="ignore"):
                log_cost = np.log(self._cost_of_device[part])
            lower, B = self._part(self._lower, part), self._part(self._B_of_device, part)
            bounds = _Bounds.of(B, lower, self._upper, self._n)
            y = self._stationary(log_cost, np.float64(log_multiplier), bounds)
            inside = np.clip(np.exp(y + B), lower, self._upper)
            sparsity[part] = np.where(y <= bounds.y_lower, lower, np.where(y >= bounds.y_upper, self._upper, inside))

        list((map if self._pool is None else self._pool.map)(fill, parts))
        return sparsity

    def _offset(self, log_multiplier: ArrayLike, B: FloatArray) -> FloatArray:
        """Return t - ln c."""
        log_weight = math.log(self._exponent * _LN2 / self.devices) + np.asarray(log_multiplier)
        return np.asarray(-log_weight - self._n * B)

    def _stationary(self, log_cost: FloatArray, log_multiplier: ArrayLike, bounds: _Bounds) -> FloatArray:
        t = np.clip(log_cost + self._offset(log_multiplier, bounds.B), bounds.t_lower, bounds.t_upper)
        return np.minimum(lambert_root(t, self._n, bounds.y_lower), bounds.y_upper)

    def _sums(self, log_multiplier: FloatArray, part: slice) -> tuple[FloatArray, FloatArray]:
        """Sum delta^q and c h(ln delta) over devices; h = (y + 1) / (delta ln 2)."""
        bounds = self._bounds.part(part)
        B, y = bounds.B, self._stationary(self._log_cost[part], log_multiplier, bounds)
        count = self._part(np.asarray(self._count), part)
        inverse_delta = np.exp(-(y + B))
        radio = self._cost[part] * count * (y + 1.0) * inverse_delta / _LN2
        power = inverse_delta**-self._exponent if self._exponent == 2.0 else np.exp(self._exponent * (y + B))
        return np.sum(power * count, axis=-1), np.sum(radio, axis=-1)

    @staticmethod
    def _part(array: FloatArray, part: slice) -> FloatArray:
        return array[part] if array.ndim else array
