"""The command line. Commands read files, call the library and print; they compute nothing themselves."""

import sys
from typing import Annotated

import typer

from fewjoules import __version__
from fewjoules.cli.calibrate import calibrate
from fewjoules.cli.compare import compare
from fewjoules.cli.export import export
from fewjoules.cli.init import init
from fewjoules.cli.measure import measure
from fewjoules.cli.plan import plan
from fewjoules.cli.plugins import CommandGroup
from fewjoules.cli.profiles import profiles
from fewjoules.cli.train import train
from fewjoules.cli.tune import tune

app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(init)
app.command()(plan)
app.command()(tune)
app.command()(train)
app.command()(compare)
app.command()(export)
app.command()(profiles)
app.add_typer(calibrate, name="calibrate")
app.add_typer(measure, name="measure")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fewjoules {__version__}")
        raise typer.Exit


@app.callback()
def fewjoules(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Federated learning for the fewest joules."""


def main() -> None:
    """Entry point of the command ``fewjoules``."""
    typer.core.HAS_RICH = False  # with it, plain help shows a backslash before every [default: ...]
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
