"""The command line. Commands read files, call the library and print; they compute nothing themselves."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Annotated, Optional, cast

import typer

from fedjoule import __version__
from fedjoule.errors import FedJouleError, FedJouleWarning, InfeasiblePlanError, InvalidInputError, require_integer
from fedjoule.physics.fleet import MAX_DEVICES
from fedjoule.planner.plan import Plan, plans_to_json
from fedjoule.planner.problem import ControlProblem
from fedjoule.planner.schemes import SCHEMES
from fedjoule.planner.solve import Solver

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
calibrate = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Fit the models to measurements.")
app.add_typer(calibrate, name="calibrate")


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """One sentence on stderr and exit code 2 for whatever FedJoule refuses; warnings as one line each."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", FedJouleWarning)
        warnings.showwarning = lambda message, *_args, **_kw: typer.echo(f"warning: {message}", err=True)
        try:
            yield
        except FedJouleError as error:
            text = " ".join(str(error).split())
            typer.echo(f"error: {text}", err=True)
            raise typer.Exit(2) from error


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedjoule {__version__}")
        raise typer.Exit


@app.callback()
def fedjoule(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Federated learning for the fewest joules."""


@app.command()
def plan(
    scenario: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Argument(help="Scenario file (TOML). Left out: the embedded one, 12 devices in four groups."),
    ] = None,
    scheme: Annotated[
        str, typer.Option(metavar="NAME|all", help=f"One of {', '.join(SCHEMES)}; or all, to compare them.")
    ] = "flexible",
    solver: Annotated[
        str,
        typer.Option(metavar="pareto|benders", help="pareto proves its plan; benders is the paper's Algorithm 2."),
    ] = "pareto",
    json: Annotated[bool, typer.Option("--json", help="Print the plans as JSON and nothing else.")] = False,
    plot: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="FILE", help="Also draw energy against H (.png, .pdf or .svg)."),
    ] = None,
) -> None:
    """Plan sparsity and local steps for least energy, with a proof.

    For each device the plan says how sparse its updates should be (delta: one entry in delta is sent), and for all
    how many local steps H to take between synchronisations. It splits the predicted joules into radio and
    compute, and states how far any other plan could at most be below it (the proved gap).

    Examples:

    \b
      fedjoule plan                                  the embedded scenario
      fedjoule plan fleet.toml                       the plan of least energy
      fedjoule plan fleet.toml --scheme all          beside five baselines
      fedjoule plan fleet.toml --plot ridge.png      energy against H
      fedjoule plan fleet.toml --json > plan.json    for scripts
      fedjoule plan fleet.toml --solver benders      the paper's own algorithm

    The keys of a scenario file are listed in docs/scenario.md; examples/ holds three to start from.
    """
    with plain_errors():
        from fedjoule.scenario import Scenario

        names = list(SCHEMES) if scheme == "all" else [scheme]
        if names[0] not in SCHEMES:
            raise InvalidInputError(f"--scheme must be one of {', '.join(SCHEMES)} or all, got {scheme!r}")
        if solver not in ("pareto", "benders"):
            raise InvalidInputError(f"--solver must be pareto or benders, got {solver!r}")
        if plot is not None:
            from fedjoule.reports.plots import plot_energy_by_local_steps, require_plot_path

            require_plot_path(plot)
        chosen = Scenario.embedded() if scenario is None else Scenario.from_toml(scenario)
        problem = chosen.problem()
        plans = _plans(problem, names, cast(Solver, solver))
        if plot is not None:
            plot_energy_by_local_steps(problem, plans, plot)
        if json:
            typer.echo(plans_to_json(plans))
            return
        from rich.console import Console

        from fedjoule.reports.tables import plan_report

        width = None if sys.stdout.isatty() else 120
        Console(width=width, highlight=False).print(plan_report(chosen, plans))


def _plans(problem: ControlProblem, names: list[str], solver: Solver) -> list[Plan]:
    """Plans of the schemes; of several, those that cannot meet the constraints are left out with a warning."""
    plans: list[Plan] = []
    for name in names:
        try:
            plans.append(SCHEMES[name](problem, solver=solver))
        except InfeasiblePlanError as error:
            if len(names) == 1 or name == "flexible":
                raise
            warnings.warn(f"scheme {name} is left out: {error}", FedJouleWarning, stacklevel=2)
    return plans


@calibrate.command("gpu")
def calibrate_gpu(
    measurements: Annotated[str, typer.Argument(metavar="FILE.csv", help="One measured operating point a row.")],
) -> None:
    """Fit the power and time of one SGD step to measurements, as a [device.gpu] table.

    The CSV has a header line and the columns core_volts, core_hertz, memory_hertz, power_watts and step_seconds. Vary
    both clocks independently; at least 4 rows.

    Example:

    \b
      fedjoule calibrate gpu examples/gpu-measurements.csv
    """
    with plain_errors():
        from fedjoule.physics.gpu import fit_gpu, read_gpu_measurements
        from fedjoule.reports.fits import gpu_fit_report

        columns = read_gpu_measurements(measurements)
        with _named(measurements):
            fit = fit_gpu(columns)
        typer.echo(gpu_fit_report(fit, columns))


@calibrate.command("rounds")
def calibrate_rounds(
    measurements: Annotated[str, typer.Argument(metavar="FILE.csv", help="One pilot run a row.")],
    kind: Annotated[str, typer.Option(metavar="paper|power-law", help="The rounds model to fit.")] = "power-law",
    devices: Annotated[int, typer.Option(help="Devices in the pilot runs; only kind paper needs it.")] = 12,
) -> None:
    """Fit a rounds model to pilot runs, as a [rounds] table.

    The CSV has a header line and the columns sparsity (the same on all devices), local_steps and rounds (to the
    same target). Tune the step size of each run first.

    Example:

    \b
      fedjoule calibrate rounds examples/pilot-runs.csv
      fedjoule calibrate rounds examples/pilot-runs.csv --kind paper --devices 12
    """
    with plain_errors():
        from fedjoule.convergence.fit import PilotRuns, fit_paper_rounds, fit_power_law_rounds
        from fedjoule.reports.fits import rounds_fit_report

        if kind not in ("paper", "power-law"):
            raise InvalidInputError(f"--kind must be paper or power-law, got {kind!r}")
        require_integer("--devices", devices, low=1, high=MAX_DEVICES)
        runs = PilotRuns.from_csv(measurements)
        with _named(measurements):
            fit = fit_paper_rounds(runs, devices=devices) if kind == "paper" else fit_power_law_rounds(runs)
        typer.echo(rounds_fit_report(kind, fit, runs))


@contextlib.contextmanager
def _named(file: str) -> Iterator[None]:
    """Errors within name the file whose contents caused them."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{file}: {error}") from error


def main() -> None:
    """Entry point of the command ``fedjoule``."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
