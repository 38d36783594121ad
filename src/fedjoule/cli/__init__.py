"""The command line. Commands read files, call the library and print; they compute nothing themselves."""

import sys
from typing import Annotated

import typer

from fedjoule import __version__
from fedjoule.cli.calibrate import calibrate
from fedjoule.cli.compare import compare
from fedjoule.cli.plan import plan
from fedjoule.cli.reproduce import reproduce
from fedjoule.cli.train import train

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(plan)
app.command()(train)
app.command()(compare)
app.command()(reproduce)
app.add_typer(calibrate, name="calibrate")


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


def main() -> None:
    """Entry point of the command ``fedjoule``."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
