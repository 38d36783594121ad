"""What all commands share: how they fail, warn and print."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from fewjoules.errors import DivergedError, FewJoulesError, FewJoulesWarning, InvalidInputError

if TYPE_CHECKING:
    from rich.console import Console


_GPU_MEMORY = (
    "the memory of the GPU does not suffice for this model, batch and number of clients beside what else runs there; "
    "free some of it, use smaller batches, fewer --processes or --device cpu"
)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """One sentence on stderr: exit code 2 for whatever FewJoules refuses, 1 for a failed run; warnings likewise."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", FewJoulesWarning)
        warnings.showwarning = lambda message, *_args, **_kw: typer.echo(f"warning: {message}", err=True)
        try:
            yield
        except (FewJoulesError, OSError) as error:
            text = " ".join(str(error).split())
            typer.echo(f"error: {text}", err=True)
            failed = isinstance(error, DivergedError | OSError)
            raise typer.Exit(1 if failed else 2) from error
        except RuntimeError as error:
            if not _is_short_of_gpu_memory(error):
                raise
            typer.echo(f"error: {_GPU_MEMORY}", err=True)
            raise typer.Exit(1) from error


def _is_short_of_gpu_memory(error: RuntimeError) -> bool:
    torch = sys.modules.get("torch")  # which most commands do not need
    if torch is not None and isinstance(error, torch.cuda.OutOfMemoryError):
        return True
    # where not even the runtime's own share is left, torch has no class of its own for it
    return any(sign in str(error) for sign in ("CUDA error: out of memory", "_STATUS_ALLOC_FAILED"))


@contextlib.contextmanager
def named(file: str) -> Iterator[None]:
    """Errors within name the file whose contents caused them."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{file}: {error}") from error


def console() -> "Console":
    """Where tables go: as wide as the terminal, or 120 characters into a file."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)
