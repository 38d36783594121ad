"""Average spectral efficiency of an uplink under fading: E[log2(1 + snr * g)], g the power gain of mean 1.

[LI21] eq. (16) divided by the bandwidth. No fading and Rayleigh have closed forms; Rician and Nakagami
are integrated through their moment generating function, accurate to rounding from -60 to +60 dB.
"""

import math
from collections.abc import Callable

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError, require_array, require_number

_EULER_GAMMA = 0.5772156649015329
_STEP = 0.125  # of the trapezoidal rule in ln t: its error is exp(-pi^2/step), below 1e-34
_TAIL = 42.0  # e^-42 of the integral lies below the first node
_LARGEST_LOG_NODE = math.log(745.0)  # exp(-745) is the smallest double


def snr_from_decibels(decibels: float) -> float:
    """Return the linear signal-to-noise ratio."""
    return float(10.0 ** (decibels / 10.0))


def efficiency_without_fading(snr: float) -> float:
    """Return log2(1 + snr), in bits per second per hertz."""
    require_number("snr", snr, low=0.0)
    return math.log1p(snr) / math.log(2.0)


def efficiency_rayleigh(snr: float) -> float:
    """Return exp(1/snr) E1(1/snr) / ln 2 [ALOUINI99], in bits per second per hertz."""
    require_number("snr", snr, low=0.0)
    if snr == 0.0:
        return 0.0
    return _scaled_exponential_integral(1.0 / snr) / math.log(2.0)


def efficiency_rician(snr: float, rician_k: float) -> float:
    """Average over Rician fading: line of sight ``rician_k`` times stronger than scattered paths; 0 is Rayleigh."""
    require_number("rician_k", rician_k, low=0.0)

    def log_mgf(y: FloatArray) -> FloatArray:
        return -np.log1p(y / (1.0 + rician_k)) - rician_k * y / (1.0 + rician_k + y)

    return _efficiency_from_mgf(snr, log_mgf)


def efficiency_nakagami(snr: float, nakagami_m: float) -> float:
    """Average over Nakagami-m fading, m >= 0.5; 1 is Rayleigh, large m no fading."""
    require_number("nakagami_m", nakagami_m, low=0.5)
    return _efficiency_from_mgf(snr, lambda y: -nakagami_m * np.log1p(y / nakagami_m))


def efficiency_trace(snr: float, gains: FloatArray) -> float:
    """Average over measured power gains, which are first scaled to mean 1."""
    require_number("snr", snr, low=0.0)
    gains = np.atleast_1d(require_array("gains", gains))
    if gains.size == 0 or not gains.mean() > 0.0:
        raise InvalidInputError(f"gains must have a positive mean, got {gains.size} gains without one")
    return float(np.mean(np.log1p(snr * (gains / gains.mean())))) / math.log(2.0)


def _scaled_exponential_integral(z: float) -> float:
    """Return exp(z) E1(z), z > 0, by the series [AS64, 5.1.11] or the even form of the fraction [AS64, 5.1.22].

    The fraction never forms exp(z), which would overflow at low SNR. SciPy's exp1 is as accurate but slow to import.
    """
    if z < 1.5:
        term, total = 1.0, -_EULER_GAMMA - math.log(z)
        for n in range(1, 40):
            term *= -z / n
            total -= term / n
        return math.exp(z) * total
    fraction = 0.0
    for n in range(200, 0, -1):
        fraction = n * n / (z + 2.0 * n + 1.0 - fraction)
    return 1.0 / (z + 1.0 - fraction)


def _efficiency_from_mgf(snr: float, log_mgf: Callable[[FloatArray], FloatArray]) -> float:
    """Integrate E[ln(1 + x)] = int_0^inf exp(-t) (1 - E[exp(-t x)]) / t dt [HAMDI10, lemma 1], with x = snr * g.

    With t = exp(u) the integrand is analytic and bounded for |Im u| < pi/2 and decays at both ends, so the
    trapezoidal rule converges geometrically. ``log_mgf(y)`` is ln E[exp(-y g)].
    """
    require_number("snr", snr, low=0.0)
    if snr == 0.0:
        return 0.0
    first = -_TAIL - max(0.0, math.log(snr))
    t = np.exp(np.arange(first, _LARGEST_LOG_NODE, _STEP))
    integrand = -np.exp(-t) * np.expm1(log_mgf(snr * t))
    return float(_STEP * integrand.sum()) / math.log(2.0)
