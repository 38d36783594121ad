"""Rounds models: K(s, H), the rounds to the target, where s = mean(delta_m^q) over the devices.

The planner only needs K to be positive, and increasing and concave in s. Each model gives its
exponent q, K itself, and dK/ds.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.convergence.bound import FORMS, Form, LearningConstants, corollary_terms, required_steps
from fewjoules.errors import InvalidInputError, require_number

MAX_EXPONENT = 16.0
MIN_POWER = 1e-100  # of the sparsity, far below any that makes a difference


@runtime_checkable
class RoundsModel(Protocol):
    """Interface of a rounds model: K(s, H), the rounds to the target, where s is the mean of sparsity^q.

    Any object with these members can be planned with. All arguments broadcast.
    """

    @property
    def exponent(self) -> float:
        """Power q > 0 of the sparsity that is averaged."""

    def rounds(self, mean_power: ArrayLike, local_steps: ArrayLike, devices: int) -> FloatArray:
        """Return K(s, H) > 0, increasing and concave in s = ``mean_power``."""

    def slope(self, mean_power: ArrayLike, local_steps: ArrayLike, devices: int) -> FloatArray:
        """Return dK/ds >= 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperRounds:
    """The rounds model of [LI21], eq. (23): K = alpha H sum(delta_m^2) + beta / (sqrt(M) H), for M devices.

    Args:
        alpha: Price of sparsity and local steps, at least 0.
        beta: Price of few local steps, at least 0; not both are 0.
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        """Refuse constants under which no round is needed."""
        require_number("alpha", self.alpha, low=0.0)
        require_number("beta", self.beta, low=0.0)
        if self.alpha == 0.0 == self.beta:
            raise InvalidInputError("alpha and beta must not both be 0, got alpha = 0 and beta = 0")

    @property
    def exponent(self) -> float:
        """The root mean square of Theorem 1."""
        return 2.0

    def rounds(self, mean_power: ArrayLike, local_steps: ArrayLike, devices: int) -> FloatArray:
        """Return K by eq. (23); each device adds alpha H delta_m^2 + beta / (M^1.5 H)."""
        H = np.asarray(local_steps, dtype=np.float64)
        return np.asarray(self.alpha * H * (devices * np.asarray(mean_power)) + self.beta / (np.sqrt(devices) * H))

    def slope(self, mean_power: ArrayLike, local_steps: ArrayLike, devices: int) -> FloatArray:
        """Return alpha H M, which does not depend on the sparsity."""
        H = np.asarray(local_steps, dtype=np.float64)
        return np.asarray(self.alpha * H * devices + 0.0 * np.asarray(mean_power))


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundRounds:
    """The rounds K = T / H by Corollary 1 of [LI21], with its constants known. It is far too pessimistic to plan with.

    Args:
        smoothness: L, the Lipschitz constant of the gradient.
        sigma: Standard deviation of the gradient of one sample.
        gradient_bound: G, a bound on gradient norms, at least ``sigma``.
        initial_gap: J^2, a bound on F(w0) - F*.
        batch: b0, the first batch size.
        epsilon: The squared gradient norm to reach.
        form: "exact" solves the corollary; "printed" is eq. (11), which lacks a factor.
    """

    smoothness: float
    sigma: float
    gradient_bound: float
    initial_gap: float
    batch: float
    epsilon: float
    form: Form = "exact"

    def __post_init__(self) -> None:
        """Refuse constants under which the theorem says nothing."""
        _ = self.constants
        require_number("epsilon", self.epsilon, low=0.0, above=True)
        if self.form not in FORMS:
            raise InvalidInputError(f"form must be one of {', '.join(FORMS)}, got {self.form!r}")

    @property
    def constants(self) -> LearningConstants:
        """The learning constants without the target."""
        return LearningConstants(
            smoothness=self.smoothness,
            sigma=self.sigma,
            gradient_bound=self.gradient_bound,
            initial_gap=self.initial_gap,
            batch=self.batch,
        )

    @property
    def exponent(self) -> float:
        """The root mean square of Theorem 1."""
        return 2.0

    def rounds(self, mean_power: ArrayLike, local_steps: ArrayLike, devices: int) -> FloatArray:
        """Return K = T(delta, H) / H."""
        steps = required_steps(
            self.constants,
            epsilon=self.epsilon,
            local_steps=local_steps,
            devices=devices,
            mean_square_sparsity=mean_power,
            form=self.form,
        )
        return np.asarray(steps / np.asarray(local_steps, dtype=np.float64))

    def slope(self, mean_power: ArrayLike, local_steps: ArrayLike, devices: int) -> FloatArray:
        """Return the derivative of Corollary 1, whose q is affine in s."""
        H = np.asarray(local_steps, dtype=np.float64)
        p, q = corollary_terms(self.constants, local_steps=H, devices=devices, mean_square_sparsity=mean_power)
        drift_slope = 4.0 * q / (4.0 * np.asarray(mean_power) + 1.0) / self.epsilon
        root = np.sqrt((p / self.epsilon) ** 2 / 4.0 + q / self.epsilon)
        factor = p / self.epsilon if self.form == "exact" else 1.0
        return np.asarray(drift_slope * (1.0 + factor / (2.0 * root)) / H)


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerLawRounds:
    """The rounds law K = tau / H (1 + c H^a mean(delta^q)), which fits measured training well.

    ``fewjoules calibrate rounds`` and ``fewjoules tune`` find its constants.

    Args:
        tau: Local steps of a training with H = 1 that sends everything, nearly; above 0.
        c: By how much sparsity and local steps slow training down; at least 0.
        a: Power of H.
        q: Power of the sparsity; at least 1e-100.
    """

    tau: float
    c: float
    a: float
    q: float

    def __post_init__(self) -> None:
        """Refuse a law that does not grow with sparsity."""
        require_number("tau", self.tau, low=0.0, above=True)
        require_number("c", self.c, low=0.0)
        require_number("a", self.a, low=-MAX_EXPONENT, high=MAX_EXPONENT)
        require_number("q", self.q, low=MIN_POWER, high=MAX_EXPONENT)

    @property
    def exponent(self) -> float:
        """The fitted power of the sparsity."""
        return self.q

    def rounds(self, mean_power: ArrayLike, local_steps: ArrayLike, devices: int) -> FloatArray:
        """Return K; the number of devices is part of the fit."""
        H = np.asarray(local_steps, dtype=np.float64)
        return np.asarray(self.tau / H * (1.0 + self.c * H**self.a * np.asarray(mean_power)))

    def slope(self, mean_power: ArrayLike, local_steps: ArrayLike, devices: int) -> FloatArray:
        """Return tau c H^(a-1), which does not depend on the sparsity."""
        H = np.asarray(local_steps, dtype=np.float64)
        return np.asarray(self.tau * self.c * H ** (self.a - 1.0) + 0.0 * np.asarray(mean_power))
