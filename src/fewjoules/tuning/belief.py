"""What is believed of a rounds law: a prior on its constants, and what pilot runs make of it.

The law is K = tau / H (1 + c H^a s), s = mean(delta^q). Its constants hardly differ from task to task, which is the
prior: ln c ~ N(ln 0.03, 1), a ~ N(0.58, 0.15), q ~ N(0.43, 0.12) (docs/tuning.md). Nothing is known of tau
before the first pilot. The belief is a set of weighted particles of (ln c, a, q). Given these, ln(steps) of a pilot is
ln tau plus a known number plus noise, so tau follows in closed form (a normal law with an infinitely wide prior).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.convergence.intervals import Interval, LawIntervals
from fewjoules.convergence.rounds import PowerLawRounds

PRIOR_C, PRIOR_A, PRIOR_Q = 0.03, 0.58, 0.43
DEVIATIONS = (1.0, 0.15, 0.12)  # of ln c, a and q
LEAST_Q = 0.05
PARTICLES = 2048


@dataclass(frozen=True, slots=True)
class Choice:
    """H and the sparsities of a round: each different sparsity with its share of the devices, and the server's."""

    local_steps: int
    sparsity: tuple[float, ...]
    shares: tuple[float, ...] = (1.0,)
    downlink_sparsity: float = 1.0
    downlink_weight: float = 0.0

    def powers(self, exponents: FloatArray) -> FloatArray:
        """Return s = mean(delta^q) + w (delta_s^q - 1) for each exponent q."""
        logs, shares = np.log(self.sparsity), np.array(self.shares)
        server = self.downlink_weight * np.expm1(exponents * np.log(self.downlink_sparsity))
        return np.exp(exponents[:, None] * logs[None, :]) @ shares + server


@dataclass(frozen=True, slots=True)
class Observation:
    """Local steps that a pilot with some choice took, and the standard deviation of their logarithm."""

    choice: Choice
    steps: float
    deviation: float


class Belief:
    """Weighted particles of (ln c, a, q), and the mean and variance of ln tau for each of them."""

    def __init__(self, theta: FloatArray, observations: Sequence[Observation] = ()) -> None:
        """Start from particles of the prior, (particles, 3), all with the same weight."""
        self.theta, self.observations = theta, tuple(observations)
        count = len(theta)
        if not self.observations:
            self.weights, self.log_tau = np.full(count, 1.0 / count), np.zeros(count)
            self.tau_variance = np.inf
            return
        precision = np.array([1.0 / one.deviation**2 for one in self.observations])
        offsets = np.stack([np.log(one.steps) - self.log_factor(one.choice) for one in self.observations], axis=1)
        self.tau_variance = float(1.0 / precision.sum())
        self.log_tau = offsets @ precision * self.tau_variance
        misfit = ((offsets - self.log_tau[:, None]) ** 2) @ precision
        likelihood = np.exp(-0.5 * (misfit - misfit.min()))
        self.weights = likelihood / likelihood.sum()

    @classmethod
    def prior(cls, rng: np.random.Generator, particles: int = PARTICLES) -> "Belief":
        """Return the belief before any pilot."""
        normal = rng.standard_normal((particles, 3))
        theta = np.array([np.log(PRIOR_C), PRIOR_A, PRIOR_Q]) + normal * np.array(DEVIATIONS)
        theta[:, 2] = np.maximum(theta[:, 2], LEAST_Q)
        return cls(theta)

    def after(self, *observations: Observation) -> "Belief":
        """Return the belief with more observations."""
        return Belief(self.theta, (*self.observations, *observations))

    def log_factor(self, choice: Choice) -> FloatArray:
        """Return ln(1 + c H^a s) of each particle: by how much a choice delays training, in local steps."""
        log_c, a, q = self.theta.T
        return np.log1p(np.exp(log_c + a * np.log(choice.local_steps)) * choice.powers(q))

    def log_steps(self, choice: Choice) -> FloatArray:
        """Return the mean of ln(steps) for each particle."""
        return self.log_tau + self.log_factor(choice)

    def predicted_steps(self, choice: Choice) -> tuple[float, float]:
        """Return the median steps of a choice and the standard deviation of their logarithm, noise left out."""
        logs = self.log_steps(choice)
        mean = float(self.weights @ logs)
        return float(np.exp(mean)), float(np.sqrt(self.weights @ (logs - mean) ** 2 + self.tau_variance))

    @property
    def known(self) -> bool:
        """Whether a pilot has told the scale of the law."""
        return bool(self.observations)

    def law(self) -> PowerLawRounds:
        """Return the law of the mean constants; tau is 1 before the first pilot."""
        log_c, a, q = self.weights @ self.theta
        return self._law(log_c, a, q)

    def law_of(self, particle: int) -> PowerLawRounds:
        """Return the law of one particle."""
        log_c, a, q = self.theta[particle].tolist()
        return PowerLawRounds(tau=float(np.exp(self.log_tau[particle])), c=float(np.exp(log_c)), a=a, q=q)

    def _law(self, log_c: float, a: float, q: float) -> PowerLawRounds:
        """Return the law with these constants and the tau that goes best with them."""
        if not self.observations:
            return PowerLawRounds(tau=1.0, c=float(np.exp(log_c)), a=float(a), q=float(q))
        alone = Belief(np.array([[log_c, a, q]]), self.observations)
        return PowerLawRounds(tau=float(np.exp(alone.log_tau[0])), c=float(np.exp(log_c)), a=float(a), q=float(q))

    def intervals(self) -> LawIntervals:
        """Return intervals of the constants, two standard deviations to either side, with their correlations."""
        law = self.law()
        columns = np.column_stack([self.log_tau, self.theta[:, 0], self.theta[:, 1], np.log(self.theta[:, 2])])
        centre = np.array([np.log(law.tau), np.log(law.c), law.a, np.log(law.q)])
        spread = columns - self.weights @ columns
        covariance = (spread * self.weights[:, None]).T @ spread
        covariance[0, 0] += self.tau_variance if self.known else 0.0
        deviations = np.maximum(np.sqrt(np.diag(covariance)), 1e-6)
        matrix = np.clip(covariance / np.outer(deviations, deviations), -1.0, 1.0)
        ends = (centre - 2.0 * deviations, centre + 2.0 * deviations)
        intervals: dict[str, Interval] = {}
        for name, low, high in zip(("tau", "c", "a", "q"), *ends, strict=True):
            intervals[name] = (float(low), float(high)) if name == "a" else (float(np.exp(low)), float(np.exp(high)))
        return LawIntervals(law, intervals, tuple(matrix[np.triu_indices(4, 1)].tolist()))

    def sampled(self, count: int, rng: np.random.Generator) -> list[int]:
        """Return particles drawn by their weights."""
        return sorted(set(rng.choice(len(self.weights), size=count, p=self.weights).tolist()))
