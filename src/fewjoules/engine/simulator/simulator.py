"""The simulator: all clients of a federation on one machine, round by round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from fewjoules.arrays import IntArray
from fewjoules.codec.frame import encoded_size
from fewjoules.codec.threads import CORES
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.client import batch_sizes, shares
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import Flags, RoundTask, TrainingState
from fewjoules.engine.algorithm.sampling import draw_batches
from fewjoules.engine.algorithm.streams import stream, stream_key
from fewjoules.engine.algorithm.uploads import dense_bytes
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.simulator.accounts import Accounts
from fewjoules.engine.simulator.cpu.backend import ProcessorClients
from fewjoules.engine.simulator.cpu.workers import Workers
from fewjoules.engine.simulator.evaluate import Evaluator
from fewjoules.engine.simulator.execution import Path, choose_path, require_labels
from fewjoules.engine.simulator.local import Batches, Samples
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.errors import InvalidInputError
from fewjoules.ledger.schema import RowArray
from fewjoules.physics.fleet import Fleet

if TYPE_CHECKING:
    from fewjoules.engine.simulator.cuda.backend import GpuClients, Graphs


@dataclass(frozen=True, slots=True)
class Federation:
    """Training samples on the training device, and which of them belong to each client."""

    samples: Samples
    parts: Sequence[IntArray]

    @property
    def sizes(self) -> IntArray:
        """Samples of each client."""
        return np.array([part.size for part in self.parts], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished round: its ledger rows, mean loss and accuracy of its batches, and its largest batch."""

    rows: RowArray
    train_loss: float
    train_accuracy: float
    batch_size: int
    learning_rate: float


class Simulator:
    """Runs rounds one after the other. ``state`` is all that matters between them."""

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
            raise InvalidInputError("precision = 'tf32' needs a GPU, got the processor; use float32")
        self.options, self.federation = options, federation
        self.accounts = Accounts(fleet, options)
        self.sizes = federation.sizes
        self._starts = np.cumsum(self.sizes) - self.sizes
        self._order = np.concatenate(federation.parts)
        self._key = stream_key(options.seed, "batches")
        self.path = self._choose_path(model, loss, chunk)
        self.workers = Workers(1 if self.path.seeded else threads)
        self._clients = self._backend(model, loss, compiled, graphs)
        flat = ClientModel(model, loss, device)
        self.kept = np.maximum(1, np.rint(flat.parameters.size / options.sparsity)).astype(np.int64)
        memories = options.clients if options.error_feedback else 0
        self.state = TrainingState(
            round=0,
            weights=flat.initial_weights,
            memories=torch.zeros((memories, flat.parameters.size), device=device),
            buffers=flat.initial_buffers,
            synced=np.zeros(options.clients, dtype=np.int64),
        )
        self.parameters, self.buffers = flat.parameters, flat.buffers
        self._prepared = self._task(1)

    def start_round(self, meanwhile: Callable[[], None] = lambda: None) -> Callable[[], Outcome]:
        """Run the next round; the result, when called, waits for its messages to be counted.

        ``meanwhile`` is done beside the local steps where they run on a GPU.
        """
        number = self.state.round + 1
        task, sizes = self._prepared if self._prepared[0].number == number else self._task(number)
        downlink = self._downlink_bytes(task)

        def beside() -> None:
            self._prepared = self._task(number + 1)
            meanwhile()

        uploads = self._clients.run(self.state, task, beside)
        self.state.synced[task.participants] = number
        self.state.round = number

        def outcome() -> Outcome:
            sent = uploads()
            return Outcome(
                rows=self.accounts.rows(task, sent, sizes.sum(axis=0), downlink),
                train_loss=float(sent.losses.mean(dtype=np.float64)),
                train_accuracy=float(sent.correct.mean(dtype=np.float64)),
                batch_size=int(sizes.max()),
                learning_rate=float(task.batches.rates[-1]),
            )

        return outcome

    def evaluator(self, model: nn.Module, loss: Loss, test: Samples) -> Evaluator:
        """What tells loss and accuracy of ``state`` on a test set, which must be like the training set."""
        train = self.federation.samples
        for name, given, like in (("inputs", test.inputs, train.inputs), ("targets", test.targets, train.targets)):
            if given.shape[1:] != like.shape[1:] or given.dtype != like.dtype:
                raise InvalidInputError(
                    f"test {name} must be {like.dtype} of shape {tuple(like.shape[1:])} like the clients', "
                    f"got {given.dtype} of shape {tuple(given.shape[1:])}"
                )
        require_labels(model, test)
        return Evaluator(model, loss, test, self.workers)

    def close(self) -> None:
        """Let threads and graphs go."""
        self.workers.close()
        self._clients.close()

    def _choose_path(self, model: nn.Module, loss: Loss, chunk: int | None) -> Path:
        largest = int(self.sizes.max()) if self.options.batch_size is None else self.options.batch_size
        batch = min(largest, int(self.sizes.max()))
        equal = batch <= int(self.sizes.min()) and self.options.batch_growth == 1.0
        return choose_path(
            model,
            loss,
            self.federation.samples,
            clients=self.options.clients,
            batch=batch,
            equal_batches=equal,
            chunk=chunk,
        )

    def _backend(
        self, model: nn.Module, loss: Loss, compiled: bool, graphs: "Graphs | None"
    ) -> "ProcessorClients | GpuClients":
        samples, options, path = self.federation.samples, self.options, self.path
        if samples.inputs.is_cuda:
            from fewjoules.engine.simulator.cuda.backend import GpuClients

            return GpuClients(
                model,
                loss,
                samples,
                options,
                chunk=path.chunk,
                stacked=path.stacked,
                seeded=path.seeded,
                compiled=compiled,
                graphs=graphs,
            )
        return ProcessorClients(
            model, loss, samples, options, chunk=path.chunk, workers=self.workers, seeded=path.seeded
        )

    def _task(self, number: int) -> tuple[RoundTask, IntArray]:
        """Round ``number`` and the batch sizes of its steps, (steps, participants)."""
        options = self.options
        clients = self._participants(number)
        first_step = (number - 1) * options.local_steps
        sizes = batch_sizes(
            first_step, options.local_steps, options.batch_size, options.batch_growth, self.sizes[clients]
        )
        local, weights = draw_batches(self._key, clients, self.sizes[clients], first_step, sizes)
        numbers = self._order[local + self._starts[clients][None, :, None]]
        importance = self.sizes.astype(np.float64) if options.weighting == "samples" else np.ones(options.clients)
        return RoundTask(
            number=number,
            participants=clients,
            delivered=~self._fails(number)[clients],
            kept=self.kept[clients],
            shares=shares(importance, clients),
            batches=Batches(numbers, weights, options.learning_rates(first_step)),
        ), sizes

    def _participants(self, number: int) -> IntArray:
        clients, fraction = self.options.clients, self.options.participation
        if fraction == 1.0:
            return np.arange(clients)
        count = max(1, round(fraction * clients))
        rng = stream(self.options.seed, "participation", number)
        return np.sort(rng.choice(clients, size=count, replace=False))

    def _fails(self, number: int) -> Flags:
        """Whose upload is lost in this round, (clients,)."""
        lost = np.zeros(self.options.clients, dtype=bool)
        if self.options.failure_probability > 0.0:
            drawn = stream(self.options.seed, "failures", number).random(self.options.clients)
            lost = drawn < self.options.failure_probability
        lost[sorted(self.options.failures.get(number, ()))] = True
        return lost

    def _downlink_bytes(self, task: RoundTask) -> IntArray:
        """The last broadcast for clients that hold the model before it, the whole model for all others."""
        if self.options.downlink == "free":
            return np.zeros(task.participants.size, dtype=np.int64)
        state = self.state
        buffers = dense_bytes(state.buffers.cpu().numpy())
        whole = dense_bytes(state.weights.cpu().numpy()) + buffers
        changes = whole
        if state.mean_update.size:
            positions = np.flatnonzero(state.mean_update)
            update = SparseUpdate.trusted(state.mean_update.size, positions, state.mean_update[positions])
            changes = min(whole, encoded_size(update) + buffers)
        holds_last = (state.synced[task.participants] == task.number - 1) & (task.number > 1)
        return np.where(holds_last, changes, whole).astype(np.int64)
