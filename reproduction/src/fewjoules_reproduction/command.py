"""``fewjoules reproduce``."""

import contextlib
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fewjoules.cli import options
from fewjoules.cli.console import console, plain_errors
from fewjoules.cli.live import LiveJobs, live_console, live_jobs
from fewjoules.errors import InvalidInputError, require_integer
from fewjoules.runs.lock import LOCK, locked

if TYPE_CHECKING:
    from fewjoules_reproduction.claims import Claim
    from fewjoules_reproduction.pool import Means

PLANS = ("fig1a", "fig1b", "fig1c", "fig1d")
TRAININGS = ("fig2a", "fig2b", "fig2c", "fig2d", "lte", "dirichlet", "writers")
NAMES = (*PLANS, *TRAININGS)
NOT_RUN = "not-run.md"


def reproduce(
    figures: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads the annotation at run time
        typer.Argument(metavar="[FIGURE]...", help=f"Out of {', '.join(NAMES)}, or all. Default: all."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few minutes on two cores with embedded data; says what it leaves out.")
    ] = False,
    out: Annotated[str, typer.Option(metavar="DIR", help="Where figures, tables and claims go.")] = "reproduction",
    runs: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="DIR", help="Records of trainings; a training with a record is not repeated. Default: OUT/runs."
        ),
    ] = None,
    no_train: Annotated[
        bool, typer.Option("--no-train", help="Train nothing; use the records and list the rest as not run.")
    ] = False,
    processes: Annotated[
        int, typer.Option(help="Trainings at a time; on a GPU two or three keep it busy, five with NVIDIA MPS.")
    ] = 1,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
) -> None:
    """Reproduce the paper's evaluation, with a verdict on each claim.

    Fig. 1 needs no training and takes seconds. Fig. 2 trains LeNet5 on MNIST (2c, 2d) and ResNet20 on CIFAR-10 (2a, 2b)
    by every scheme and baseline with three seeds, for which a GPU is advisable. Beyond the paper are lte (bits a
    thousand times as expensive), dirichlet and writers (data that differ from device to device). Every training leaves
    a record, so the same command continues a reproduction that was stopped.

    Examples:

    \b
      fewjoules reproduce --quick                          a small version of every figure
      fewjoules reproduce fig1a fig1b                      seconds
      fewjoules reproduce fig2c fig2d --data-dir ~/data    hours on a processor, minutes on a GPU
      fewjoules reproduce --runs results/reproduction/runs --no-train
    """
    with plain_errors():
        names = _require_names(figures)
        require_integer("--processes", processes, low=1, high=64)
        if not no_train:
            from fewjoules.runs.device import choose_device

            choose_device(device)
        folder = Path(out)
        _require_folder(folder)
        if runs is not None and not Path(runs).is_dir():
            raise InvalidInputError(f"--runs must be a folder of records, got {runs!r}, which is not a folder")
        from fewjoules_reproduction.pool import Means
        from fewjoules_reproduction.records import Records

        means = Means(
            records=Records(Path(runs) if runs else folder / "runs"),
            device=device,
            data_dir=data_dir,
            train=not no_train,
        )
        with locked(folder):
            _draw(names, folder, means, processes, quick)


def _draw(names: list[str], folder: Path, means: "Means", processes: int, quick: bool) -> None:
    """Write everything named into the folder: figures, tables, claims, and what was not run."""
    from fewjoules.files import whole_file
    from fewjoules_reproduction.claims import joined_claims, read_claims, write_claims
    from fewjoules_reproduction.diary import DIARY, write_entry
    from fewjoules_reproduction.plans import LEFT_OUT, plan_figures
    from fewjoules_reproduction.trainings import LEFT_OUT as LEFT_OUT_TRAININGS
    from fewjoules_reproduction.trainings import studies_of

    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / DIARY).is_file():
        write_entry(folder, command=_command(), begun=True)
    claims = plan_figures([name for name in names if name in PLANS], folder, quick)
    more, not_run = _trained([name for name in names if name in TRAININGS], folder, means, processes, quick)
    claims += more
    known = joined_claims(read_claims(folder / "claims.csv"), claims)
    missing = _not_run_before(folder, studies_of(names, quick)) + not_run
    write_claims(known, folder / "claims.md")
    write_claims(known, folder / "claims.csv")
    with whole_file(folder / NOT_RUN) as stream:
        stream.write("".join(f"- {what}\n" for what in missing).encode())
    left_out = LEFT_OUT | LEFT_OUT_TRAININGS if quick else {}
    _report(folder, claims, not_run, list(dict.fromkeys(line for name in names for line in left_out.get(name, ()))))


def _not_run_before(folder: Path, studies: Sequence[str]) -> list[str]:
    """What earlier calls listed as not run of other studies."""
    from fewjoules.files import read_text

    file = folder / NOT_RUN
    lines = read_text(file).splitlines() if file.is_file() else []
    known = [line.removeprefix("- ") for line in lines]
    return [what for what in known if not what.startswith(tuple(f"{study}: " for study in studies))]


def _trained(
    names: list[str], folder: Path, means: "Means", processes: int, quick: bool
) -> "tuple[list[Claim], list[str]]":
    """Claims about trainings and what was not run; the diary counts new trainings, even after Ctrl-C."""
    from fewjoules.runs.processes import processes_of
    from fewjoules_reproduction.diary import write_entry
    from fewjoules_reproduction.trainings import training_figures

    began, made = time.monotonic(), 0
    live: LiveJobs | None = None

    def show(name: str, done: int, total: int) -> None:
        nonlocal made
        made += 1
        if live is not None:
            live.job(name, done, total)
        else:
            typer.echo(f"{time.monotonic() - began:7.1f} s  {done:3d} of {total}  {name}", err=True)

    terminal = live_console() if means.train and names else None
    pool = contextlib.nullcontext() if processes == 1 or not means.train else processes_of(processes)
    try:
        with pool as executor, contextlib.nullcontext() if terminal is None else live_jobs(terminal) as live:
            told = replace(means, executor=executor, on_job=show, on_round=None if live is None else live.round)
            return training_figures(names, folder, told, quick)
    except KeyboardInterrupt:
        typer.echo(f"stopped; {made} new trainings are kept, and the same command continues from there", err=True)
        raise
    finally:
        if made:
            write_entry(folder, command=_command(), trained=made, wall_seconds=round(time.monotonic() - began, 1))


def _require_names(figures: list[str] | None) -> list[str]:
    chosen = figures or ["all"]
    for name in chosen:
        if name not in (*NAMES, "all"):
            raise InvalidInputError(f"the figure must be one of {', '.join(NAMES)} or all, got {name!r}")
    return [name for name in NAMES if "all" in chosen or name in chosen]


def _require_folder(folder: Path) -> None:
    from fewjoules_reproduction.diary import DIARY

    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{folder}: must be a folder, got a file")
    if folder.is_dir() and any(file.name != LOCK for file in folder.iterdir()) and not (folder / DIARY).is_file():
        raise InvalidInputError(
            f"{folder}: must be new, empty or from an earlier reproduction, got a folder with other files"
        )


def _command() -> str:
    return shlex.join(["fewjoules", *sys.argv[1:]])


def _report(folder: Path, claims: "Sequence[Claim]", not_run: list[str], left_out: list[str]) -> None:
    """Print each sentence with its verdicts, and what is missing."""
    from rich.table import Table

    verdicts: dict[tuple[str, str], list[str]] = {}
    for claim in claims:
        verdicts.setdefault((claim.figure, claim.sentence), []).append(claim.verdict)
    table = Table("figure", "sentence", "verdict (of each reading)", box=None, pad_edge=False)
    for (figure, sentence), found in verdicts.items():
        table.add_row(figure, sentence, found[0] if len(set(found)) == 1 else " / ".join(found))
    console().print(table)
    for what in not_run:
        typer.echo(f"not run: {what}")
    for what in left_out:
        typer.echo(f"left out by --quick: {what}")
    typer.echo(f"figures, tables and claims.md, with numbers and reasons, in {folder}")
