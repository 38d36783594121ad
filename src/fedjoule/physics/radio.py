"""Bits of a top-k message, and what a radio spends to send a bit: [LI21] eqs. (13)-(17) and (25)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedjoule.arrays import FloatArray
from fedjoule.errors import require_number


def estimated_message_bits(parameters: float, sparsity: ArrayLike, value_bits: int) -> FloatArray:
    """[LI21] eq. (25) with s1 = 1, s0 = 0: d / delta * (log2 delta + kappa), kappa = value_bits + 1."""
    delta = np.asarray(sparsity, dtype=np.float64)
    return parameters / delta * (np.log2(delta) + (value_bits + 1))


def position_bits(parameters: int, kept: ArrayLike) -> FloatArray:
    """log2 C(d, k), [LI21] eq. (14): the least that k positions out of d can take when all sets are alike."""
    from scipy.special import betaln

    k = np.asarray(kept, dtype=np.float64)
    # C(d, k) = 1 / ((d + 1) Beta(d - k + 1, k + 1)): no difference of large log-factorials
    log_binomial = -np.log(parameters + 1.0) - betaln(parameters - k + 1.0, k + 1.0)
    return np.asarray(np.maximum(log_binomial, 0.0) / math.log(2.0))


def exact_message_bits(parameters: int, kept: ArrayLike, value_bits: int) -> FloatArray:
    """[LI21] eqs. (13)-(15) with s1 = 1, s0 = 0: (value_bits + 1) k + log2 C(d, k)."""
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
        """Refuse what no radio can be."""
        require_number("power_watts", self.power_watts, low=0.0)
        require_number("rate_bits_per_second", self.rate_bits_per_second, low=0.0, above=True)
        require_number("overhead_scale", self.overhead_scale, low=0.0, above=True)
        require_number("overhead_bits", self.overhead_bits, low=0.0)

    @property
    def seconds_per_bit(self) -> float:
        """s1 / R."""
        return self.overhead_scale / self.rate_bits_per_second

    @property
    def message_seconds(self) -> float:
        """s0 / R."""
        return self.overhead_bits / self.rate_bits_per_second

    @property
    def joules_per_bit(self) -> float:
        """P s1 / R, [LI21] eq. (17)."""
        return self.power_watts * self.seconds_per_bit

    @property
    def message_joules(self) -> float:
        """P s0 / R."""
        return self.power_watts * self.message_seconds
