"""The trainings of a comparison: every scheme with every seed, each in its own folder."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from fewjoules.errors import DivergedError, FewJoulesWarning, InvalidInputError
from fewjoules.planner.plan import Plan
from fewjoules.runs.files import PLAN, RUN

if TYPE_CHECKING:
    from fewjoules.runs.entry import Entry

LARGEST_SEED = 2**63 - 1
MOST_SEEDS = 100


class Entrant(Protocol):
    """What takes part in a comparison."""

    @property
    def name(self) -> str:
        """The name in tables, and of the folder."""


E = TypeVar("E", bound=Entrant)


@dataclass(frozen=True, slots=True)
class Turn(Generic[E]):
    """One training of the comparison; ``place`` tells which of how many it is."""

    entry: E
    seed: int
    folder: Path
    place: str


def seeds_from(first: int, count: int) -> range:
    """Return ``count`` seeds from the first on; refuse those beyond the largest."""
    if first > LARGEST_SEED - count + 1:
        raise InvalidInputError(
            f"training.seed must be at most {LARGEST_SEED - count + 1} for {count} seeds, got {first}"
        )
    return range(first, first + count)


def turns_of(folder: Path, entries: Sequence[E], seeds: range) -> Iterator[Turn[E]]:
    """Order the trainings: all schemes with the first seed, then all with the next."""
    for seed in seeds:
        for number, entry in enumerate(entries, start=1):
            own, place = folder / entry.name, f"{number} of {len(entries)}"
            if len(seeds) > 1:
                own, place = own / f"seed-{seed}", f"{place}, seed {seed - seeds[0] + 1} of {len(seeds)}"
            yield Turn(entry, seed, own, place)


def train_turns(turns: Sequence[Turn[E]], train: Callable[[Turn[E]], None]) -> list[Turn[E]]:
    """Train in its folder what is not finished; return the turns that did not diverge, and warn of the others."""
    from fewjoules.runs.folder import clean_up, is_finished

    trained = []
    several = len({turn.seed for turn in turns}) > 1
    for turn in turns:
        if is_finished(turn.folder):
            clean_up(turn.folder)
        else:
            try:
                train(turn)
            except DivergedError as error:
                seed = f" with seed {turn.seed}" if several else ""
                warnings.warn(f"scheme {turn.entry.name} is left out{seed}: {error}", FewJoulesWarning, stacklevel=2)
                continue
        trained.append(turn)
    return trained


def require_same_choices(turn: "Turn[Entry]") -> None:
    """Refuse a finished run that is damaged or has another plan: a comparison must not mix versions of the planner."""
    from fewjoules.runs.folder import is_finished
    from fewjoules.runs.results import RunResults

    if not is_finished(turn.folder):
        return
    entry = turn.entry
    if entry.plan is not None:
        stored = Plan.load(turn.folder / PLAN)
        _require_same(turn, PLAN, stored.chooses_like(entry.plan), stored.local_steps, float(stored.sparsity[0]))
    summary = RunResults.load(turn.folder).summary
    same = summary.local_steps == entry.local_steps and summary.sparsity.shape == entry.sparsity.shape
    same = same and np.allclose(summary.sparsity, entry.sparsity, rtol=1e-6)
    _require_same(turn, RUN, same, summary.local_steps, float(summary.sparsity[0]))
    if summary.seed != turn.seed:
        raise InvalidInputError(f"{turn.folder / RUN}: seed must be {turn.seed}, got {summary.seed}")


def _require_same(turn: "Turn[Entry]", name: str, same: bool, local_steps: int, sparsity: float) -> None:
    if not same:
        raise InvalidInputError(
            f"{turn.folder / name}: must be the plan of this version, H = {turn.entry.local_steps} and sparsity "
            f"{turn.entry.sparsity[0]:.6g} for the first device, got {local_steps} and {sparsity:.6g}, or another "
            "choice differs; compare in a new folder"
        )
