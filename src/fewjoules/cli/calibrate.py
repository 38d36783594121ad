"""``fewjoules calibrate``: fit models to measurements."""

from typing import Annotated

import typer

from fewjoules.cli.console import named, plain_errors
from fewjoules.errors import InvalidInputError, require_integer, require_number
from fewjoules.physics.fleet import MAX_DEVICES
from fewjoules.planner.problem import MAX_LOCAL_STEPS, MAX_PARAMETERS

calibrate = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help=(
        "Fit the models to measurements.\n\nExamples:\n\n\b\n"
        "  fewjoules calibrate gpu examples/gpu-measurements.csv\n"
        "  fewjoules calibrate rounds examples/pilot-runs.csv\n"
    ),
)


@calibrate.command("gpu")
def calibrate_gpu(
    measurements: Annotated[str, typer.Argument(metavar="FILE.csv", help="One measured operating point per row.")],
) -> None:
    """Fit power and time of an SGD step, as a [device.gpu] table.

    The CSV has a header line and the columns core_volts, core_hertz, memory_hertz, power_watts and step_seconds. Vary
    both clocks independently; at least 4 rows.

    Example:

    \b
      fewjoules calibrate gpu examples/gpu-measurements.csv
    """
    with plain_errors():
        from fewjoules.physics.gpu import fit_gpu, read_gpu_measurements
        from fewjoules.reports.fits import gpu_fit_report

        columns = read_gpu_measurements(measurements)
        with named(measurements):
            fit = fit_gpu(columns)
        typer.echo(gpu_fit_report(fit, columns))


@calibrate.command("rounds")
def calibrate_rounds(
    measurements: Annotated[str, typer.Argument(metavar="FILE.csv", help="One pilot run per row.")],
    kind: Annotated[str, typer.Option(metavar="paper|power-law", help="The rounds model to fit.")] = "power-law",
    devices: Annotated[int, typer.Option(help="Devices in the pilot runs; only kind paper needs it.")] = 12,
    max_local_steps: Annotated[int, typer.Option(help="Largest H of a run to suggest.")] = 20,
    max_sparsity: Annotated[float, typer.Option(help="Largest sparsity of a run to suggest.")] = 1000.0,
) -> None:
    """Fit a rounds model to pilot runs, as a [rounds] table.

    The CSV has a header line and the columns sparsity (the same on all devices), local_steps and rounds (to the
    same target). Tune the step size of each run first.

    If the runs leave a constant open by more than a factor of ten, the first line says so and suggests the run that
    would narrow it most.

    Example:

    \b
      fewjoules calibrate rounds examples/pilot-runs.csv
      fewjoules calibrate rounds examples/pilot-runs.csv --kind paper --devices 12
    """
    with plain_errors():
        from fewjoules.convergence.fit import PilotRuns, fit_paper_rounds, fit_power_law_rounds
        from fewjoules.convergence.identify import Candidates
        from fewjoules.reports.fits import rounds_fit_report

        if kind not in ("paper", "power-law"):
            raise InvalidInputError(f"--kind must be paper or power-law, got {kind!r}")
        require_integer("--devices", devices, low=1, high=MAX_DEVICES)
        require_integer("--max-local-steps", max_local_steps, low=1, high=MAX_LOCAL_STEPS)
        require_number("--max-sparsity", max_sparsity, low=1.0, high=float(MAX_PARAMETERS))
        candidates = Candidates.up_to(max_local_steps, max_sparsity)
        runs = PilotRuns.from_csv(measurements)
        with named(measurements):
            if kind == "paper":
                report = rounds_fit_report(kind, fit_paper_rounds(runs, devices=devices, candidates=candidates), runs)
            else:
                report = rounds_fit_report(kind, fit_power_law_rounds(runs, candidates=candidates), runs)
        typer.echo(report)
