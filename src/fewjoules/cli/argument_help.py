"""Say once what ``--help`` says about arguments: with click 8.5, typer up to 0.20 loses it, and both would list it."""

import typing
from typing import Any

from typer.models import ArgumentInfo


def with_argument_help(command: Any) -> Any:
    """Return the command with the help of its arguments, as their annotations state it."""
    for below in getattr(command, "commands", {}).values():
        with_argument_help(below)
    if command is None or command.callback is None:
        return command
    stated = typing.get_type_hints(command.callback, include_extras=True)
    for parameter in command.params:
        marks = getattr(stated.get(parameter.name), "__metadata__", ())
        texts = [mark.help for mark in marks if isinstance(mark, ArgumentInfo) and mark.help]
        if texts and not getattr(parameter, "help", None):
            parameter.help = texts[0]
    command.format_arguments = _left_to_typer
    return command


def _left_to_typer(_context: Any, _formatter: Any) -> None:
    """Write nothing: typer lists the arguments together with the options."""
