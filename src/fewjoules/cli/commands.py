"""The commands of FewJoules itself. The module of a command is imported when the command is called or listed."""

from importlib import import_module
from typing import Any

import typer

# fewjoules.cli.NAME:NAME, as they are listed: in the order of use
LATE = ("init", "profiles", "measure", "calibrate", "plan", "tune", "train", "compare", "export", "studio")


def load_own(name: str) -> Any:
    """Import a command of ``LATE``, a function or an app of several commands."""
    found = getattr(import_module(f"fewjoules.cli.{name}"), name)
    return typer.main.get_command(found) if isinstance(found, typer.Typer) else as_command(name, found)


def as_command(name: str, function: Any) -> Any:
    """Make a command of a function that typer can run."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(name)(function)
    return typer.main.get_command(app)
