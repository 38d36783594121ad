"""Clients on the processor: chunks of them go to threads, each of which runs single-threaded kernels.

What a client computes depends neither on the number of threads nor on the thread that it ran on.
"""

import queue
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.client import compress, mean_update, take_back
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import RoundTask, TrainingState, Uploads, average_buffers, require_finite
from fewjoules.engine.algorithm.streams import stream_key
from fewjoules.engine.algorithm.uploads import compressor_of, dense_bytes, message_bytes
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.simulator.cpu.malloc import keep_freed_memory
from fewjoules.engine.simulator.cpu.single import SingleModel
from fewjoules.engine.simulator.cpu.workers import Workers
from fewjoules.engine.simulator.local import Progress, Samples, train_one, train_stack
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.errors import DivergedError, InvalidInputError


@dataclass(frozen=True, slots=True)
class _Sent:
    update: SparseUpdate
    entries: int
    payload_bytes: int
    buffers: torch.Tensor


class ProcessorClients:
    """Trains ``chunk`` clients at a time as one stack; a chunk of one needs no vmap and suits any module."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        samples: Samples,
        options: TrainingOptions,
        *,
        chunk: int,
        workers: Workers,
        seeded: bool,
    ) -> None:
        """One copy of the model for each thread: modules are not safe to share. ``seeded``: the model draws numbers."""
        keep_freed_memory()
        self.samples, self.options, self.chunk = samples, options, chunk
        self._workers, self._seeded = workers, seeded
        self._models: queue.SimpleQueue[Any] = queue.SimpleQueue()
        kind = SingleModel if chunk == 1 else ClientModel
        for _ in range(workers.threads):
            self._models.put(kind(model, loss, torch.device("cpu"), precision=options.precision))

    def run(self, state: TrainingState, task: RoundTask, meanwhile: Callable[[], None]) -> Callable[[], Uploads]:
        """Local steps, compression and aggregation of one round; ``state`` moves on by it, and the result is there.

        ``meanwhile`` is work that need not wait for the round.
        """
        meanwhile()
        starts = range(0, task.participants.size, self.chunk)
        parts = [slice(start, min(start + self.chunk, task.participants.size)) for start in starts]
        outcomes = self._workers.map(lambda part: self._train(state, task, part), parts)
        sent = [one for outcome, _ in outcomes for one in outcome]
        mean = mean_update([one.update for one in sent], task.shares)
        state.weights = state.weights - torch.from_numpy(mean)
        state.mean_update = mean
        if state.buffers.numel():
            state.buffers = average_buffers(torch.stack([one.buffers for one in sent]), state.buffers, task)
        uploads = Uploads(
            entries=np.array([one.entries for one in sent], dtype=np.int64),
            payload_bytes=np.array([one.payload_bytes for one in sent], dtype=np.int64),
            losses=np.concatenate([progress.losses.numpy() for _, progress in outcomes], axis=1),
            correct=np.concatenate([progress.correct.numpy() for _, progress in outcomes], axis=1),
        )
        return lambda: uploads

    def _train(self, state: TrainingState, task: RoundTask, part: slice) -> tuple[list[_Sent], Progress]:
        clients = task.participants[part]
        local = state.weights.repeat(clients.size, 1)
        buffers = state.buffers.repeat(clients.size, 1)
        model = self._models.get()
        try:
            with torch.random.fork_rng(devices=[], enabled=self._seeded):
                if self._seeded:
                    torch.manual_seed(stream_key(self.options.seed, "model", task.number, int(clients[0])))
                train: Any = train_one if self.chunk == 1 else train_stack
                progress: Progress = train(
                    model, self.samples, task.batches.of(part), local, buffers, self.options.momentum
                )
        finally:
            self._models.put(model)
        require_finite(progress.losses.numpy(), task.number, clients)
        rows = range(clients.size)
        return [self._compress(state, task, part.start + row, local[row], buffers[row]) for row in rows], progress

    def _compress(
        self, state: TrainingState, task: RoundTask, row: int, local: torch.Tensor, buffers: torch.Tensor
    ) -> _Sent:
        client = int(task.participants[row])
        compressor = compressor_of(self.options, int(task.kept[row]), client, task.number)
        feedback = self.options.error_feedback
        memory = state.memories[client].numpy() if feedback else np.zeros(local.numel(), dtype=np.float32)
        try:
            sent, left = compress(state.weights.numpy(), local.numpy(), memory, compressor)
        except InvalidInputError as error:
            raise DivergedError(
                f"the update of client {client} in round {task.number} cannot be sent: {error}"
            ) from error
        if not np.isfinite(sent.values).all():
            raise DivergedError(f"the update of client {client} in round {task.number} is not finite")
        rest = left[sent.positions]
        total = message_bytes(self.options, sent, rest, client, task.number) + dense_bytes(buffers.numpy())
        update = sent if task.delivered[row] else take_back(sent, left)
        if feedback and left is not memory:
            np.copyto(memory, left)
        return _Sent(update, sent.count, total, buffers)

    def close(self) -> None:
        """Nothing is held but the threads, which are the simulator's."""
