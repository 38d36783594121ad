"""Bits of a sparse message as a law in its sparsity, of which formula (25) of [LI21] is one.

Plans need a law that a sparser message always shortens, at a rate that falls fast enough. With x = ln(delta),

    h(x) = (x / ln 2 + entry_bits) exp(-x),    y = x - 1 + entry_bits ln 2,

h' = -y exp(-x) / ln 2 and h'' = (y - 1) exp(-x) / ln 2. As a function of delta^q, h is convex exactly where
h'' - q h' >= 0, that is y >= 1 / (q + 1), which also makes it fall. Batteries need the sparsity to be convex in the
joules of a round: exactly y >= 1. Since y rises with x, the least sparsity decides.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError, require_number, shown

MAX_SCALE = 1e6
MAX_ENTRY_BITS = 1e6
MAX_FIXED_BITS = 1e15


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageSize:
    """The law of a message's size: fixed_bits + scale * d / delta * (log2 delta + entry_bits) bits.

    d is the number of parameters and delta the sparsity, so the message has d / delta entries.

    Args:
        fixed_bits: Bits of any message.
        scale: Factor of the bits that depend on the sparsity.
        entry_bits: Bits of an entry besides its position; value and sign in formula (25) of [LI21].
    """

    fixed_bits: float = 0.0
    scale: float = 1.0
    entry_bits: float

    def __post_init__(self) -> None:
        """Refuse numbers that no message can have."""
        require_number("fixed_bits", self.fixed_bits, low=0.0, high=MAX_FIXED_BITS)
        require_number("scale", self.scale, low=0.0, high=MAX_SCALE, above=True)
        require_number("entry_bits", self.entry_bits, low=-MAX_ENTRY_BITS, high=MAX_ENTRY_BITS)

    @classmethod
    def formula_25(cls, value_bits: int) -> "MessageSize":
        """Return [LI21] eq. (25) with s1 = 1, s0 = 0: log2 delta bits of a position, a sign, and a value."""
        return cls(entry_bits=float(value_bits + 1))

    def bits(self, parameters: float, sparsity: ArrayLike) -> FloatArray:
        """Return the bits of a message."""
        return self.fixed_bits + self.sparsity_bits(parameters, sparsity)

    def sparsity_bits(self, parameters: float, sparsity: ArrayLike) -> FloatArray:
        """Return the bits that depend on the sparsity."""
        delta = np.asarray(sparsity, dtype=np.float64)
        return self.scale * (parameters / delta * (np.log2(delta) + self.entry_bits))

    def require_plannable(self, name: str, least_sparsity: float, exponent: float, *, batteries: bool) -> None:
        """Refuse a law that is not convex from this sparsity on, as the proof of a plan needs it."""
        least = least_entry_bits(least_sparsity, exponent, batteries=batteries)
        if self.entry_bits < least:
            raise InvalidInputError(
                f"entry_bits of {name} must be at least {least:.3f} for sparsities from {least_sparsity:g} on, "
                f"got {self.entry_bits!r}"
            )


def require_message_size(name: str, law: Any) -> None:
    """Refuse anything but a law, or None."""
    if law is not None and not isinstance(law, MessageSize):
        raise InvalidInputError(f"{name} must be a MessageSize or None, got {shown(law)}")


def least_entry_bits(least_sparsity: float = 1.0, exponent: float = 0.0, *, batteries: bool = True) -> float:
    """Return the least entry_bits of a law to plan with, rounded up to a thousandth; by default for any problem."""
    y = 1.0 if batteries else 1.0 / (exponent + 1.0)
    exact = (1.0 + y) / math.log(2.0) - math.log2(least_sparsity)
    return (math.floor(1000.0 * exact) + 1) / 1000.0
