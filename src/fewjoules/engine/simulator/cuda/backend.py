"""Clients on a GPU: a whole chunk trains as one stack, and compression and aggregation stay on the device.

A round is handed to the GPU without waiting for it. Meanwhile the host prepares the next one and books the last one,
and threads count the bytes of its messages.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import nn

from fewjoules.arrays import IntArray
from fewjoules.codec.threads import CORES
from fewjoules.engine.algorithm.client import Floats
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import RoundTask, TrainingState, Uploads, average_buffers, require_finite
from fewjoules.engine.algorithm.streams import stream_key
from fewjoules.engine.algorithm.uploads import dense_bytes
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.simulator.cpu.malloc import keep_freed_memory
from fewjoules.engine.simulator.cpu.single import SingleModel
from fewjoules.engine.simulator.cuda.graph import RecordedSteps
from fewjoules.engine.simulator.cuda.messages import GpuMessages, Sizes, to_host
from fewjoules.engine.simulator.cuda.precision import arithmetic
from fewjoules.engine.simulator.local import Progress, Samples, train_one, train_stack
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.errors import DivergedError

_ENCODERS = max(1, min(8, CORES // 2))
_SPAN_ENTRIES = 8192  # that a thread should count at least: to wake one costs the time of some thousand
Graphs = dict[tuple[int, int, int, float, bool], RecordedSteps]


class GpuClients:
    """Trains ``chunk`` clients at a time; a module that cannot be vectorised has chunks of one."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        samples: Samples,
        options: TrainingOptions,
        *,
        chunk: int,
        stacked: bool,
        seeded: bool,
        compiled: bool,
        graphs: Graphs | None = None,
    ) -> None:
        """Nothing is compiled before the first round; ``graphs`` may hold those of like runs, and keeps new ones."""
        keep_freed_memory()
        self.samples, self.options, self.chunk = samples, options, chunk
        self._stacked, self._compiled = stacked, compiled
        device = samples.inputs.device
        kind = ClientModel if stacked else SingleModel
        self._model: Any = kind(model, loss, device, precision=options.precision)
        self._seeded = seeded
        self._shared, self._graphs = graphs is not None, {} if graphs is None else graphs
        self._shares: dict[bytes, torch.Tensor] = {}
        self._encoders = ThreadPoolExecutor(_ENCODERS, "fewjoules-encode")
        self._messages = GpuMessages(options, self._encoders)

    def run(self, state: TrainingState, task: RoundTask, meanwhile: Callable[[], None]) -> Callable[[], Uploads]:
        """Like the processor's; ``meanwhile`` runs while the GPU does, and messages are counted in threads."""
        starts = range(0, task.participants.size, self.chunk)
        parts = [slice(start, min(start + self.chunk, task.participants.size)) for start in starts]
        mean = torch.zeros_like(state.weights)
        trained: list[Progress] = []
        counted: list[Future[IntArray]] = []
        buffers = []
        for part in parts:
            with arithmetic(self.options.precision):
                updates, progress, own = self._train(state, task, part)
            counted += self._compress(state, task, part, updates, mean, own)
            trained.append(progress)
            buffers.append(own)
        state.weights = state.weights - mean
        if self.options.downlink == "charged":
            state.mean_update = mean.cpu().numpy()
        if state.buffers.numel():
            state.buffers = average_buffers(torch.cat(buffers), state.buffers, task)
        steps = torch.cat([torch.stack((one.losses, one.correct)) for one in trained], dim=2)
        (told, finite), ready = to_host(steps, torch.isfinite(mean).all())
        dense = self.options.compressor in ("qsgd", "none")
        meanwhile()

        def uploads() -> Uploads:
            ready.synchronize()
            losses, correct = told.numpy()
            require_finite(losses, task.number, task.participants)
            sizes = [future.result() for future in counted]
            if not bool(finite):
                raise DivergedError(f"training diverged: the mean update of round {task.number} is not finite")
            entries = np.full(task.kept.size, mean.numel()) if dense else task.kept
            return Uploads(entries, np.concatenate(sizes), losses, correct)

        return uploads

    def _train(self, state: TrainingState, task: RoundTask, part: slice) -> tuple[torch.Tensor, Progress, torch.Tensor]:
        """Local steps of a chunk: w - v of its clients, how they went, and their buffers."""
        clients = part.stop - part.start
        batches = task.batches.of(part)
        if self._stacked and not self._seeded:
            steps = self._recorded(batches.numbers.shape[2])
            losses, correct = steps.run(state.weights, state.buffers, batches)
            progress = Progress(losses[:, :clients].clone(), correct[:, :clients].clone())
            return steps.updates[:clients], progress, steps.buffers[:clients].clone()
        local, buffers = state.weights.repeat(clients, 1), state.buffers.repeat(clients, 1)
        train: Any = train_stack if self._stacked else train_one
        with torch.random.fork_rng(devices=[local.device], enabled=self._seeded):
            if self._seeded:
                torch.manual_seed(stream_key(self.options.seed, "model", task.number, int(task.participants[part][0])))
            progress = train(self._model, self.samples, batches, local, buffers, self.options.momentum)
        return state.weights - local, progress, buffers

    def _recorded(self, batch: int) -> RecordedSteps:
        """Batches grow by doubling, with padding, so that few sizes are ever compiled."""
        first = self.options.batch_size or batch
        capacity = batch if batch <= first else first * 2 ** math.ceil(math.log2(batch / first))
        key = (self.chunk, self.options.local_steps, capacity, self.options.momentum, self._compiled)
        if key not in self._graphs:
            if not self._shared:
                self._graphs.clear()
            like = [graph for known, graph in self._graphs.items() if known[:1] + known[2:] == key[:1] + key[2:]]
            self._graphs[key] = RecordedSteps(self._model, self.samples, *key, like=like[0] if like else None)
        return self._graphs[key]

    def _compress(
        self,
        state: TrainingState,
        task: RoundTask,
        part: slice,
        updates: torch.Tensor,
        mean: torch.Tensor,
        buffers: torch.Tensor,
    ) -> list[Future[IntArray]]:
        """Lines 8 to 10 and 20 for a chunk: memories change in place, p_m g_m is added to ``mean``."""
        clients = task.participants[part]
        neighbours = clients.size == int(clients[-1]) - int(clients[0]) + 1
        if not self.options.error_feedback:
            memories = torch.zeros_like(updates)
        elif neighbours:  # a view, and nothing to send to the GPU, for which the host would wait
            memories = state.memories[int(clients[0]) : int(clients[-1]) + 1]
        else:
            memories = state.memories[torch.from_numpy(clients).to(updates.device)]
        sizes = self._messages.send(updates, memories, task.of(part))
        if self.options.error_feedback and not neighbours:
            state.memories[torch.from_numpy(clients).to(updates.device)] = memories
        mean += self._on_device(np.where(task.delivered[part], task.shares[part], 0.0).astype(np.float32)) @ updates
        return self._count(sizes, task.kept[part], buffers)

    def _on_device(self, shares: Floats) -> torch.Tensor:
        """The shares of a chunk on the GPU; they seldom change from round to round."""
        key = shares.tobytes()
        if key not in self._shares:
            self._shares = {key: torch.from_numpy(shares).to(self.samples.inputs.device)}
        return self._shares[key]

    def _count(self, sizes: Sizes, kept: IntArray, buffers: torch.Tensor) -> list[Future[IntArray]]:
        """Bytes of the messages, counted in threads, some clients in each."""
        (own,), ready = to_host(buffers)
        most = min(_ENCODERS, kept.size)
        spans = np.array_split(np.arange(kept.size), min(most, -(-int(kept.sum()) // _SPAN_ENTRIES)))

        def count(span: IntArray) -> IntArray:
            bytes_of = sizes(span)
            if not own.numel():
                return bytes_of
            ready.synchronize()
            return bytes_of + np.array([dense_bytes(own[row].numpy()) for row in span])

        return [self._encoders.submit(count, span) for span in spans]

    def close(self) -> None:
        """Let the threads and the graphs go, those shared with other runs excepted."""
        from fewjoules.engine.simulator.cuda.topk import forget_selections

        forget_selections()
        self._encoders.shutdown()
        if not self._shared:
            self._graphs.clear()
