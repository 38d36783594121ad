"""The command line. Commands read files, call the library and print; they compute nothing themselves."""

import sys
from typing import Annotated

import typer

from fewjoules import __version__
from fewjoules.cli.plugins import CommandGroup

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
    """Federated learning for the fewest joules.

    Describe your devices in a scenario file; FewJoules plans how sparse their updates should be and how many local
    steps to take, trains that way, and accounts for every joule. Commands that train need PyTorch:
    pip install 'fewjoules[train]'.

    Examples:

    \b
      fewjoules compare                     begin here: the embedded scenario, half a minute
      fewjoules init                        your devices: asks a little, writes fleet.toml
      fewjoules plan fleet.toml             its plan of least energy, with a proof
      fewjoules tune fleet.toml             better: optimiser and step size by short pilots
      fewjoules compare fleet-tuned.toml    train what it found beside the other schemes
      fewjoules plan --help                 every option, with examples
    """


def main() -> None:
    """Entry point of the command ``fewjoules``."""
    typer.core.HAS_RICH = False  # with it, plain help shows a backslash before every [default: ...]
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
