"""Fit a rounds model to pilot runs: rounds measured at several sparsities (the same on all devices) and H.

Rounds span decades, so the fit is least squares in ln(rounds); intervals come from its Jacobian.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.convergence.identify import Candidates, NextRun, not_identified, unidentified
from fewjoules.convergence.intervals import Interval
from fewjoules.convergence.rounds import MAX_EXPONENT, MIN_POWER, PaperRounds, PowerLawRounds
from fewjoules.errors import InvalidInputError, require_array, require_integer
from fewjoules.measurements import read_columns

ROUNDS_COLUMNS = ("sparsity", "local_steps", "rounds")
USUAL_CANDIDATES = Candidates.up_to(max_local_steps=20, max_sparsity=1000.0)

Model = TypeVar("Model", PaperRounds, PowerLawRounds)


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundsFit(Generic[Model]):
    """A fitted model; ``log_residuals`` are ln(measured / model), ``intervals`` hold 95 % confidence.

    ``correlations`` are as in ``LawIntervals``. ``next_run`` is the run to add where a constant is not identified, and
    None where all are.
    """

    model: Model
    intervals: dict[str, Interval]
    log_residuals: FloatArray
    correlations: tuple[float, ...]
    next_run: NextRun | None

    @property
    def rms_log_residual(self) -> float:
        """Root mean square of ``log_residuals``: 0.03 means that the model is typically 3 % off."""
        return float(np.sqrt(np.mean(self.log_residuals**2)))

    @property
    def unidentified(self) -> tuple[str, ...]:
        """Constants that these runs leave open by more than a factor of ten, the worst first."""
        return unidentified(self.intervals)

    @property
    def advice(self) -> str | None:
        """Say which constants are not identified and which run to add; None if all are identified."""
        if self.next_run is None:
            return None
        return (
            f"{not_identified(self.intervals, by=' by these runs')}; "
            f"add a run at H = {self.next_run.local_steps}, sparsity {self.next_run.sparsity:g}"
        )


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


def fit_paper_rounds(
    runs: PilotRuns, *, devices: int, candidates: Candidates = USUAL_CANDIDATES
) -> RoundsFit[PaperRounds]:
    """Fit alpha and beta of ``PaperRounds`` to runs with ``devices`` devices."""
    require_integer("devices", devices, low=1, high=10_000_000)
    runs.require_variety(parameters=2, sparsities=1, local_steps=1)

    def terms(steps: FloatArray, sparsity: FloatArray) -> tuple[FloatArray, FloatArray]:
        return devices * steps * sparsity**2, 1.0 / (np.sqrt(devices) * steps)

    def log_rounds(theta: FloatArray) -> FloatArray:
        drift, noise = terms(runs.local_steps, runs.sparsity)
        return np.log(np.exp(theta[0]) * drift + np.exp(theta[1]) * noise)

    def gradients(theta: FloatArray, steps: FloatArray, sparsity: FloatArray) -> FloatArray:
        drift, noise = (np.exp(log) * term for log, term in zip(theta, terms(steps, sparsity), strict=True))
        return np.column_stack([drift, noise]) / (drift + noise)[:, None]

    (alpha, beta), _ = _relative_nnls(terms(runs.local_steps, runs.sparsity), runs.rounds)
    _require_growth("alpha", alpha, runs)
    _require_growth("beta", beta, runs)
    refined = _refine(log_rounds, np.log([alpha, beta]), runs.rounds)
    intervals = refined.intervals({"alpha": np.exp, "beta": np.exp})
    return RoundsFit(
        model=PaperRounds(alpha=float(np.exp(refined.theta[0])), beta=float(np.exp(refined.theta[1]))),
        intervals=intervals,
        log_residuals=np.log(runs.rounds) - log_rounds(refined.theta),
        correlations=refined.correlations,
        next_run=_next_run(refined, intervals, gradients, candidates),
    )


def fit_power_law_rounds(runs: PilotRuns, *, candidates: Candidates = USUAL_CANDIDATES) -> RoundsFit[PowerLawRounds]:
    """Fit tau, c, a and q of ``PowerLawRounds``; they hold for the number of devices of the runs."""
    runs.require_variety(parameters=4, sparsities=3, local_steps=2)

    def log_growth(theta: FloatArray, steps: FloatArray, sparsity: FloatArray) -> FloatArray:
        _, log_c, a, log_q = theta
        return np.asarray(log_c + a * np.log(steps) + np.exp(log_q) * np.log(sparsity))

    def log_rounds(theta: FloatArray) -> FloatArray:
        growth = log_growth(theta, runs.local_steps, runs.sparsity)
        return np.asarray(theta[0] - np.log(runs.local_steps) + np.log1p(np.exp(growth)))

    def gradients(theta: FloatArray, steps: FloatArray, sparsity: FloatArray) -> FloatArray:
        share = 1.0 / (1.0 + np.exp(-log_growth(theta, steps, sparsity)))
        columns = (np.ones_like(share), share, share * np.log(steps), share * np.exp(theta[3]) * np.log(sparsity))
        return np.column_stack(columns)

    with np.errstate(over="ignore"):  # steps of the search may overshoot; least_squares takes them back
        refined = _refine(log_rounds, _power_law_start(runs), runs.rounds)
        intervals = refined.intervals({"tau": np.exp, "c": np.exp, "a": np.asarray, "q": np.exp})
        next_run = _next_run(refined, intervals, gradients, candidates)
    theta = refined.theta
    for name, value in (("a", theta[2]), ("q", np.exp(theta[3]))):
        if abs(value) > MAX_EXPONENT:
            raise InvalidInputError(
                f"the measurements do not determine {name}: its best value must be at most {MAX_EXPONENT:g} in size, "
                f"got {value:.4g}; vary sparsity and local_steps more, or measure the {runs.rounds.size} runs again"
            )
    return RoundsFit(
        model=PowerLawRounds(
            tau=float(np.exp(theta[0])),
            c=float(np.exp(theta[1])),
            a=float(theta[2]),
            q=max(float(np.exp(theta[3])), MIN_POWER),
        ),
        intervals=intervals,
        log_residuals=np.log(runs.rounds) - log_rounds(theta),
        correlations=refined.correlations,
        next_run=next_run,
    )


def _next_run(
    refined: "_Refined",
    intervals: dict[str, Interval],
    gradients: Callable[[FloatArray, FloatArray, FloatArray], FloatArray],
    candidates: Candidates,
) -> NextRun | None:
    """Return the run that would shrink the worst interval most, or None if every constant is identified."""
    poor = unidentified(intervals)
    if not poor:
        return None
    at_candidates = gradients(refined.theta, candidates.local_steps, candidates.sparsity)
    return candidates.best(at_candidates, refined.scatter, list(intervals).index(poor[0]))


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


@dataclass(frozen=True, slots=True)
class _Refined:
    """The best parameters, half the width of their 95 % intervals, and (J'J)^-1."""

    theta: FloatArray
    error: FloatArray
    scatter: FloatArray

    @property
    def correlations(self) -> tuple[float, ...]:
        """The upper triangle of the correlations of the parameters, row by row."""
        deviations = np.sqrt(np.diag(self.scatter))
        matrix = np.clip(self.scatter / np.outer(deviations, deviations), -1.0, 1.0)
        return tuple(matrix[np.triu_indices_from(matrix, 1)].tolist())

    def intervals(self, constants: Mapping[str, Callable[[FloatArray], FloatArray]]) -> dict[str, Interval]:
        """Return the interval of each constant; ``constants`` says how it follows from its parameter."""
        ends = zip(constants.items(), self.theta - self.error, self.theta + self.error, strict=True)
        return {name: (float(constant(low)), float(constant(high))) for (name, constant), low, high in ends}


def _refine(log_rounds: Callable[[FloatArray], FloatArray], start: FloatArray, rounds: FloatArray) -> _Refined:
    """Fit by least squares in ln(rounds)."""
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
    scatter = (rotation.T / singular**2) @ rotation
    covariance = scatter * (2.0 * result.cost / freedom)
    return _Refined(result.x, float(stdtrit(freedom, 0.975)) * np.sqrt(np.diag(covariance)), scatter)
