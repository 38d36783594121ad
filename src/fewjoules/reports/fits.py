"""Fitted models as TOML tables to paste into a scenario, with residuals as comments."""

from dataclasses import asdict

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.convergence.fit import PilotRuns, RoundsFit
from fewjoules.convergence.intervals import within_range
from fewjoules.convergence.rounds import PaperRounds, PowerLawRounds
from fewjoules.physics.gpu import GpuFit


def gpu_fit_report(fit: GpuFit, measurements: dict[str, FloatArray]) -> str:
    """Return a [device.gpu] table at the first measured operating point, with standard errors and residuals."""
    power, seconds = measurements["power_watts"], measurements["step_seconds"]
    lines = [
        f"# fitted to {power.size} operating points; residuals (rms, largest):",
        f"#   power {fit.power_rms_watts:.3g} W ({_percent(fit.power_residuals_watts / power)}), "
        f"time {fit.time_rms_seconds:.3g} s ({_percent(fit.time_residuals_seconds / seconds)})",
        "[device.gpu]",
    ]
    for name, value in asdict(fit.model).items():
        lines.append(f"{name} = {value:.8g}  # +- {fit.standard_errors[name]:.2g}")
    lines.append("# the operating point of the first row; set the one that the device will run at")
    lines += [f"{name} = {measurements[name][0]:.8g}" for name in ("core_volts", "core_hertz", "memory_hertz")]
    return "\n".join(lines)


def rounds_fit_report(kind: str, fit: RoundsFit[PaperRounds] | RoundsFit[PowerLawRounds], runs: PilotRuns) -> str:
    """Return a [rounds] table with 95 % intervals, residuals, and advice if a constant is not identified."""
    lines = [
        f"# fitted to {runs.rounds.size} pilot runs; rms residual {fit.rms_log_residual:.2%} of the rounds",
        "# sparsity  local_steps     rounds  residual",
    ]
    if fit.advice is not None:
        lines.insert(0, f"# {fit.advice}")
    columns = zip(runs.sparsity, runs.local_steps, runs.rounds, fit.log_residuals, strict=True)
    lines += [f"# {d:8.6g}  {h:11g}  {k:9.6g}  {r:+8.1%}" for d, h, k, r in columns]
    lines += ["[rounds]", f'kind = "{kind}"']
    lines += [f"{name} = {value:.6g}" for name, value in asdict(fit.model).items()]
    ends = {name: within_range(name, interval) for name, interval in fit.intervals.items()}
    pairs = ", ".join(f"{name} = [{low:.6g}, {high:.6g}]" for name, (low, high) in ends.items())
    lines.append(f"intervals = {{{pairs}}}  # 95 %")
    lines.append(f"correlations = [{', '.join(f'{value:.7f}' for value in fit.correlations)}]")
    return "\n".join(lines)


def _percent(relative: FloatArray) -> str:
    return f"{np.sqrt(np.mean(relative**2)):.2%}, {np.abs(relative).max():.2%}"
