"""``fewjoules.compare``: train a user's own model by several schemes and compare their joules to one target."""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fewjoules.comparing.own_entrants import OwnEntrant, Scheme, own_entrants
from fewjoules.comparing.result import Comparison
from fewjoules.comparing.turns import MOST_SEEDS, Turn, seeds_from, train_turns, turns_of
from fewjoules.comparing.written import write_comparison
from fewjoules.engine.algorithm.declared import as_plain
from fewjoules.engine.algorithm.options import TrainingOptions, require_known
from fewjoules.engine.loop import INTERRUPTED
from fewjoules.errors import DivergedError, require_integer
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.problem import ControlProblem
from fewjoules.runs.arguments import ModelOfSeed, keywords_of, model_for
from fewjoules.runs.client_data import Arrays
from fewjoules.runs.folder import require_new_folder
from fewjoules.runs.own_task import require_path
from fewjoules.runs.ranks import require_alone
from fewjoules.runs.results import RunResults
from fewjoules.runs.run import Run
from fewjoules.runs.train import train


def compare(
    model: ModelOfSeed,
    *,
    clients: Sequence[Arrays],
    test: Arrays,
    fleet: Fleet,
    schemes: Sequence[Scheme] | Mapping[str, Scheme],
    target: float | Mapping[str, Any],
    problem: ControlProblem | None = None,
    seeds: int = 1,
    seed: int = 0,
    rates: Mapping[str, float] | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Comparison:
    """Train every scheme to the same target and compare the joules that each took.

    What a plan, a recipe or a preset states wins over the arguments that all schemes share. Without ``rounds`` a plan
    may take four times its predicted rounds, and a preset as many local steps as the longest plan.

    Args:
        model: A model, or a function that makes one from a seed.
        clients: Data of each client, as for ``train``; the same for all schemes and seeds.
        test: Test set, on which the target is judged.
        fleet: What bits, messages and steps cost each client.
        schemes: Names of planned schemes ("flexible", "unified", ...), names of presets ("dgc", "diloco", ...), plans
            and recipes; or a mapping of names to any of these or to options of ``train``.
        target: An accuracy, or {"loss": 0.3}, {"perplexity": 6.0} or {metric: value}.
        problem: What planned schemes are planned for.
        seeds: Number of trainings of each scheme; with three or more, ties within the noise are marked.
        seed: The first seed.
        rates: Step size of a scheme by its name.
        out: New or empty folder for all runs; without it nothing is kept on disk.
        **options: Arguments of ``train`` that all schemes share.

    Returns:
        The comparison; printing it shows its table.

    Raises:
        InvalidInputError: An argument is refused.

    Examples:
        >>> print(fj.compare(model, clients=clients, test=test, fleet=fleet, target=0.95, learning_rate=0.1,
        ...                  schemes=["flexible", "fedavg", "dgc"], problem=problem))
    """
    require_alone("fewjoules.compare")
    count = require_integer("seeds", seeds, low=1, high=MOST_SEEDS)
    chosen = seeds_from(require_integer("seed", seed, low=0, high=2**63 - 1), count)
    rates = as_plain({} if rates is None else rates)
    shareable = (*keywords_of(compare), *keywords_of(train), *TrainingOptions.__dataclass_fields__)
    require_known("compare", options, (name for name in shareable if name != "name" and not name.startswith("target_")))
    entrants = own_entrants(schemes, options, problem, rates)
    shared = {"clients": clients, "test": test, "fleet": fleet, "target": target}
    runs: dict[tuple[str, int], Run] = {}
    with contextlib.ExitStack() as held:
        if out is None:
            folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="fewjoules-")))
        else:
            folder = require_path("out", out)
            require_new_folder(folder, "a comparison from Python starts anew")

        def run(turn: Turn[OwnEntrant]) -> None:
            name, number = turn.entry.name, turn.seed
            done = train(
                model_for(model, number), **shared, seed=number, name=name, out=turn.folder, **turn.entry.arguments
            )
            if done.stop_reason == INTERRUPTED:
                raise KeyboardInterrupt
            runs[name, number] = done if out is not None else replace(done, folder=None)

        turns = list(turns_of(folder, entrants, chosen))
        trained = train_turns(turns, run)
        if not trained:
            raise DivergedError("no scheme could be trained; a smaller learning rate may help")
        results = tuple(RunResults.load(turn.folder) for turn in trained)
        diverged = dict(Counter(turn.entry.name for turn in turns if turn not in trained))
        if out is not None:
            write_comparison(folder, "fewjoules.compare", results, diverged, seeds=list(chosen), rates=rates)
    return Comparison(runs, results, diverged)
