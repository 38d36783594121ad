"""``fewjoules tune``: find a recipe by few short pilot runs."""

import contextlib
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fewjoules.cli import options, running
from fewjoules.cli.console import console, plain_errors, require_one_process
from fewjoules.cli.reading import read_scenario
from fewjoules.cli.starting import Starting
from fewjoules.cli.tuning_progress import tuning_progress
from fewjoules.errors import InvalidInputError, require_integer
from fewjoules.extras import require_extra
from fewjoules.files import require_place
from fewjoules.runs.files import BELIEFS, PAGE, PILOTS, TUNING
from fewjoules.scenario import Scenario

if TYPE_CHECKING:
    from fewjoules.runs.tuning import Tuning
    from fewjoules.runs.tuning_news import Progress

EMBEDDED_STEM = "four-groups"


def tune(
    scenario: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Argument(help="Scenario file (TOML) whose [training] has a target. Left out: the embedded one."),
    ] = None,
    out: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Tuned scenario, a new file or the scenario itself. Default: SCENARIO-tuned.toml in this folder.",
        ),
    ] = None,
    folder: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="DIR", help="Folder of the pilots and the page, new or empty. Default: fewjoules-tune."),
    ] = None,
    resume: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="DIR", help="Continue the tuning in this folder; finished pilots are not repeated."),
    ] = None,
    budget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="COST",
            help="What pilots may cost, such as '50000 steps' (of all clients together) or '80 J'. Default: about the "
            "steps of three trainings.",
        ),
    ] = None,
    trainings: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(metavar="N", help="Trainings that the recipe is for; more of them justify more pilots. [10]"),
    ] = None,
    processes: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(metavar="N", help="Pilots that are trained at once (1 to 64). Default: 1, on a GPU 4."),
    ] = None,
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
    seed: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(metavar="N", help="Seed of the pilots. Default: training.seed + 1000."),
    ] = None,
    allow_outside: options.AllowOutside = False,
    json_only: Annotated[bool, typer.Option("--json", help="Print tuning.json and nothing else.")] = False,
) -> None:
    """Find the recipe of fewest joules by a few short pilot runs.

    A recipe is an optimiser with its step size, the kind of messages, H and the sparsity of each device.
    Pilots are short trainings in the simulator, judged by a part of the clients' data that is kept aside, never by the
    test set. First optimisers and step sizes race against each other; then a few pilots of the winner tell its rounds
    law, and the plan of least energy under this law goes into [recipe] of a copy of the scenario. The report says what
    the pilots would have cost on the devices, and after how many trainings they have paid.

    DIR then holds the scenario, every pilot (pilots.jsonl), the whole record (tuning.json) and page.html, which works
    offline. A tuning that was stopped or killed gives the same answer after --resume.

    Examples:

    \b
      fewjoules tune                                    the embedded scenario, half a minute
      fewjoules tune fleet.toml                         writes fleet-tuned.toml
      fewjoules train fleet-tuned.toml                  trains the recipe
      fewjoules compare fleet-tuned.toml                what each part of the recipe brings
      fewjoules tune fleet.toml --budget "80 J" --trainings 100
      fewjoules tune fleet.toml --out fleet.toml        puts the recipe into the file itself
      fewjoules tune --resume fewjoules-tune            after Ctrl-C or a power cut

    docs/tuning.md explains how the pilots are chosen and how to read the page.
    """
    with plain_errors(), contextlib.ExitStack() as held:
        require_extra("train", "fewjoules tune")
        require_one_process("fewjoules tune")
        starting = Starting()
        held.callback(starting.close)
        from fewjoules.runs.lock import locked
        from fewjoules.runs.settings import require_undamaged

        if processes is not None:
            require_integer("--processes", processes, low=1, high=64)
        if resume is not None:
            given = {"--folder": folder, "--budget": budget, "--trainings": trainings, "--seed": seed}
            for option, value in given.items():
                if value is not None:
                    raise InvalidInputError(f"--resume keeps its folder and its settings and cannot take {option}")
            order = _resumed(Path(resume), scenario, out, allow_outside)
            held.enter_context(locked(order.folder))
            require_undamaged(order.folder, order.settings)
            device, data_dir = options.stored_device(device, order.settings), data_dir or order.settings["data_dir"]
        else:
            order = _new(scenario, out, folder, budget, trainings, seed, allow_outside)
        _carry_out(order, device, data_dir, processes, held, starting, json_only)


@dataclass(frozen=True, kw_only=True)
class _Order:
    """What to tune, and where the results go; ``settings`` are those of a tuning to resume, else empty."""

    scenario: Scenario
    folder: Path
    out: Path
    budget: str | None
    trainings: int
    seed: int
    date: str
    settings: dict[str, Any] = field(default_factory=dict)


def _new(
    path: str | None,
    out: str | None,
    folder: str | None,
    budget: str | None,
    trainings: int | None,
    seed: int | None,
    allow_outside: bool,
) -> _Order:
    """Return a new tuning, after every check that needs no data."""
    from fewjoules.runs.folder import require_new_folder
    from fewjoules.runs.tuning import LARGEST_SEED, MOST_TRAININGS, require_aim, usual_seed

    chosen = read_scenario(path, allow_outside)
    stem = EMBEDDED_STEM if path is None else Path(path).stem
    target = Path(out or f"{stem}-tuned.toml")
    if os.path.exists(target) and not (out is not None and path is not None and target.samefile(path)):
        raise InvalidInputError(f"--out must be a new file or the scenario itself, got {target}, which exists")
    _require_place(target, chosen)
    require_aim(chosen)
    place = Path(folder or "fewjoules-tune")
    require_new_folder(place)
    return _Order(
        scenario=chosen,
        folder=place,
        out=target.resolve(),
        budget=budget,
        trainings=require_integer("--trainings", 10 if trainings is None else trainings, low=1, high=MOST_TRAININGS),
        seed=usual_seed(chosen) if seed is None else require_integer("--seed", seed, low=0, high=LARGEST_SEED),
        date=datetime.now(UTC).date().isoformat(),
    )


def _require_place(out: Path, scenario: Scenario) -> None:
    """Refuse a place that cannot be written, or from which the files that the scenario names are not found."""
    require_place("--out", out)
    try:
        Scenario.from_text(scenario.text, str(out), out.parent, allow_outside=scenario.allow_outside)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"--out must lie where the files that the scenario names are found, as beside the scenario: {error}"
        ) from error


def _resumed(folder: Path, path: str | None, out: str | None, allow_outside: bool) -> _Order:
    """Return the tuning of a folder, with another place for the tuned scenario if one is given."""
    from fewjoules.runs.settings import stored_scenario, stored_settings

    settings = stored_settings(folder, "tune")
    chosen = stored_scenario(folder, path, allow_outside=allow_outside)
    target = Path(settings["out"] if out is None else out).resolve()
    _require_place(target, chosen)
    names = ("budget", "trainings", "seed", "date")
    return _Order(
        scenario=chosen, folder=folder, out=target, settings=settings, **{name: settings[name] for name in names}
    )


def _carry_out(
    order: _Order,
    device: str,
    data_dir: str | None,
    processes: int | None,
    held: contextlib.ExitStack,
    starting: Starting,
    json_only: bool,
) -> None:
    """Tune, write the results and show them; if interrupted, say how to resume and exit with code 130."""
    from fewjoules.runs.belief_log import BeliefLog
    from fewjoules.runs.device import choose_device
    from fewjoules.runs.tuning import tune_scenario
    from fewjoules.tuning.books import Budget

    budget = Budget.parse(order.budget)
    where = choose_device(device)
    task = running.prepare_task(order.scenario, device, data_dir)
    again = f"fewjoules tune --resume {order.folder}"
    beliefs = BeliefLog(order.folder / BELIEFS)
    starting.close()
    try:
        with running.disk_explained(order.folder, again), tuning_progress() as show:

            def tell(progress: "Progress") -> None:
                beliefs(progress)
                show(progress)

            tuning = tune_scenario(
                order.scenario,
                where,
                data_dir,
                budget=budget,
                trainings=order.trainings,
                seed=order.seed,
                processes=processes,
                journal=order.folder / PILOTS,
                tell=tell,
                task=task,
                begin=lambda: None if order.settings else _begin(order, str(where), data_dir, held),
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped; every finished pilot is kept; resume with: {again}", err=True)
        raise typer.Exit(130) from None
    with running.disk_explained(order.folder, again):
        _report(order, tuning, json_only)


def _begin(order: _Order, device: str, data_dir: str | None, held: contextlib.ExitStack) -> None:
    from fewjoules.runs.folder import beginning, require_new_folder
    from fewjoules.runs.lock import locked
    from fewjoules.runs.settings import save_settings

    held.enter_context(locked(order.folder))
    require_new_folder(order.folder)
    with beginning(order.folder):
        save_settings(
            order.folder,
            order.scenario,
            command="tune",
            data_dir=options.absolute(data_dir),
            device=device,
            budget=order.budget,
            trainings=order.trainings,
            seed=order.seed,
            out=str(order.out),
            date=order.date,
        )


def _report(order: _Order, tuning: "Tuning", json_only: bool) -> None:
    """Write tuning.json, the page and the tuned scenario, then show the outcome."""
    from fewjoules.files import whole_file
    from fewjoules.reports.tuning import outcome, sentences
    from fewjoules.reports.tuning_page import write_tuning_page
    from fewjoules.runs.sealed import write_sealed
    from fewjoules.runs.tuning_text import tuned_text, tuning_record

    record = tuning_record(order.scenario, tuning, order.date)
    text = tuned_text(order.scenario, tuning, order.date)
    write_sealed(order.folder / TUNING, record)
    write_tuning_page(tuning, order.folder / PAGE, order.scenario)
    _require_replaceable(order, text)
    with whole_file(order.out) as stream:
        stream.write(text.encode())
    if json_only:
        typer.echo(json.dumps(record, indent=1))
        return
    console().print(outcome(tuning))
    for sentence in sentences(tuning):
        typer.echo(sentence)
    out = os.path.relpath(order.out)
    typer.echo(
        f"recipe in {out}; train it with: fewjoules train {out}\nresults in {order.folder}; open {order.folder / PAGE}"
    )


def _require_replaceable(order: _Order, text: str) -> None:
    """Refuse to overwrite a file that is neither the scenario as it was read nor this very result."""
    from fewjoules.files import read_text

    if order.out.exists() and read_text(order.out) not in (order.scenario.text, text):
        raise InvalidInputError(
            f"{order.out}: the file was changed or made meanwhile and is not overwritten; give another one by "
            f"fewjoules tune --resume {order.folder} --out FILE"
        )
