"""How all commands report errors, warn and print."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from fewjoules.errors import (
    DivergedError,
    FewJoulesError,
    FewJoulesWarning,
    InvalidInputError,
    MeterError,
    RankError,
    TargetOutOfReachError,
)
from fewjoules.extras import extras_explained
from fewjoules.torchrun import follows_another_rank, ranks_started

if TYPE_CHECKING:
    from rich.console import Console


_GPU_MEMORY = (
    "the GPU does not have enough free memory for this model, batch and number of clients; free some of it, use "
    "smaller batches, fewer --processes or --device cpu"
)
_MEMORY = (
    "there is not enough free memory for this model, batch and number of clients; free some of it, or use smaller "
    "batches, fewer clients or fewer --processes; what was saved before is kept"
)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Print errors and warnings as one sentence on stderr; exit with code 2 for refused input, 1 for a failed run.

    Notes of an error, such as lines to paste, follow it as they are.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if follows_another_rank() else "always", FewJoulesWarning)
        warnings.showwarning = lambda message, *_args, **_kw: typer.echo(f"warning: {message}", err=True)
        try:
            with extras_explained("this command"):
                yield
        except (FewJoulesError, OSError) as error:
            if not (follows_another_rank() and _is_known_to_ranks(error)):
                typer.echo("\n".join([f"error: {_sentence(error)}", *getattr(error, "__notes__", ())]), err=True)
            failed = isinstance(error, DivergedError | MeterError | RankError | TargetOutOfReachError | OSError)
            raise typer.Exit(1 if failed else 2) from error
        except (MemoryError, RuntimeError) as error:
            short_of = _memory_short_of(error)
            if short_of is None:
                raise
            typer.echo(f"error: {short_of}", err=True)
            raise typer.Exit(1) from error


def require_one_process(command: str) -> None:
    """Refuse a command that ``torchrun`` has started several times: each process would do all of it."""
    if ranks_started() > 1:
        raise InvalidInputError(f"{command} runs in one process; torchrun shares out fewjoules train only")


def _is_known_to_ranks(error: Exception) -> bool:
    """Whether the first rank says it, too."""
    return isinstance(error, DivergedError | RankError) or getattr(error, "known_to_ranks", False)


def _sentence(error: FewJoulesError | OSError) -> str:
    """Return the error in one line, with the file first where the system names one."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    return " ".join(text.split())


def _memory_short_of(error: MemoryError | RuntimeError) -> str | None:
    """Say which memory was too small; None if the error is another one."""
    torch = sys.modules.get("torch")  # most commands do not import it
    if torch is not None and isinstance(error, torch.cuda.OutOfMemoryError):
        return _GPU_MEMORY
    # torch has no class of its own for the processor's memory, nor for that of the CUDA runtime
    if any(sign in str(error) for sign in ("CUDA error: out of memory", "_STATUS_ALLOC_FAILED")):
        return _GPU_MEMORY
    return _MEMORY if isinstance(error, MemoryError) or "can't allocate memory" in str(error) else None


@contextlib.contextmanager
def named(file: str) -> Iterator[None]:
    """Put the name of the file in front of errors that its contents cause."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{file}: {error}") from error


def console() -> "Console":
    """Return the console for tables, as wide as the terminal, or 120 characters wide for a file."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)
