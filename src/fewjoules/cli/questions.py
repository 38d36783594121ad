"""Questions on a terminal: what was not given by an option is asked, and a bad answer is asked again."""

import sys
from collections.abc import Callable
from typing import TypeVar

import typer

from fewjoules.errors import InvalidInputError

Answer = TypeVar("Answer")


def can_ask() -> bool:
    """Whether somebody sits at a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(question: str, usual: str, read: Callable[[str], Answer]) -> Answer:
    """Ask until the answer can be read; Enter takes the usual one, and Ctrl-C ends the command with code 130."""
    while True:
        try:
            return read(str(typer.prompt(question, default=usual)))
        except InvalidInputError as error:
            typer.echo(f"  {error}")
        except typer.Abort as error:
            typer.echo(err=True)  # the question has not ended its line
            if isinstance(error.__context__, EOFError):
                raise InvalidInputError(
                    "the input ended before the last answer, and nothing was written; --yes asks nothing and takes the "
                    "usual answers"
                ) from None
            typer.echo("stopped; nothing was written", err=True)
            raise typer.Exit(130) from None
