"""Power and time of one SGD step on a GPU whose voltage and clocks are set: [LI21] eqs. (18)-(20) after [MEI17].

``fit_gpu`` finds the six coefficients from measurements by least squares.
"""

from dataclasses import dataclass, fields

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError, require_number
from fewjoules.measurements import read_columns

GPU_COLUMNS = ("core_volts", "core_hertz", "memory_hertz", "power_watts", "step_seconds")


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuModel:
    """P = P0 + alpha f_mem + beta v^2 f_core and T = T0 + a / f_mem + b / f_core."""

    static_watts: float
    memory_watts_per_hertz: float
    core_watts_per_volt2_hertz: float
    static_seconds: float
    memory_cycles: float
    core_cycles: float

    def __post_init__(self) -> None:
        """Refuse coefficients that no device can have."""
        for field in fields(self):
            require_number(field.name, getattr(self, field.name), low=0.0)

    def power_watts(self, *, core_volts: float, core_hertz: float, memory_hertz: float) -> float:
        """Power, [LI21] eq. (19)."""
        dynamic = self.core_watts_per_volt2_hertz * core_volts**2 * core_hertz
        return self.static_watts + self.memory_watts_per_hertz * memory_hertz + dynamic

    def step_seconds(self, *, core_hertz: float, memory_hertz: float) -> float:
        """Seconds of one local step, [LI21] eq. (20)."""
        return self.static_seconds + self.memory_cycles / memory_hertz + self.core_cycles / core_hertz

    def step_joules(self, *, core_volts: float, core_hertz: float, memory_hertz: float) -> float:
        """Joules of one local step, power times time, [LI21] eq. (18)."""
        power = self.power_watts(core_volts=core_volts, core_hertz=core_hertz, memory_hertz=memory_hertz)
        return power * self.step_seconds(core_hertz=core_hertz, memory_hertz=memory_hertz)

    def best_core_hertz(
        self, *, volts_at_zero: float, volts_per_hertz: float, memory_hertz: float, low: float, high: float
    ) -> float:
        """Return the core clock in [low, high] with the least joules of a step, if v = v0 + v1 f.

        v0 is ``volts_at_zero``, v1 ``volts_per_hertz``. With A = P0 + alpha f_mem and C = T0 + a / f_mem, setting the
        derivative of (18) to zero gives

            3 C beta v1^2 f^4 + (4 C beta v0 v1 + 2 b beta v1^2) f^3 + (C beta v0^2 + 2 b beta v0 v1) f^2 = A b,

        whose left side rises from 0: it has one root, and the joules fall before it and rise behind it. With v1 = 0
        the root is sqrt(A b / (C beta v0^2)).
        """
        from scipy.optimize import brentq

        watts = self.static_watts + self.memory_watts_per_hertz * memory_hertz
        seconds = self.static_seconds + self.memory_cycles / memory_hertz
        beta, b, v0, v1 = self.core_watts_per_volt2_hertz, self.core_cycles, volts_at_zero, volts_per_hertz
        quartic, cubic = 3.0 * seconds * beta * v1**2, 4.0 * seconds * beta * v0 * v1 + 2.0 * b * beta * v1**2
        square = seconds * beta * v0**2 + 2.0 * b * beta * v0 * v1

        def excess(f: float) -> float:
            return f * f * (square + f * (cubic + f * quartic)) - watts * b

        if excess(low) >= 0.0:
            return low
        return high if excess(high) <= 0.0 else float(brentq(excess, low, high, xtol=1e-12 * low))


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuFit:
    """A fitted model, the standard errors of its coefficients, and its residuals."""

    model: GpuModel
    standard_errors: dict[str, float]
    power_rms_watts: float
    time_rms_seconds: float
    power_residuals_watts: FloatArray
    time_residuals_seconds: FloatArray


def read_gpu_measurements(path: str) -> dict[str, FloatArray]:
    """Read the columns ``GPU_COLUMNS`` of a CSV file, one measured operating point per row, all positive."""
    return read_columns(path, GPU_COLUMNS, above=0.0)


def fit_gpu(measurements: dict[str, FloatArray]) -> GpuFit:
    """Fit power and time separately by least squares; both are linear in their three coefficients."""
    volts, core, memory = (measurements[name] for name in GPU_COLUMNS[:3])
    if core.size <= 3:
        raise InvalidInputError(f"a GPU fit needs at least 4 rows, got {core.size}")
    for name, clock in (("core_hertz", core), ("memory_hertz", memory)):
        if np.ptp(clock) == 0.0:
            raise InvalidInputError(f"{name} must vary between rows to separate its effect, got {clock[0]:g} in all")
    ones = np.ones_like(core)
    power = _least_squares(
        {
            "static_watts": ones,
            "memory_watts_per_hertz": memory,
            "core_watts_per_volt2_hertz": volts**2 * core,
        },
        measurements["power_watts"],
    )
    time = _least_squares(
        {"static_seconds": ones, "memory_cycles": 1.0 / memory, "core_cycles": 1.0 / core},
        measurements["step_seconds"],
    )
    return GpuFit(
        model=GpuModel(**power.coefficients, **time.coefficients),
        standard_errors=power.standard_errors | time.standard_errors,
        power_rms_watts=float(np.sqrt(np.mean(power.residuals**2))),
        time_rms_seconds=float(np.sqrt(np.mean(time.residuals**2))),
        power_residuals_watts=power.residuals,
        time_residuals_seconds=time.residuals,
    )


@dataclass(frozen=True, slots=True)
class _LinearFit:
    coefficients: dict[str, float]
    standard_errors: dict[str, float]
    residuals: FloatArray


def _least_squares(terms: dict[str, FloatArray], target: FloatArray) -> _LinearFit:
    design = np.column_stack(list(terms.values()))
    scale = np.abs(design).max(axis=0)
    solution, _, rank, singular = np.linalg.lstsq(design / scale, target, rcond=1e-9)
    if rank < len(terms):
        raise InvalidInputError(
            f"the measurements cannot tell {', '.join(terms)} apart: vary core_hertz and memory_hertz independently, "
            f"got condition number {singular[0] / max(singular[-1], 1e-300):.3g} (at most 1e9)"
        )
    residuals = target - design @ (solution / scale)
    variance = float(residuals @ residuals) / (target.size - len(terms))
    covariance = np.linalg.inv((design / scale).T @ (design / scale)) * variance
    errors = np.sqrt(np.diag(covariance)) / scale
    coefficients = dict(zip(terms, (solution / scale).tolist(), strict=True))
    for (name, value), error in zip(coefficients.items(), errors, strict=True):
        if value < 0.0:
            raise InvalidInputError(
                f"the measurements imply {name} = {value:.4g} +- {error:.2g}, which is not physical "
                "(must be at least 0): measure more operating points, or leave the term out of the model"
            )
    return _LinearFit(coefficients, dict(zip(terms, errors.tolist(), strict=True)), residuals)
