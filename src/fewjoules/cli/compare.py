"""``fewjoules compare``: train several schemes with the same seeds and compare their joules."""

import contextlib
import functools
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fewjoules.cli import options, running
from fewjoules.cli.console import console, plain_errors, require_one_process
from fewjoules.cli.entrants import entries_of, require_names, require_rates, usual_names
from fewjoules.cli.reading import read_scenario
from fewjoules.cli.starting import Starting
from fewjoules.comparing.turns import MOST_SEEDS, Turn, require_same_choices, seeds_from, train_turns, turns_of
from fewjoules.errors import DivergedError, InvalidInputError, require_integer
from fewjoules.extras import require_extra
from fewjoules.planner.schemes import SCHEMES
from fewjoules.runs.files import PAGE
from fewjoules.scenario import Scenario
from fewjoules.scenario.planning import ScenarioPlans

if TYPE_CHECKING:
    from fewjoules.runs.entry import Entry
    from fewjoules.runs.task import ScenarioTask


def compare(
    scenario: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Argument(help="Scenario file (TOML) with a [training] table. Left out: the embedded one, half a minute."),
    ] = None,
    schemes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NAMES",
            help=f"Schemes and presets to train, separated by commas; paper: {', '.join(SCHEMES)}; all: these and the "
            "presets of docs/training.md; levers: from flexible to fewest, one change at a time. "
            "Default: paper; levers,fedavg,dense if there are [rounds] and [recipe].",
        ),
    ] = None,
    seeds: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            metavar="N",
            help=f"Train each scheme with N seeds (1 to {MOST_SEEDS}) from training.seed on. With 3 or more, the "
            "table marks ties within the noise. Default: 1.",
        ),
    ] = None,
    rate: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            metavar="NAME=VALUE",
            help="Step size of one scheme or preset instead of training.learning_rate. May be repeated.",
        ),
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
    """Train every scheme to the same target and compare their joules.

    With the same seed all schemes start from the same weights, data and devices. The table ranks them by the joules
    they took to reach the target; a scheme that did not reach it in its rounds is marked. With several seeds
    it shows means and ranges and says which schemes are tied within the noise. Below it, a second table splits the
    joules of each scheme by where their costs come from. page.html shows accuracy and error against rounds and joules,
    the joules of each device, and how well the plans predicted them.

    With a [recipe] the table begins with its levers, in this order: flexible, the paper's plan with the options of
    [training]; + step size, the best one of plain SGD; + optimiser, + mean of models and + values, those of the recipe;
    and fewest, which plans local steps and sparsity anew. "x before" says what each brought.

    Examples:

    \b
      fewjoules compare                                 the embedded scenario, half a minute
      fewjoules compare fleet.toml --out comparison
      fewjoules compare fleet.toml --seeds 5            means, ranges and ties
      fewjoules compare tuned.toml --schemes levers     what each part of a recipe brings
      fewjoules compare fleet.toml --schemes flexible,dgc,diloco --rate diloco=0.001
      fewjoules compare fleet.toml --schemes flexible,fedavg --plots pdf
      fewjoules compare --resume comparison             after Ctrl-C or a power cut
    """
    with plain_errors(), contextlib.ExitStack() as held:
        require_extra("train", "fewjoules compare")
        require_one_process("fewjoules compare")
        starting = Starting()
        held.callback(starting.close)
        from fewjoules.runs.folder import beginning, require_new_folder
        from fewjoules.runs.lock import locked
        from fewjoules.runs.settings import require_undamaged, save_settings, stored_scenario, stored_settings
        from fewjoules.runs.task import require_training

        options.require_options(plots, checkpoint_seconds)
        count = require_integer("--seeds", 1 if seeds is None else seeds, low=1, high=MOST_SEEDS)
        names = [] if schemes is None else require_names(schemes)
        if resume is not None:
            given = {"--out": out, "--schemes": schemes, "--seeds": seeds, "--rate": rate or None}
            for option, value in given.items():
                if value is not None:
                    raise InvalidInputError(
                        f"--resume keeps its folder, its schemes and its seeds and cannot be combined with {option}"
                    )
            folder = Path(resume)
            settings = stored_settings(folder, "compare")
            held.enter_context(locked(folder))
            chosen = stored_scenario(folder, scenario, allow_outside=allow_outside)
            names, data_dir = require_names(",".join(settings["schemes"])), data_dir or settings["data_dir"]
            rates = require_rates([f"{name}={value}" for name, value in settings.get("rates", {}).items()], names)
            count = require_integer("seeds", settings.get("seeds", 1), low=1, high=MOST_SEEDS)
            device = options.stored_device(device, settings)
            no_guard = options.stored_no_guard(folder, no_guard, settings)
        else:
            chosen = read_scenario(scenario, allow_outside)
            folder = Path(out or "fewjoules-compare")
            require_new_folder(folder)
            names = names or usual_names(chosen)
            rates = require_rates(rate or (), names)
        starting.show("planning the schemes, reading the data, building the model")
        first_seed = require_training(chosen).seed
        entries = entries_of(ScenarioPlans(chosen), names, rates)
        chosen_seeds = seeds_from(first_seed, count)
        turns = list(turns_of(folder, entries, chosen_seeds))
        for turn in turns if resume is not None else ():
            require_same_choices(turn)
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
                    seeds=count,
                    rates=rates,
                    data_dir=options.absolute(data_dir),
                    device=str(task.device),
                    **({"no_guard": True} if no_guard else {}),
                )

        _require_room(task, [turn.entry for turn in turns[: len(entries)] if not turn.folder.exists()])
        starting.close()
        trained = _train_all(task, turns, folder, checkpoint_seconds, begin)
        _report(folder, chosen, turns, trained, rates, plots, json_only)
        if len(trained) < len(turns):
            raise typer.Exit(1)


def _train_all(
    task: "ScenarioTask",
    turns: "Sequence[Turn[Entry]]",
    folder: Path,
    checkpoint_seconds: float | None,
    begin: Callable[[], None],
) -> "list[Turn[Entry]]":
    """Train what is not finished and return the turns that did not diverge."""
    from fewjoules.runs.task import varied

    last = [task]  # of the last seed, which all schemes share

    def train(turn: "Turn[Entry]") -> None:
        if turn.seed != last[0].training.seed:
            last[0] = varied(last[0], seed=turn.seed)
        running.carry_out(
            last[0],
            turn.entry,
            turn.folder,
            checkpoint_seconds=checkpoint_seconds,
            resume=turn.folder.exists(),
            again=f"fewjoules compare --resume {folder}",
            begin=begin,
            place=turn.place,
        )

    return train_turns(turns, train)


def _require_room(task: "ScenarioTask", entries: "Sequence[Entry]") -> None:
    """Refuse a scheme that needs too much memory before any other is trained."""
    from fewjoules.runs.training import require_room

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said again when the scheme is trained
        chosen = [entry.options(task) for entry in entries]
    for entry, own in zip(entries, chosen, strict=True):
        try:
            require_room(task, own)
        except InvalidInputError as error:
            raise InvalidInputError(f"scheme {entry.name}: {error}") from error


def _report(
    folder: Path,
    scenario: Scenario,
    turns: "Sequence[Turn[Entry]]",
    trained: "Sequence[Turn[Entry]]",
    rates: dict[str, float],
    plots: str | None,
    json_only: bool,
) -> None:
    from fewjoules.comparing.written import write_comparison
    from fewjoules.reports.booked import outcome
    from fewjoules.reports.comparison import guard_sentences
    from fewjoules.reports.lever_words import price_sentences
    from fewjoules.reports.seed_comparison import overall_headline
    from fewjoules.reports.seeds import grouped
    from fewjoules.runs.results import RunResults

    if not trained:
        raise DivergedError("no scheme could be trained; a smaller learning rate may help")
    runs = [RunResults.load(turn.folder) for turn in trained]
    diverged = Counter(turn.entry.name for turn in turns if turn not in trained)
    search = scenario.recipe_search
    seeds = sorted({turn.seed for turn in turns})
    with running.disk_explained(runs[0].folder, f"fewjoules compare --resume {folder}"):
        text = write_comparison(folder, scenario.name, runs, diverged, seeds=seeds, rates=rates, search=search)
        running.save_plots(runs, folder, plots)
    if json_only:
        typer.echo(text)
        return
    console().print(outcome(runs, diverged))
    for sentence in [*guard_sentences(runs), *price_sentences(grouped(runs, diverged), search)]:
        typer.echo(sentence)
    typer.echo(f"{overall_headline(runs, diverged)}\nresults in {folder}; open {folder / PAGE}")
