"""Theorem 1 and Corollary 1 of [LI21]: bounds on the gradient norm of FT-LSGD-DB and on the steps it needs."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError, require_number

Form = Literal["exact", "printed"]
FORMS: tuple[Form, ...] = ("exact", "printed")


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningConstants:
    """Constants of the loss and its gradients in Assumptions 1 and 2 of [LI21].

    ``initial_gap`` is J^2 >= F(w0) - F*; ``batch`` is b0; ``gradient_bound`` is G >= sigma.
    """

    smoothness: float
    sigma: float
    gradient_bound: float
    initial_gap: float
    batch: float

    def __post_init__(self) -> None:
        """Refuse constants for which the theorem does not hold."""
        require_number("smoothness", self.smoothness, low=0.0, above=True)
        require_number("sigma", self.sigma, low=0.0, above=True)
        require_number("gradient_bound", self.gradient_bound, low=self.sigma)
        require_number("initial_gap", self.initial_gap, low=0.0, above=True)
        require_number("batch", self.batch, low=1.0)


def gradient_norm_bound(
    constants: LearningConstants,
    *,
    steps: ArrayLike,
    local_steps: ArrayLike,
    devices: ArrayLike,
    mean_square_sparsity: ArrayLike,
    theta: float,
    batch_growth: float,
) -> FloatArray:
    """Return the bound of Theorem 1, [LI21] eq. (7), on the expected squared gradient norm at a random iterate.

    It holds for the step size theta sqrt(M / T) <= 1 / (2 L) and batches growing by ``batch_growth`` > 1.
    """
    require_number("theta", theta, low=0.0, above=True)
    require_number("batch_growth", batch_growth, low=1.0, above=True)
    L, sigma, G = constants.smoothness, constants.sigma, constants.gradient_bound
    T, H, M, delta2 = (np.asarray(x, dtype=np.float64) for x in (steps, local_steps, devices, mean_square_sparsity))
    if np.any(theta * np.sqrt(M / T) > 1.0 / (2.0 * L)):
        raise InvalidInputError(f"theta sqrt(M / T) must be at most 1 / (2 L) = {1 / (2 * L):g}, got theta {theta:g}")
    descent = 4.0 * constants.initial_gap / (theta * np.sqrt(M * T))
    geometric = batch_growth / (batch_growth - 1.0)
    noise = 8.0 * geometric * theta * L * sigma**2 / (constants.batch * np.sqrt(M) * T**1.5)
    drift = (4.0 * delta2 + 1.0) * 8.0 * M * theta**2 * L**2 * G**2 * H**2 / T
    return np.asarray(descent + noise + drift)


def corollary_terms(
    constants: LearningConstants,
    *,
    local_steps: ArrayLike,
    devices: ArrayLike,
    mean_square_sparsity: ArrayLike,
) -> tuple[FloatArray, FloatArray]:
    """Return (p, q) of Corollary 1's condition eps = p / sqrt(T) + q / T, [LI21] eq. (10)."""
    L, sigma, G, J2 = constants.smoothness, constants.sigma, constants.gradient_bound, constants.initial_gap
    H, M, delta2 = (np.asarray(x, dtype=np.float64) for x in (local_steps, devices, mean_square_sparsity))
    p = 12.0 * sigma * np.sqrt(J2 * L / (M * constants.batch))
    q = 8.0 * constants.batch * M * L * G**2 * J2 * H**2 * (4.0 * delta2 + 1.0) / sigma**2
    return np.asarray(p), np.asarray(q)


def required_steps(
    constants: LearningConstants,
    *,
    epsilon: float,
    local_steps: ArrayLike,
    devices: ArrayLike,
    mean_square_sparsity: ArrayLike,
    form: Form = "exact",
) -> FloatArray:
    """Return T(delta, H) of Corollary 1; "printed" leaves out the factor p / eps before the root, as eq. (11) does."""
    p, q = corollary_terms(
        constants, local_steps=local_steps, devices=devices, mean_square_sparsity=mean_square_sparsity
    )
    noise, drift = (p / epsilon) ** 2, q / epsilon
    root = np.sqrt(noise / 4.0 + drift)
    return np.asarray(noise / 2.0 + drift + (p / epsilon * root if form == "exact" else root))
