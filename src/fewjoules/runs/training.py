"""Train a task: shared by the commands ``train`` and ``compare``, ``fewjoules.train`` and the reproduction."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from torch import nn

from fewjoules.engine.algorithm.client import kept_vectors
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.saved import tensors_of
from fewjoules.engine.loop import Report, TrainingLoop
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import DivergedError, InvalidInputError
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.physics.fleet import Fleet
from fewjoules.runs.memory import require_memory

if TYPE_CHECKING:
    from fewjoules.engine.simulator.cuda.backend import Graphs

DIVERGED = "diverged"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A learning task: a model, the clients' data, a loss, and the costs of the clients' devices."""

    model: nn.Module
    federation: Federation
    test: Samples | None
    loss: Loss
    fleet: Fleet | None


@dataclass(frozen=True, slots=True)
class Training:
    """A finished training: its loop, with state, logs and totals, and the reason why it stopped."""

    loop: TrainingLoop
    reason: str

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
        result = copy.deepcopy(model).cpu()
        self.simulator.parameters.load(result, self.simulator.state.weights)
        self.simulator.buffers.load(result, self.simulator.state.buffers)
        return result.eval()


def in_memory(simulator: Simulator) -> TrainingLoop:
    """Return a loop that starts at the first round and writes nothing to disk."""
    return TrainingLoop(simulator, RowLog(None, LEDGER), RowLog(None, METRICS))


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
        simulator.backend.restore(tensors_of(before.simulator.backend.save()))
        before.loop.simulator, before.loop.reason = simulator, None
        return before.loop

    return opened


def require_room(task: Task, options: TrainingOptions) -> None:
    """Refuse a task that needs more memory than is free, long before it is trained."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training itself will say it
        simulator = Simulator(task.model, task.federation, options, loss=task.loss, fleet=task.fleet)
    try:
        require_memory(simulator, rows_in_memory=False)
    finally:
        simulator.close()


def train_task(
    task: Task,
    options: TrainingOptions,
    *,
    opened: Callable[[Simulator], TrainingLoop] = in_memory,
    on_round: Callable[[Report], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    graphs: "Graphs | None" = None,
    keep_diverged: bool = False,
) -> Training:
    """Train until there is a reason to stop; refuse a task that needs more memory than is free.

    ``opened`` makes the loop, new or resumed, after all checks. With ``keep_diverged`` a training that diverges ends
    with that reason instead of an error.
    """
    simulator = Simulator(task.model, task.federation, options, loss=task.loss, fleet=task.fleet, graphs=graphs)
    try:
        evaluator = None if task.test is None else simulator.evaluator(task.model, task.loss, task.test)
        require_memory(simulator, rows_in_memory=opened is in_memory)
        loop = opened(simulator)
        loop.evaluator = evaluator
        loop.on_round = on_round or loop.on_round
        loop.should_stop = should_stop or loop.should_stop
        try:
            return Training(loop, loop.run())
        except DivergedError:
            if not keep_diverged:
                raise
            return Training(loop, DIVERGED)
    finally:
        simulator.close()
