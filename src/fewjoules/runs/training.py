"""Train a task: shared by the commands ``train`` and ``compare``, ``fewjoules.train`` and the reproduction."""

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from fewjoules.engine.algorithm.client import kept_vectors
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.loop import TrainingLoop
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.ranks import ALONE, Ranks
from fewjoules.engine.report import Report
from fewjoules.engine.simulator.evaluate import Evaluator
from fewjoules.engine.simulator.federation import Federation, SampleSource
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.engine.store.client_store import StorePlace
from fewjoules.errors import DivergedError, InvalidInputError
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import LEDGER
from fewjoules.physics.fleet import Fleet
from fewjoules.runs.callbacks import Callback, OngoingRun
from fewjoules.runs.device import using
from fewjoules.runs.files import CHECKPOINT
from fewjoules.runs.listening import Listeners, heard
from fewjoules.runs.memory import require_memory, store_place
from fewjoules.runs.ranks import require_agreement, require_same
from fewjoules.runs.rescue import rescued
from fewjoules.runs.trained import trained_model

if TYPE_CHECKING:
    from fewjoules.engine.simulator.cuda.backend import Graphs

DIVERGED, FAILED = "diverged", "error"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A learning task: a model, the clients' data, a loss, and the costs of the clients' devices."""

    model: nn.Module
    federation: Federation
    test: SampleSource | None
    loss: Loss
    fleet: Fleet | None
    metrics: Mapping[str, Any] = field(default_factory=dict)  # of the user's own, functions by name


@dataclass(frozen=True, slots=True)
class Training:
    """A finished training: its loop, with state, logs and totals, and the reason why it stopped."""

    loop: TrainingLoop
    reason: str
    listeners: Listeners | None = None

    @property
    def simulator(self) -> Simulator:
        """The simulator, closed; its state can still be read."""
        return cast(Simulator, self.loop.simulator)

    @property
    def rounds(self) -> int:
        """Number of rounds trained."""
        return self.simulator.state.round

    def trained_model(self, model: nn.Module) -> nn.Module:
        """Return a copy of the model with the global weights and buffers, on the processor, in evaluation mode."""
        return trained_model(model, self.simulator)

    def tell_end(self) -> None:
        """Tell callbacks that the run has ended and its results are written."""
        if self.listeners is not None:
            self.listeners.ended(self.reason)


def in_memory(simulator: Simulator) -> TrainingLoop:
    """Return a loop that starts at the first round and writes nothing to disk."""
    return TrainingLoop(simulator, RowLog(None, LEDGER), RowLog(None, simulator.metrics_table))


def continued(before: Training) -> Callable[[Simulator], TrainingLoop]:
    """Return an ``opened`` that continues another training; options may differ, but not in what clients keep."""

    def opened(simulator: Simulator) -> TrainingLoop:
        kept, now = (kept_vectors(one.options) for one in (before.simulator, simulator))
        if kept != now:
            raise InvalidInputError(
                f"a training can go on only if clients keep the same, which was {', '.join(kept) or 'nothing'}; "
                f"with these options they keep {', '.join(now) or 'nothing'}"
            )
        simulator.state = before.simulator.state
        simulator.sampler.books = before.simulator.sampler.books
        simulator.backend.restore(before.simulator.backend.save())
        before.loop.simulator, before.loop.reason = simulator, None
        return before.loop

    return opened


def require_room(task: Task, options: TrainingOptions) -> None:
    """Refuse a task that needs more memory than is free, long before it is trained."""
    with contextlib.ExitStack() as held:
        held.enter_context(using(task.federation.device))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the training itself will say it
            simulator = Simulator(
                task.model, task.federation, options, loss=task.loss, fleet=task.fleet, place=store_place(None)
            )
            held.callback(simulator.close)
            evaluator = _evaluator(simulator, task)
        require_memory(simulator, rows_in_memory=False, evaluator=evaluator)


def _evaluator(simulator: Simulator, task: Task) -> Evaluator | None:
    if task.test is None:
        return None
    return simulator.evaluator(task.model, task.loss, task.test, task.metrics)


def train_task(
    task: Task,
    options: TrainingOptions,
    *,
    opened: Callable[[Simulator], TrainingLoop] = in_memory,
    on_round: Callable[[Report], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    callbacks: Sequence[Callback] = (),
    folder: Path | None = None,
    graphs: "Graphs | None" = None,
    keep_diverged: bool = False,
    ranks: Ranks = ALONE,
    place: StorePlace | None = None,
    rescue: Callable[[Training, Exception], None] | None = None,
) -> Training:
    """Train until there is a reason to stop; refuse a task that needs more memory than is free.

    ``opened`` makes the loop, new or resumed, after all checks. Callbacks are told of the run in ``folder``, except of
    its end: the caller does that when all results are written. With ``keep_diverged`` a training that diverges ends
    with that reason instead of an error. ``place`` says where what clients keep is stored, usually by ``store_place``.
    ``ranks`` are the processes that train the task together. After an error the run is saved as it was after its last
    complete round, and ``rescue`` gets it with the error, where that is possible.
    """
    with contextlib.ExitStack() as held:
        held.enter_context(using(task.federation.device))
        with ranks.together():
            simulator = Simulator(
                task.model,
                task.federation,
                options,
                loss=task.loss,
                fleet=task.fleet,
                graphs=graphs,
                place=place or store_place(None, folder),
                ranks=ranks,
            )
            held.callback(simulator.close)
            evaluator = _evaluator(simulator, task)
            checkpoint = None if folder is None else folder / CHECKPOINT
            require_memory(simulator, rows_in_memory=opened is in_memory, checkpoint=checkpoint, evaluator=evaluator)
        require_agreement(ranks, task, simulator, evaluator, folder)
        with ranks.together():
            loop = opened(simulator)
        require_same(ranks, {"the round after which it goes on": simulator.state.round})
        loop.evaluator = evaluator
        loop.on_round = on_round or loop.on_round
        asked = should_stop or loop.should_stop
        loop.should_stop = asked if ranks.size == 1 else lambda: ranks.any(asked())
        callbacks = [one for one in callbacks if ranks.is_first or one.on_every_rank]
        ongoing = OngoingRun(loop, task.model, folder)
        listening = ranks.any(bool(callbacks))
        loop.listener = listeners = Listeners(callbacks, ongoing, ranks) if listening else None
        told = None if rescue is None else lambda error: rescue(Training(loop, FAILED), error)
        with heard(listeners), rescued(loop, ranks, told):
            try:
                if listeners is not None:
                    listeners.started()
                return Training(loop, loop.run(), listeners)
            except DivergedError:
                if not keep_diverged:
                    raise
                return Training(loop, DIVERGED)
