"""Fit a rounds model to pilot runs: rounds measured at several sparsities (the same on all devices) and H.

Rounds span decades, so the fit is least squares in ln(rounds); intervals come from its Jacobian.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.convergence.rounds import PaperRounds, PowerLawRounds
from fewjoules.errors import InvalidInputError, require_array, require_integer
from fewjoules.measurements import read_columns

ROUNDS_COLUMNS = ("sparsity", "local_steps", "rounds")

Model = TypeVar("Model", PaperRounds, PowerLawRounds)


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundsFit(Generic[Model]):
    """A fitted model; ``log_residuals`` are ln(measured / model), ``intervals`` hold 95 % confidence."""

    model: Model
    intervals: dict[str, tuple[float, float]]
    log_residuals: FloatArray

    @property
    def rms_log_residual(self) -> float:
        """Root mean square of ``log_residuals``: 0.03 means that the model is typically 3 % off."""
        return float(np.sqrt(np.mean(self.log_residuals**2)))


@dataclass(frozen=True, slots=True)
class PilotRuns:
    """Measured (sparsity, local_steps, rounds), one entry per run."""

    sparsity: FloatArray
    local_steps: FloatArray
    rounds: FloatArray

    @classmethod
    def of(cls, sparsity: ArrayLike, local_steps: ArrayLike, rounds: ArrayLike) -> "PilotRuns":
        """Check and broadcast the three columns."""
        columns = (
            require_array("sparsity", sparsity, low=1.0),
            require_array("local_steps", local_steps, low=1.0),
            require_array("rounds", rounds),
        )
        if np.any(columns[2] <= 0.0):
            raise InvalidInputError(f"rounds must be above 0, got {float(columns[2].min())!r}")
        fractional = columns[1][columns[1] % 1.0 != 0.0]
        if fractional.size:
            raise InvalidInputError(
                f"local_steps must be whole numbers of at least 1, got {float(fractional.flat[0])!r}"
            )
        try:
            return cls(*(np.array(np.atleast_1d(x)) for x in np.broadcast_arrays(*columns)))
        except ValueError as error:
            shapes = ", ".join(str(x.size) for x in columns)
            raise InvalidInputError(f"the columns must have equally many entries, got {shapes}") from error

    @classmethod
    def from_csv(cls, path: str | Path) -> "PilotRuns":
        """Read the columns ``ROUNDS_COLUMNS`` of a CSV file."""
        sparsity, local_steps = (read_columns(path, (name,), low=1.0)[name] for name in ROUNDS_COLUMNS[:2])
        rounds = read_columns(path, ("rounds",), above=0.0)["rounds"]
        try:
            return cls.of(sparsity, local_steps, rounds)
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}: {error}") from error

    def require_variety(self, parameters: int, sparsities: int, local_steps: int) -> None:
        """Refuse runs that vary too little to determine the constants."""
        for name, array, least in (
            ("rows", np.arange(self.rounds.size), parameters + 1),
            ("different pairs of sparsity and local_steps", self.sparsity + 1j * self.local_steps, parameters),
            ("different sparsity values", self.sparsity, sparsities),
            ("different local_steps values", self.local_steps, local_steps),
        ):
            if np.unique(array).size < least:
                raise InvalidInputError(f"the fit needs at least {least} {name}, got {np.unique(array).size}")


def fit_paper_rounds(runs: PilotRuns, *, devices: int) -> RoundsFit[PaperRounds]:
    """Fit alpha and beta of ``PaperRounds`` to runs with ``devices`` devices."""
    require_integer("devices", devices, low=1, high=10_000_000)
    runs.require_variety(parameters=2, sparsities=1, local_steps=1)
    drift = devices * runs.local_steps * runs.sparsity**2
    noise = 1.0 / (np.sqrt(devices) * runs.local_steps)
    (alpha, beta), _ = _relative_nnls([drift, noise], runs.rounds)
    _require_growth("alpha", alpha, runs)
    _require_growth("beta", beta, runs)

    def log_rounds(theta: FloatArray) -> FloatArray:
        return np.log(np.exp(theta[0]) * drift + np.exp(theta[1]) * noise)

    theta, error = _refine(log_rounds, np.log([alpha, beta]), runs.rounds)
    low, high = np.exp(theta - error), np.exp(theta + error)
    alpha, beta = np.exp(theta).tolist()
    return RoundsFit(
        model=PaperRounds(alpha=alpha, beta=beta),
        intervals={"alpha": (float(low[0]), float(high[0])), "beta": (float(low[1]), float(high[1]))},
        log_residuals=np.log(runs.rounds) - log_rounds(theta),
    )


def fit_power_law_rounds(runs: PilotRuns) -> RoundsFit[PowerLawRounds]:
    """Fit tau, c, a and q of ``PowerLawRounds``; they hold for the number of devices of the runs."""
    runs.require_variety(parameters=4, sparsities=3, local_steps=2)
    H, delta = runs.local_steps, runs.sparsity

    def log_rounds(theta: FloatArray) -> FloatArray:
        log_tau, log_c, a, log_q = theta
        return log_tau - np.log(H) + np.log1p(np.exp(log_c + a * np.log(H) + np.exp(log_q) * np.log(delta)))

    theta, error = _refine(log_rounds, _power_law_start(runs), runs.rounds)
    tau, c, a, q = np.exp(theta[0]), np.exp(theta[1]), theta[2], np.exp(theta[3])
    low, high = theta - error, theta + error
    low[[0, 1, 3]], high[[0, 1, 3]] = np.exp(low[[0, 1, 3]]), np.exp(high[[0, 1, 3]])
    return RoundsFit(
        model=PowerLawRounds(tau=float(tau), c=float(c), a=float(a), q=float(q)),
        intervals={name: (float(low[i]), float(high[i])) for i, name in enumerate(("tau", "c", "a", "q"))},
        log_residuals=np.log(runs.rounds) - log_rounds(theta),
    )


def _power_law_start(runs: PilotRuns) -> FloatArray:
    """Return the best point of a grid over the two exponents; for given exponents, tau and tau c are linear."""
    best, start = np.inf, None
    for a, q in itertools.product(np.linspace(-0.5, 2.0, 11), np.geomspace(0.1, 3.0, 15)):
        terms = [1.0 / runs.local_steps, runs.local_steps ** (a - 1.0) * runs.sparsity**q]
        (tau, tau_c), misfit = _relative_nnls(terms, runs.rounds)
        if misfit < best:
            best, start = misfit, (tau, tau_c, a, q)
    assert start is not None
    tau, tau_c, a, q = start
    _require_growth("tau", tau, runs)
    _require_growth("c", tau_c, runs)
    return np.array([np.log(tau), np.log(tau_c / tau), a, np.log(q)])


def _require_growth(name: str, value: float, runs: PilotRuns) -> None:
    if not value > 0.0:
        raise InvalidInputError(
            f"the measurements contradict the model: the best {name} is 0 (must be above 0), so rounds do not "
            f"depend on sparsity and local steps as it supposes; tune the step size of each of the "
            f"{runs.rounds.size} runs first, or fit another model"
        )


def _relative_nnls(terms: Sequence[FloatArray], target: FloatArray) -> tuple[list[float], float]:
    """Return the non-negative coefficients of least squared relative misfit, and its norm."""
    from scipy.optimize import nnls

    design = np.column_stack(terms) / target[:, None]
    scale = design.max(axis=0)
    solution, misfit = nnls(design / scale, np.ones_like(target))
    return (solution / scale).tolist(), float(misfit)


def _refine(
    log_rounds: Callable[[FloatArray], FloatArray],
    start: FloatArray,
    rounds: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Fit by least squares in ln(rounds); return the parameters and half the width of their 95 % intervals."""
    from scipy.optimize import least_squares
    from scipy.special import stdtrit

    def misfit(theta: FloatArray) -> FloatArray:
        return log_rounds(theta) - np.log(rounds)

    result = least_squares(
        misfit,
        start,
        x_scale="jac",
        xtol=1e-12,
        ftol=1e-12,
        gtol=1e-12,
    )
    freedom = rounds.size - start.size
    _, singular, rotation = np.linalg.svd(np.asarray(result.jac, dtype=np.float64), full_matrices=False)
    if not singular[-1] > 1e-10 * singular[0]:
        raise InvalidInputError(
            "the measurements cannot tell the model's constants apart: vary sparsity and local_steps more, "
            f"got {rounds.size} runs with condition number {singular[0] / max(singular[-1], 1e-300):.3g} (at most 1e10)"
        )
    covariance = (rotation.T / singular**2) @ rotation * (2.0 * result.cost / freedom)
    return result.x, float(stdtrit(freedom, 0.975)) * np.sqrt(np.diag(covariance))
