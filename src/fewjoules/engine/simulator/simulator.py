"""The simulator: all clients of a federation on one machine, round by round."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from fewjoules.arrays import IntArray
from fewjoules.codec.frame import encoded_size
from fewjoules.codec.update import SparseUpdate
from fewjoules.cores import CORES
from fewjoules.engine.algorithm.backend import Backend
from fewjoules.engine.algorithm.client import dense_bytes
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import RoundPlan, kept_entries, plan_round
from fewjoules.engine.algorithm.server import server_step
from fewjoules.engine.algorithm.state import ServerState
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.simulator.accounts import Accounts
from fewjoules.engine.simulator.cpu.backend import CpuBackend
from fewjoules.engine.simulator.cpu.workers import Workers
from fewjoules.engine.simulator.evaluate import Evaluator
from fewjoules.engine.simulator.execution import Execution, choose_execution, require_labels
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.errors import InvalidInputError
from fewjoules.ledger.schema import RowArray
from fewjoules.physics.fleet import Fleet

if TYPE_CHECKING:
    from fewjoules.engine.simulator.cuda.backend import Graphs


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished round: its ledger rows, mean loss and accuracy of its batches, and its largest batch."""

    rows: RowArray
    train_loss: float
    train_accuracy: float
    batch_size: int
    learning_rate: float


class Simulator:
    """Runs rounds one after the other; ``state`` and the clients' states in ``backend`` carry over between them."""

    def __init__(
        self,
        model: nn.Module,
        federation: Federation,
        options: TrainingOptions,
        *,
        loss: Loss,
        fleet: Fleet | None = None,
        threads: int = CORES,
        chunk: int | None = None,
        compiled: bool = True,
        graphs: "Graphs | None" = None,
    ) -> None:
        """Check that everything fits together; nothing is trained yet.

        Simulators of one model, loss and precision on the same samples may share ``graphs``, a dict: on a GPU the steps
        are then compiled and recorded once.
        """
        device = federation.samples.inputs.device
        if options.clients != len(federation.parts):
            raise InvalidInputError(
                f"sparsity must have one entry for each of {len(federation.parts)} clients, got {options.clients}"
            )
        if options.precision == "tf32" and device.type != "cuda":
            raise InvalidInputError("precision = 'tf32' needs a GPU; on the processor use float32")
        self.model, self.options, self.federation = model, options, federation
        self.accounts = Accounts(fleet, options)
        self.sizes = federation.sizes
        self.execution = self._choose_execution(model, loss, chunk)
        self.workers = Workers(1 if self.execution.seeded else threads)
        self.backend = self._new_backend(model, loss, compiled, graphs)
        flat = ClientModel(model, loss, device)
        self.parameters, self.buffers = flat.parameters, flat.buffers
        self.state = ServerState.initial(flat.initial_weights, flat.initial_buffers, options.clients)
        self._kept = kept_entries(options, flat.parameters.size)
        self._ahead: RoundPlan | None = None

    def start_round(self, meanwhile: Callable[[], None] = lambda: None) -> Callable[[], Outcome]:
        """Run the next round; the returned function waits for its payload sizes and gives the outcome.

        ``meanwhile`` is called while the local steps run, if they run on a GPU.
        """
        plan = self._plan(self.state.round + 1)
        downlink = self._downlink_bytes(plan)

        def beside() -> None:
            if plan.number < self.options.rounds:
                self._ahead = self._plan(plan.number + 1)
                self.backend.prepare(self._ahead)
            meanwhile()

        result = self.backend.run(self.state, plan, beside)
        self.state = server_step(self.state, plan, result)

        def outcome() -> Outcome:
            sent = result.uploads()
            return Outcome(
                rows=self.accounts.rows(plan, result.delivered, sent, downlink),
                train_loss=float(sent.losses.mean(dtype=np.float64)),
                train_accuracy=float(sent.correct.mean(dtype=np.float64)),
                batch_size=int(plan.batch_sizes.max()),
                learning_rate=float(plan.rates[-1]),
            )

        return outcome

    def _plan(self, number: int) -> RoundPlan:
        """Return the plan of a round, made ahead or now, with the rounds that the server accepted so far."""
        ahead = self._ahead
        if ahead is not None and ahead.number == number:
            return replace(ahead, accepted=self.state.accepted[ahead.participants])
        return plan_round(self.options, self._kept, self.sizes, self.state.accepted, number)

    def evaluator(self, model: nn.Module, loss: Loss, test: Samples) -> Evaluator:
        """Return an evaluator on a test set; its samples must have the shapes and types of the training set."""
        train = self.federation.samples
        for name, given, like in (("inputs", test.inputs, train.inputs), ("targets", test.targets, train.targets)):
            if given.shape[1:] != like.shape[1:] or given.dtype != like.dtype:
                raise InvalidInputError(
                    f"test {name} must be {like.dtype} of shape {tuple(like.shape[1:])} like the clients', "
                    f"got {given.dtype} of shape {tuple(given.shape[1:])}"
                )
        require_labels(model, test)
        evaluator = Evaluator(model, loss, test, self.workers)
        if self.options.target_accuracy is not None and not evaluator.knows_accuracy():
            raise InvalidInputError(
                "target_accuracy needs a model with one score per class and whole numbers as labels: "
                "the accuracy of this one is never known"
            )
        return evaluator

    def close(self) -> None:
        """Release threads and graphs."""
        self.workers.close()
        self.backend.close()

    def _choose_execution(self, model: nn.Module, loss: Loss, chunk: int | None) -> Execution:
        largest = int(self.sizes.max()) if self.options.batch_size is None else self.options.batch_size
        batch = min(largest, int(self.sizes.max()))
        equal = batch <= int(self.sizes.min()) and self.options.batch_growth == 1.0
        return choose_execution(
            model,
            loss,
            self.federation.samples,
            clients=self.options.clients,
            batch=batch,
            smallest_batch=min(batch, int(self.sizes.min())),
            equal_batches=equal,
            chunk=chunk,
        )

    def _new_backend(self, model: nn.Module, loss: Loss, compiled: bool, graphs: "Graphs | None") -> Backend:
        how = self.execution
        if not self.federation.samples.inputs.is_cuda:
            return CpuBackend(
                model,
                loss,
                self.federation,
                self.options,
                chunk=how.chunk,
                workers=self.workers,
                seeded=how.seeded,
            )
        from fewjoules.engine.simulator.cuda.backend import CudaBackend

        return CudaBackend(model, loss, self.federation, self.options, how, compiled=compiled, graphs=graphs)

    def _downlink_bytes(self, plan: RoundPlan) -> IntArray:
        """Bytes sent to each participant: the last change if it has the model before that, else the whole model."""
        if self.options.downlink == "free":
            return np.zeros(plan.participants.size, dtype=np.int64)
        state = self.state
        buffers = dense_bytes(state.buffers.cpu().numpy())
        whole = dense_bytes(state.weights.cpu().numpy()) + buffers
        changes = whole
        if state.broadcast.numel():
            change = state.broadcast.cpu().numpy()
            positions = np.flatnonzero(change)
            update = SparseUpdate.trusted(change.size, positions, change[positions])
            changes = min(whole, encoded_size(update) + buffers)
        holds_last = (state.synced[plan.participants] == plan.number - 1) & (plan.number > 1)
        return np.where(holds_last, changes, whole).astype(np.int64)
