"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from fewjoules.errors import InvalidInputError, require_number

DataDir = Annotated[
    Optional[str],  # noqa: UP045 - typer reads the annotation at run time
    typer.Option(metavar="DIR", help="Folder with the data files; otherwise $FEWJOULES_DATA or the user's cache."),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="auto|cpu|cuda[:N]",
        help="Where to train, such as cuda:1; auto, the default, takes a GPU if there is one.",
        show_default=False,
    ),
]
AllowOutside = Annotated[
    bool, typer.Option("--allow-outside", help="Let the scenario name files (traces) outside of its own folder.")
]
CheckpointSeconds = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        help="A killed run loses at most about this many seconds of work. Left out: 30, or more where checkpoints "
        "would otherwise take over a twentieth of the time."
    ),
]
MemoryGib = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        help="What clients keep takes at most so much memory; what was used least recently goes to a file in the "
        "results folder. Left out: half of what is free."
    ),
]
NoGuard = Annotated[
    bool,
    typer.Option(
        "--no-guard",
        help="Let a run whose loss blows up end, instead of returning to an earlier model with half the step size.",
    ),
]
Plots = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="png|pdf|svg", help="Also save each figure of the page as a file."),
]


def absolute(data_dir: str | None) -> str | None:
    """Return the absolute path of a folder, so that a resumed run finds it from anywhere."""
    return None if data_dir is None else str(Path(data_dir).resolve())


def stored_device(device: str, settings: dict[str, Any]) -> str:
    """Return the device that the run began on, unless another one is asked for."""
    return str(settings["device"]) if device == "auto" else device


def stored_no_guard(folder: Path, asked: bool, settings: dict[str, Any]) -> bool:
    """Return whether a run to resume began without the guard; refuse to take the guard from one that has it."""
    began = settings.get("no_guard") is True
    if asked and not began:
        raise InvalidInputError(f"--no-guard must be given from the first round on, but {folder} began with the guard")
    return began


def require_options(plots: str | None, checkpoint_seconds: float | None, memory_gib: float | None = None) -> None:
    """Refuse an unknown format of figures, an invalid checkpoint interval or an invalid bound of the memory."""
    if memory_gib is not None:
        require_number("--memory-gib", memory_gib, low=0.0, high=2.0**30)
    if checkpoint_seconds is not None:
        require_number("--checkpoint-seconds", checkpoint_seconds, low=0.0)
    if plots not in (None, "png", "pdf", "svg"):
        raise InvalidInputError(f"--plots must be png, pdf or svg, got {plots!r}")
