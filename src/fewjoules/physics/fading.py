"""Random channels: the rate of one message that spans several independent fades."""

import math
import zlib
from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.errors import require_integer

MIN_BLOCKS = 2  # with a single Rayleigh fade the expected energy of a message is infinite


@dataclass(frozen=True, eq=False)
class Fading:
    """The law of a power gain of mean 1 and the mean SNR that it scales.

    ``kind`` is none, rayleigh, rician (``parameter`` is the Rician K), nakagami (m) or trace (``gains``, of any mean).
    ``efficiency`` is the average spectral efficiency that plans use, in bits per second per hertz.
    """

    kind: str
    mean_snr: float
    efficiency: float
    parameter: float = 0.0
    gains: FloatArray | None = None

    def describe(self) -> list[object]:
        """Return all values that distinguish one law from another, as JSON can hold them."""
        gains = None if self.gains is None else zlib.crc32(self.gains.tobytes())
        return [self.kind, self.mean_snr, self.parameter, gains]

    def problem(self, blocks: int) -> str | None:
        """Return why the expected energy of a message over ``blocks`` fades is infinite, or None if it is finite."""
        if self.gains is not None and not bool(np.all(self.gains > 0.0)):
            return "its trace has gains of 0"
        if self.kind == "nakagami" and self.parameter * blocks <= 1.0:
            return f"nakagami_m * coherence_blocks must be above 1, got {self.parameter:g} * {blocks}"
        return None

    def draw_gains(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Draw independent power gains, shape (count,)."""
        if self.kind == "none":
            return np.ones(count)
        if self.kind == "rayleigh":
            return rng.standard_exponential(count)
        if self.kind == "nakagami":
            return rng.standard_gamma(self.parameter, count) / self.parameter
        if self.kind == "rician":
            return _rician_gains(self.parameter, rng, count)
        assert self.gains is not None
        return rng.choice(self.gains, count) / self.gains.mean()

    def draw_slowdown(self, rng: np.random.Generator, blocks: int) -> float:
        """Draw the time and joules of a message over ``blocks`` fades, relative to those at the average rate."""
        require_integer("coherence_blocks", blocks, low=MIN_BLOCKS, high=1_000_000)
        bits = np.log1p(self.mean_snr * self.draw_gains(rng, blocks)).mean() / math.log(2.0)
        return self.efficiency / float(bits)


def _rician_gains(rician_k: float, rng: np.random.Generator, count: int) -> FloatArray:
    """Draw |sqrt(K) + scattered|^2 / (K + 1), the scattered part complex normal of mean power 1."""
    real, imaginary = rng.standard_normal((2, count)) * math.sqrt(0.5)
    return ((math.sqrt(rician_k) + real) ** 2 + imaginary**2) / (rician_k + 1.0)
