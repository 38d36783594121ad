"""Commands that other distributions add to ``fewjoules``, by entry points of the group ``fewjoules.commands``.

An entry point names a function that typer can run. It is loaded when the command is called or listed, not before.
"""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from fewjoules.cli.argument_help import with_argument_help
from fewjoules.cli.commands import LATE, as_command, load_own
from fewjoules.cli.console import plain_errors
from fewjoules.errors import FewJoulesError

GROUP = "fewjoules.commands"
NOT_INSTALLED = {
    "reproduce": "fewjoules reproduce needs fewjoules-reproduction, which is not installed: run "
    "`pip install ./reproduction` in the repository of FewJoules",
}


class CommandGroup(TyperGroup):
    """The commands of FewJoules in the order of use, followed by those of installed plug-ins by their names."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands; a plug-in cannot replace a command of FewJoules."""
        return [*LATE, *sorted(installed().keys() - set(LATE))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if it is unknown; a plug-in that fails to load is skipped with a warning."""
        own = self._own(ctx, cmd_name)
        plugins = installed() if own is None else {}
        if cmd_name not in plugins:
            return with_argument_help(own)
        try:
            return load(plugins[cmd_name])
        except FewJoulesError as error:
            typer.echo(f"warning: {error}", err=True)
            return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that was called; if its plug-in is missing or fails to load, exit with code 2."""
        self.suggest_commands = False  # click suggests one, and once is enough
        if self._own(ctx, args[0]) is None:
            with plain_errors():
                _require(args[0])
        return super().resolve_command(ctx, args)

    def _own(self, ctx: Any, name: str) -> Any:
        if name in LATE and name not in self.commands:
            self.add_command(load_own(name), name)
        return super().get_command(ctx, name)


def installed() -> Mapping[str, EntryPoint]:
    """Entry points of all installed plug-ins by name of their command."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def load(entry: EntryPoint) -> Any:
    """Load the command of a plug-in."""
    try:
        return as_command(entry.name, entry.load())
    except Exception as error:
        origin = f" of {entry.dist.name}" if entry.dist is not None else ""
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise FewJoulesError(f"the command {entry.name!r}{origin} cannot be loaded ({reason})") from error


def _require(name: str) -> None:
    """Raise if the command is that of a plug-in that is missing or fails to load."""
    plugins = installed()
    if name in plugins:
        load(plugins[name])
    elif name in NOT_INSTALLED:
        raise FewJoulesError(NOT_INSTALLED[name])
