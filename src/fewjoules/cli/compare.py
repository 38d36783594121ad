"""``fewjoules compare``: train several schemes and compare their joules."""

import contextlib
import functools
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fewjoules.cli import options, running
from fewjoules.cli.console import console, plain_errors
from fewjoules.cli.plan import plans_of
from fewjoules.errors import DivergedError, FewJoulesWarning, InvalidInputError, shown
from fewjoules.planner.plan import Plan
from fewjoules.planner.schemes import SCHEMES
from fewjoules.runs.files import COMPARISON, PAGE, PLAN, RUN
from fewjoules.scenario import Scenario

if TYPE_CHECKING:
    from fewjoules.runs.task import ScenarioTask


def compare(
    scenario: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Argument(help="Scenario file (TOML) with a [training] table. Left out: the embedded one, half a minute."),
    ] = None,
    schemes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NAMES", help=f"Schemes to train, separated by commas. Default: {','.join(SCHEMES)}."),
    ] = None,
    out: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="DIR", help="Results folder, new or empty. Default: fewjoules-compare."),
    ] = None,
    resume: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="DIR", help="Resume the comparison in this folder."),
    ] = None,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    checkpoint_seconds: options.CheckpointSeconds = None,
    plots: options.Plots = None,
    allow_outside: options.AllowOutside = False,
    no_guard: options.NoGuard = False,
    json_only: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON and nothing else.")] = False,
) -> None:
    """Train every scheme to the same target and show the joules each took.

    All schemes start from the same weights, data and devices. The table ranks them by the joules they took to reach the
    target accuracy or loss; a scheme that did not reach it in its rounds is marked. Below it, a second table splits the
    joules of each run by where their costs come from. page.html shows accuracy and error against rounds and joules, the
    joules of each device, and how well the plans predicted them.

    Examples:

    \b
      fewjoules compare                                 the embedded scenario, half a minute
      fewjoules compare fleet.toml --out comparison
      fewjoules compare fleet.toml --schemes flexible,fedavg --plots pdf
      fewjoules compare --resume comparison             after Ctrl-C or a power cut
    """
    with plain_errors(), contextlib.ExitStack() as held:
        from fewjoules.runs.folder import beginning, require_new_folder
        from fewjoules.runs.lock import locked
        from fewjoules.runs.settings import require_undamaged, save_settings, stored_scenario, stored_settings

        options.require_options(plots, checkpoint_seconds)
        names = list(SCHEMES) if schemes is None else _require_schemes(schemes)
        if resume is not None:
            if out is not None or schemes is not None:
                other = "--out" if out is not None else "--schemes"
                raise InvalidInputError(
                    f"--resume keeps its folder and its schemes and cannot be combined with {other}"
                )
            folder = Path(resume)
            settings = stored_settings(folder, "compare")
            held.enter_context(locked(folder))
            chosen = stored_scenario(folder, scenario, allow_outside=allow_outside)
            names, data_dir = _require_schemes(",".join(settings["schemes"])), data_dir or settings["data_dir"]
            device = options.stored_device(device, settings)
            no_guard = options.stored_no_guard(folder, no_guard, settings)
        else:
            chosen = running.read_scenario(scenario, allow_outside)
            folder = Path(out or "fewjoules-compare")
            require_new_folder(folder)
        plans = plans_of(chosen.problem(), names, "pareto")
        for plan in plans if resume is not None else ():
            _require_same_plan(folder / plan.scheme, plan)
        task = running.prepare_task(running.unguarded(chosen) if no_guard else chosen, device, data_dir)

        @functools.cache  # once, after the first scheme was checked
        def begin() -> None:
            if resume is not None:
                require_undamaged(folder, settings)
                return
            held.enter_context(locked(folder))
            require_new_folder(folder)
            with beginning(folder):
                save_settings(
                    folder,
                    chosen,
                    command="compare",
                    schemes=names,
                    data_dir=options.absolute(data_dir),
                    device=task.device.type,
                    **({"no_guard": True} if no_guard else {}),
                )

        _require_room(task, [plan for plan in plans if not (folder / plan.scheme).exists()])
        trained = []
        for number, plan in enumerate(plans, start=1):
            place = f"{number} of {len(plans)}"
            if _train(task, plan, folder, checkpoint_seconds, begin, place):
                trained.append(plan.scheme)
        _report(folder, chosen, trained, plots, json_only)
        if len(trained) < len(plans):
            raise typer.Exit(1)


def _require_schemes(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names or [text]:
        if name not in SCHEMES:
            raise InvalidInputError(f"--schemes must be names out of {', '.join(SCHEMES)}, got {shown(name)}")
    return list(dict.fromkeys(names))


def _train(
    task: "ScenarioTask",
    plan: Plan,
    folder: Path,
    checkpoint_seconds: float | None,
    begin: Callable[[], None],
    place: str,
) -> bool:
    """Train one scheme in its own folder, unless it is finished; return False if it diverged."""
    from fewjoules.runs.folder import clean_up, is_finished

    own = folder / plan.scheme
    if is_finished(own):
        clean_up(own)
        return True
    try:
        running.carry_out(
            task,
            plan,
            own,
            checkpoint_seconds=checkpoint_seconds,
            resume=own.exists(),
            again=f"fewjoules compare --resume {folder}",
            begin=begin,
            place=place,
        )
    except DivergedError as error:
        warnings.warn(f"scheme {plan.scheme} is left out: {error}", FewJoulesWarning, stacklevel=2)
        return False
    return True


def _require_room(task: "ScenarioTask", plans: list[Plan]) -> None:
    """Refuse a scheme that needs too much memory before any other is trained."""
    from fewjoules.runs.task import options_for
    from fewjoules.runs.training import require_room

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said again when the scheme is trained
        chosen = [options_for(task, plan) for plan in plans]
    for plan, own in zip(plans, chosen, strict=True):
        try:
            require_room(task, own)
        except InvalidInputError as error:
            raise InvalidInputError(f"scheme {plan.scheme}: {error}") from error


def _require_same_plan(folder: Path, plan: Plan) -> None:
    """Refuse a finished run that is damaged or has another plan: a comparison must not mix versions of the planner."""
    from fewjoules.runs.folder import is_finished
    from fewjoules.runs.results import RunResults

    if not is_finished(folder):
        return
    file = folder / PLAN
    stored = Plan.load(file)
    if not stored.chooses_like(plan):
        raise InvalidInputError(
            f"{file}: must be the plan of this version, H = {plan.local_steps} and sparsity {plan.sparsity[0]:.6g} for "
            f"the first device, got {stored.local_steps} and {stored.sparsity[0]:.6g}, or another choice differs; "
            "compare in a new folder"
        )
    RunResults.load(folder)


def _report(folder: Path, scenario: Scenario, schemes: list[str], plots: str | None, json_only: bool) -> None:
    from fewjoules.files import whole_file
    from fewjoules.reports.booked import outcome
    from fewjoules.reports.comparison import guard_sentences, headline, ranked
    from fewjoules.reports.page import write_page
    from fewjoules.runs.results import RunResults
    from fewjoules.runs.sealed import read_sealed

    if not schemes:
        raise DivergedError("no scheme could be trained; a smaller learning rate may help")
    runs = [RunResults.load(folder / scheme) for scheme in schemes]
    outcomes = [read_sealed(run.folder / RUN) for run in ranked(runs)]
    rows = [{key: value for key, value in outcome.items() if key != "checksums"} for outcome in outcomes]
    text = json.dumps({"version": 1, "scenario": scenario.name, "runs": rows}, indent=1)
    with running.disk_explained(runs[0].folder, f"fewjoules compare --resume {folder}"):
        write_page(runs, folder / PAGE, scenario.name)
        with whole_file(folder / COMPARISON) as stream:
            stream.write((text + "\n").encode())
        running.save_plots(runs, folder, plots)
    if json_only:
        typer.echo(text)
        return
    console().print(outcome(runs))
    for sentence in guard_sentences(runs):
        typer.echo(sentence)
    typer.echo(f"{headline(runs)}\nresults in {folder}; open {folder / PAGE}")
