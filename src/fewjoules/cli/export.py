"""``fewjoules export``: the model of a run that is not finished."""

import os
from pathlib import Path
from typing import Annotated

import typer

from fewjoules.cli.console import plain_errors
from fewjoules.errors import InvalidInputError
from fewjoules.extras import require_extra
from fewjoules.files import require_place
from fewjoules.runs.files import CHECKPOINT, MODEL


def export(
    run: Annotated[str, typer.Argument(help="Results folder of a run (of a scheme, after compare), or a checkpoint.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="Where the model goes; must not exist.")] = MODEL,
) -> None:
    """Write the model of a run that is not finished.

    A finished run has its model in model.safetensors already. This command is for a run that was stopped, or that
    cannot go on; it needs the last checkpoint and nothing else, whatever has become of the other files.

    Examples:

    \b
      fewjoules export run1                                  model.safetensors in this folder
      fewjoules export comparison/flexible --out best.safetensors
    """
    with plain_errors():
        require_extra("train", "fewjoules export")
        from fewjoules.runs.checkpoint import exported_tensors, save_tensors

        checkpoint, target = _checkpoint_of(Path(run)), Path(out)
        if os.path.exists(target):
            raise InvalidInputError(f"--out must be a new file, got {out!r}, which exists")
        require_place("--out", target)
        header, state = exported_tensors(checkpoint)
        save_tensors(target, state, {"architecture": str(header["identity"].get("architecture"))})
        typer.echo(f"the model of round {header['round']} is in {target}")


def _checkpoint_of(run: Path) -> Path:
    checkpoint = run / CHECKPOINT if run.is_dir() else run
    if checkpoint.exists():
        return checkpoint
    if (run / MODEL).exists():
        raise InvalidInputError(f"{run}: the run is finished, and its model is {run / MODEL}")
    raise InvalidInputError(f"{run}: must be the results folder of a run with a {CHECKPOINT}, but has none yet")
