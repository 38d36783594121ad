"""``fewjoules calibrate``: fit models to measurements."""

from typing import Annotated

import typer

from fewjoules.cli.console import named, plain_errors
from fewjoules.errors import InvalidInputError, require_integer
from fewjoules.physics.fleet import MAX_DEVICES

calibrate = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Fit the models to measurements.")


@calibrate.command("gpu")
def calibrate_gpu(
    measurements: Annotated[str, typer.Argument(metavar="FILE.csv", help="One measured operating point per row.")],
) -> None:
    """Fit the power and time of one SGD step to measurements, as a [device.gpu] table.

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
) -> None:
    """Fit a rounds model to pilot runs, as a [rounds] table.

    The CSV has a header line and the columns sparsity (the same on all devices), local_steps and rounds (to the
    same target). Tune the step size of each run first.

    Example:

    \b
      fewjoules calibrate rounds examples/pilot-runs.csv
      fewjoules calibrate rounds examples/pilot-runs.csv --kind paper --devices 12
    """
    with plain_errors():
        from fewjoules.convergence.fit import PilotRuns, fit_paper_rounds, fit_power_law_rounds
        from fewjoules.reports.fits import rounds_fit_report

        if kind not in ("paper", "power-law"):
            raise InvalidInputError(f"--kind must be paper or power-law, got {kind!r}")
        require_integer("--devices", devices, low=1, high=MAX_DEVICES)
        runs = PilotRuns.from_csv(measurements)
        with named(measurements):
            fit = fit_paper_rounds(runs, devices=devices) if kind == "paper" else fit_power_law_rounds(runs)
        typer.echo(rounds_fit_report(kind, fit, runs))
