"""Where ``fewjoules.tune`` keeps its pilots: in memory, or in a folder from which the same call goes on."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.runs.files import PILOTS
from fewjoules.runs.folder import require_new_folder
from fewjoules.runs.laboratory import JournaledPilots
from fewjoules.runs.lock import locked
from fewjoules.runs.own_identity import identity_of_own, weights_digest
from fewjoules.runs.own_task import require_path
from fewjoules.runs.pilot_journal import PilotJournal
from fewjoules.runs.pilots import Pilots, target_of
from fewjoules.runs.training import Task
from fewjoules.tuning.aim import Aim

HINT = "give tune the folder of an earlier call to continue it"


def own_pilots(
    task: Task,
    options: Mapping[str, Any],
    aim: Aim,
    seed: int,
    out: str | Path | None,
    held: contextlib.ExitStack,
) -> JournaledPilots:
    """Return what trains the pilots of a user's own model; ``held`` keeps the folder ``out`` for this process.

    The folder is made before the first pilot, when everything that can be refused without one has been checked.
    """
    pilots = Pilots(task, options, aim, seed=seed)
    if out is None:
        return JournaledPilots(pilots, PilotJournal())
    folder = require_path("out", out)
    begun = (folder / PILOTS).exists()

    def begin() -> None:
        if not begun:
            held.enter_context(locked(folder))
            require_new_folder(folder, HINT)

    if begun:
        held.enter_context(locked(folder))
    else:
        require_new_folder(folder, HINT)
    return JournaledPilots(pilots, PilotJournal(folder / PILOTS, _identity(task, options, aim, seed)), begin=begin)


def _identity(task: Task, options: Mapping[str, Any], aim: Aim, seed: int) -> dict[str, Any]:
    """Return what all pilots share: they spend nothing, so that the fleet may change and the budget too."""
    clients = len(task.federation.parts)
    trained = TrainingOptions.of(**options, local_steps=1, sparsity=[1.0] * clients, rounds=1)
    facts = identity_of_own(task, trained)
    return facts | {"weights": weights_digest(task.model), "target": target_of(aim).option, "seed of pilots": seed}
