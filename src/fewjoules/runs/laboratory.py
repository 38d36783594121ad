"""The laboratory of a tuning: looks pilots up in a journal, and trains the missing ones here or in processes."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fewjoules.runs.pilot_journal import PilotJournal
from fewjoules.runs.pilots import Pilots
from fewjoules.runs.task import ScenarioTask, new_model, prepare, varied
from fewjoules.scenario import Scenario
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.pilot import PilotResult, PilotSpec

USUAL_RATE = 0.1


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """What a process needs to make the task of a tuning for itself; data are loaded, never sent."""

    text: str
    name: str
    folder: str
    allow_outside: bool
    device: str
    data_dir: str | None
    aim: Aim
    seed: int

    @classmethod
    def of(cls, task: ScenarioTask, data_dir: str | None, aim: Aim, seed: int) -> "TaskOrder":
        """Return the order of a task."""
        scenario = task.scenario
        folder, device = str(scenario.folder), str(task.device)
        return cls(scenario.text, scenario.name, folder, scenario.allow_outside, device, data_dir, aim, seed)

    def pilots(self) -> Pilots:
        """Load the data and return what trains pilots."""
        scenario = Scenario.from_text(self.text, self.name, Path(self.folder), allow_outside=self.allow_outside)
        return pilots_of(prepare(scenario, torch.device(self.device), self.data_dir), self.aim, self.seed)


def pilots_of(task: ScenarioTask, aim: Aim, seed: int) -> Pilots:
    """Return what trains pilots of a scenario, with weights, batches and a split of their own."""
    own = varied(task, seed=seed)
    return Pilots(own, options_of_pilots(task), aim, seed=seed, model_of=lambda other: new_model(own, other))


def options_of_pilots(task: ScenarioTask) -> Mapping[str, Any]:
    """Return the options of [training]; its step size is where a search begins and may be missing."""
    training = task.training
    if training.learning_rate is None:
        training = training.model_copy(update={"learning_rate": USUAL_RATE})
    return training.options(task.scenario.files)


class JournaledPilots:
    """Trains each pilot once; with ``workers`` several at once, by processes that make the task of an order.

    ``begin`` is called before the first one, when everything that can be refused without a pilot has been checked.
    """

    def __init__(
        self,
        pilots: Pilots,
        journal: PilotJournal,
        workers: tuple[Executor, TaskOrder] | None = None,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin with what the journal has."""
        self._pilots, self._journal, self._workers = pilots, journal, workers
        self._begin = functools.cache(begin)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return self._pilots.clients

    def start(self) -> tuple[float, ...]:
        """Return loss and accuracy of the untrained model on the data kept aside."""
        return self._pilots.start()

    def run(self, specs: Sequence[PilotSpec]) -> list[PilotResult]:
        """Return the results in order; each one is in the journal as soon as it is known."""
        self._begin()
        missing = {spec.key: spec for spec in specs if self._journal.find(spec) is None}
        for result in self._trained(list(missing.values())):
            self._journal.add(result)
        found = [self._journal.find(spec) for spec in specs]
        return [result for result in found if result is not None]

    def _trained(self, specs: Sequence[PilotSpec]) -> Iterator[PilotResult]:
        if self._workers is None or len(specs) < 2:
            yield from map(self._pilots.train, specs)
            return
        executor, order = self._workers
        pending = [executor.submit(_train, order, spec) for spec in specs]
        for future in as_completed(pending):
            try:
                yield future.result()
            except BrokenProcessPool as error:
                raise ChildProcessError(
                    "a process that trained a pilot was killed, perhaps for lack of memory; use fewer --processes, and "
                    "--resume continues after the pilots that are done"
                ) from error


_mine: dict[TaskOrder, Pilots] = {}  # of this process


def _train(order: TaskOrder, spec: PilotSpec) -> PilotResult:
    """Train a pilot in a process of its own, whose task is made once."""
    if order not in _mine:
        _mine[order] = order.pilots()
    return _mine[order].train(spec)
