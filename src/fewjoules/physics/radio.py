"""The least bits of a top-k message, and joules of a radio per bit: [LI21] eqs. (13)-(17)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.errors import require_number


def position_bits(parameters: int, kept: ArrayLike) -> FloatArray:
    """Return log2 C(d, k), [LI21] eq. (14): the least bits for k of d positions when all sets are equally likely."""
    k = np.asarray(kept, dtype=np.float64)
    few = np.minimum(k, parameters - k)
    inner = np.maximum(few, 1.0)  # few = 0 is handled by the mask below
    d = max(float(parameters), 2.0)
    rest = d - inner
    # the entropy form has no cancellation, unlike differences of log-factorials [LOADER00]
    entropy = inner * np.log(d / inner) - rest * np.log1p(-inner / d) + 0.5 * np.log(d / (2.0 * np.pi * inner * rest))
    nats = entropy + _stirling_error(d) - _stirling_error(inner) - _stirling_error(rest)
    return np.where(few == 0.0, 0.0, nats / math.log(2.0))


def _stirling_error(n: ArrayLike) -> FloatArray:
    """Return ln n! - ln(sqrt(2 pi n) (n / e)^n) for n >= 1."""
    n = np.asarray(n, dtype=np.float64)
    small = np.array([math.lgamma(i + 1) - (i + 0.5) * math.log(i) + i for i in range(1, 17)])
    tabled = small[np.clip(n, 1, 16).astype(np.int64) - 1] - 0.5 * math.log(2.0 * math.pi)
    squared = 1.0 / (n * n)
    series = (1 / 12 - squared * (1 / 360 - squared * (1 / 1260 - squared * (1 / 1680 - squared / 1188)))) / n
    return np.where(n <= 16.0, tabled, series)


def exact_message_bits(parameters: int, kept: ArrayLike, value_bits: int) -> FloatArray:
    """Return (value_bits + 1) k + log2 C(d, k): [LI21] eqs. (13)-(15) with s1 = 1, s0 = 0."""
    return (value_bits + 1) * np.asarray(kept, dtype=np.float64) + position_bits(parameters, kept)


@dataclass(frozen=True, kw_only=True, slots=True)
class Radio:
    """An uplink at its average rate.

    ``overhead_scale`` (s1) and ``overhead_bits`` (s0) turn payload bits S into s1 S + s0 bits on the air.
    """

    power_watts: float
    rate_bits_per_second: float
    overhead_scale: float = 1.0
    overhead_bits: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values that no radio can have."""
        require_number("power_watts", self.power_watts, low=0.0)
        require_number("rate_bits_per_second", self.rate_bits_per_second, low=0.0, above=True)
        require_number("overhead_scale", self.overhead_scale, low=0.0, above=True)
        require_number("overhead_bits", self.overhead_bits, low=0.0)

    @property
    def seconds_per_bit(self) -> float:
        """Seconds on the air per payload bit: s1 / R."""
        return self.overhead_scale / self.rate_bits_per_second

    @property
    def message_seconds(self) -> float:
        """Seconds on the air of a message's fixed overhead: s0 / R."""
        return self.overhead_bits / self.rate_bits_per_second

    @property
    def joules_per_bit(self) -> float:
        """Joules per payload bit: P s1 / R, [LI21] eq. (17)."""
        return self.power_watts * self.seconds_per_bit

    @property
    def message_joules(self) -> float:
        """Joules of a message's fixed overhead: P s0 / R."""
        return self.power_watts * self.message_seconds
