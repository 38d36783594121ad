"""``fewjoules train``: train one plan."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fewjoules.cli import options, running
from fewjoules.cli.console import console, plain_errors
from fewjoules.cli.reading import read_scenario
from fewjoules.cli.starting import Starting
from fewjoules.errors import InvalidInputError
from fewjoules.extras import require_extra
from fewjoules.planner.plan import Plan
from fewjoules.planner.schemes import SCHEME_NAMES
from fewjoules.runs.files import PAGE, PLAN
from fewjoules.scenario import Scenario
from fewjoules.scenario.planning import ScenarioPlans, available_schemes

if TYPE_CHECKING:
    from fewjoules.runs.callbacks import Callback


def train(
    scenario: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Argument(help="Scenario file (TOML) with a [training] table. Left out: the embedded one."),
    ] = None,
    scheme: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NAME",
            help=f"One of {', '.join(SCHEME_NAMES)}. Default: fewest if there is a [recipe], else flexible.",
        ),
    ] = None,
    plan: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="FILE", help="Train this plan (JSON of fewjoules plan --json) instead of a scheme's."),
    ] = None,
    out: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="DIR", help="Results folder, new or empty. Default: fewjoules-train-SCHEME."),
    ] = None,
    resume: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="DIR", help="Resume the run in this folder, bit for bit as if it had not stopped."),
    ] = None,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    checkpoint_seconds: options.CheckpointSeconds = None,
    memory_gib: options.MemoryGib = None,
    plots: options.Plots = None,
    allow_outside: options.AllowOutside = False,
    no_guard: options.NoGuard = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log to DIR/tensorboard.")] = False,
    wandb: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="PROJECT", help="Also log to this project of Weights & Biases."),
    ] = None,
    meter: Annotated[
        Optional[bool],  # noqa: UP045
        typer.Option(help="Also read the meters of this machine. --no-meter resumes a run without them."),
    ] = None,
) -> None:
    """Train one plan and account for every joule, bit and second.

    The run stops at the target accuracy or loss, the number of rounds, or the energy or time budget of [training],
    whichever comes first. Its folder then holds the scenario, the plan, the ledger and metrics (Parquet), the model
    (safetensors) and page.html, which works offline. --resume continues a run that was stopped or killed.

    Examples:

    \b
      fewjoules train                                  the embedded scenario
      fewjoules train fleet.toml --out run1            the plan of least energy
      fewjoules train fleet.toml --scheme unified --out run2
      fewjoules train --resume run1                    after Ctrl-C or a power cut
      torchrun --nproc-per-node 2 -m fewjoules train fleet.toml --out run4
      fewjoules train fleet.toml --data-dir ~/mnist --plots pdf --out run3
    """
    with plain_errors(), contextlib.ExitStack() as held:
        require_extra("train", "fewjoules train")
        starting = Starting()
        held.callback(starting.close)
        from fewjoules.runs.entry import planned_entry
        from fewjoules.runs.folder import beginning, clean_up, is_finished, require_new_folder
        from fewjoules.runs.lock import locked
        from fewjoules.runs.ranks import joined_ranks, require_alone
        from fewjoules.runs.settings import require_undamaged, save_settings, stored_scenario, stored_settings

        ranks = held.enter_context(joined_ranks())
        with ranks.together():
            options.require_options(plots, checkpoint_seconds, memory_gib)
            _require_choices(scheme, plan, out, resume)
            if resume is not None:
                folder = Path(resume)
                settings = stored_settings(folder, "train")
                held.enter_context(locked(folder))
                chosen = stored_scenario(folder, scenario, allow_outside=allow_outside)
                planned = Plan.load(folder / PLAN)
                if is_finished(folder):
                    starting.close()
                    clean_up(folder)
                    if ranks.is_first:
                        _report(folder, chosen.name, plots)
                    return
                data_dir, device = data_dir or settings["data_dir"], options.stored_device(device, settings)
                meter = _resumed_meter(folder, meter, settings)
                no_guard = options.stored_no_guard(folder, no_guard, settings)
            else:
                chosen = read_scenario(scenario, allow_outside)
                planned = Plan.load(plan) if plan is not None else _plan_of(chosen, scheme)
                folder = Path(out or f"fewjoules-train-{planned.scheme if planned.scheme in SCHEME_NAMES else 'plan'}")
                require_new_folder(folder)
            if meter:
                require_alone("fewjoules train --meter")
            log = held.enter_context(running.metering(device)) if meter else None
            task = running.prepare_task(running.unguarded(chosen) if no_guard else chosen, device, data_dir)
        starting.close()

        def begin() -> None:
            if resume is None:
                held.enter_context(locked(folder))
                require_new_folder(folder)
                with beginning(folder):
                    planned.save(folder / PLAN)
                    save_settings(
                        folder,
                        chosen,
                        command="train",
                        data_dir=options.absolute(data_dir),
                        device=str(task.device) if ranks.size == 1 else task.device.type,
                        **({"meter": True} if meter else {}),
                        **({"no_guard": True} if no_guard else {}),
                    )
            else:
                require_undamaged(folder, settings)

        running.carry_out(
            task,
            planned_entry(planned),
            folder,
            checkpoint_seconds=checkpoint_seconds,
            memory_gib=memory_gib,
            resume=resume is not None,
            again=f"fewjoules train --resume {folder}",
            begin=begin,
            callbacks=_loggers(folder, tensorboard, wandb),
            meter=log,
            ranks=ranks,
        )
        if ranks.is_first:
            _report(folder, chosen.name, plots)


def _plan_of(scenario: Scenario, scheme: str | None) -> Plan:
    return ScenarioPlans(scenario).plan(scheme or available_schemes(scenario)[0])


def _require_choices(scheme: str | None, plan: str | None, out: str | None, resume: str | None) -> None:
    """Refuse options that contradict each other, before anything is read or written."""
    if scheme is not None and scheme not in SCHEME_NAMES:
        raise InvalidInputError(f"--scheme must be one of {', '.join(SCHEME_NAMES)}, got {scheme!r}")
    given = {"--out": out, "--plan": plan, "--scheme": scheme}
    named = [name for name, value in given.items() if value is not None]
    if resume is not None and named:
        raise InvalidInputError(f"--resume keeps its folder and its plan and cannot be combined with {named[0]}")
    if plan is not None and scheme is not None:
        raise InvalidInputError("--plan is trained as it is and cannot be combined with --scheme")


def _resumed_meter(folder: Path, asked: bool | None, settings: dict[str, Any]) -> bool:
    """Tell whether a resumed run is metered: as it was from its first round on, unless it is given up."""
    began = settings.get("meter") is True
    if asked and not began:
        raise InvalidInputError(f"--meter must be given from the first round on, but the run in {folder} began without")
    return began and asked is not False


def _loggers(folder: Path, tensorboard: bool, wandb: str | None) -> "list[Callback]":
    """Return the loggers that were asked for; refuse one whose package is missing."""
    from fewjoules.runs.loggers.tensorboard import TensorBoard
    from fewjoules.runs.loggers.wandb import WandB

    asked: list[Callback] = [TensorBoard(folder / "tensorboard")] if tensorboard else []
    return asked if wandb is None else [*asked, WandB(wandb, name=folder.name)]


def _report(folder: Path, title: str, plots: str | None) -> None:
    from fewjoules.reports.booked import outcome
    from fewjoules.reports.comparison import guard_sentences, headline, metered_sentences
    from fewjoules.reports.page import write_page
    from fewjoules.runs.results import RunResults

    runs = [RunResults.load(folder)]
    with running.disk_explained(folder, f"fewjoules train --resume {folder}"):
        write_page(runs, folder / PAGE, title)
        running.save_plots(runs, folder, plots)
    console().print(outcome(runs))
    for sentence in [*guard_sentences(runs), *metered_sentences(runs)]:
        typer.echo(sentence)
    typer.echo(f"{headline(runs)}\nresults in {folder}; open {folder / PAGE}")
