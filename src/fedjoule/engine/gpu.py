"""Clients on a GPU: a whole chunk trains as one stack, and compression and aggregation stay on the device.

A round is handed to the GPU without waiting for it. Meanwhile the host prepares the next one and books the last one,
and threads count the bytes of its messages.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fedjoule.arrays import IntArray
from fedjoule.codec.sizes import ESTIMATE_FROM, dense_float32_sizes, dense_qsgd_sizes, float32_sizes
from fedjoule.codec.threads import CORES
from fedjoule.codec.update import SparseUpdate
from fedjoule.codec.values import ZERO_SYMBOL
from fedjoule.engine.algorithm import Floats, compress, take_back
from fedjoule.engine.compress import qsgd_of_clients
from fedjoule.engine.graph import RecordedSteps
from fedjoule.engine.local import Progress, Samples, train_one, train_stack
from fedjoule.engine.memory import keep_freed_memory
from fedjoule.engine.options import TrainingOptions
from fedjoule.engine.precision import arithmetic
from fedjoule.engine.rounds import RoundTask, TrainingState, Uploads, average_buffers, require_finite
from fedjoule.engine.single import SingleModel
from fedjoule.engine.stack import ClientModel, Loss
from fedjoule.engine.streams import stream, stream_key
from fedjoule.engine.uploads import compressor_of, dense_bytes, message_bytes, round_values
from fedjoule.errors import DivergedError, InvalidInputError

_ENCODERS = max(1, min(8, CORES // 2))
_SYMBOLS = 256
Sizes = Callable[[IntArray], IntArray]  # bytes of the messages of some neighbouring clients of a chunk
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
        self._starts: dict[bytes, torch.Tensor] = {}
        self._shares: dict[bytes, torch.Tensor] = {}
        self._encoders = ThreadPoolExecutor(_ENCODERS, "fedjoule-encode")

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
        (told, finite), ready = _to_host(steps, torch.isfinite(mean).all())
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
        sizes = self._sender(task, part, updates.shape[1])(updates, memories, task, part)
        if self.options.error_feedback and not neighbours:
            state.memories[torch.from_numpy(clients).to(updates.device)] = memories
        mean += self._on_device(np.where(task.delivered[part], task.shares[part], 0.0).astype(np.float32)) @ updates
        return self._count(sizes, clients.size, buffers)

    def _sender(self, task: RoundTask, part: slice, size: int) -> Callable[..., Sizes]:
        """The fastest way to compress a chunk: ``updates`` becomes what is sent, ``memories`` what is left."""
        options = self.options
        if options.compressor == "qsgd" and size >= ESTIMATE_FROM:
            return self._quantised
        if options.compressor == "ternary" or (options.compressor == "top-k" and options.values != "float32"):
            return self._rounded_top_k
        if options.values != "float32" or options.compressor not in ("top-k", "none"):
            return self._one_by_one
        everything = options.compressor == "none" or bool(np.all(task.kept[part] == size))
        if everything and size >= ESTIMATE_FROM:
            return self._everything
        return self._top_k if options.compressor == "top-k" else self._one_by_one

    def _everything(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask, part: slice) -> Sizes:
        """Nothing is left out; the exponents of the values, which the sizes depend on, are counted on the GPU."""
        updates += memories
        memories.zero_()
        self._take_back(updates, memories, task, part)
        exponents = (updates.view(torch.int32) >> 23) & (_SYMBOLS - 1)
        return self._counted(exponents, dense_float32_sizes)

    def _quantised(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask, part: slice) -> Sizes:
        """QSGD on the GPU, with the draws of the processor."""
        size, clients = updates.shape[1], task.participants[part].tolist()
        draws = np.empty(updates.shape)

        def draw(row: int) -> None:
            stream(self.options.seed, "compressor", task.number, clients[row]).random(size, out=draws[row])

        list(self._encoders.map(draw, range(len(clients))))
        memories += updates
        values, signed = qsgd_of_clients(memories, self.options.levels, torch.from_numpy(draws).to(updates.device))
        memories -= values
        updates.copy_(values)
        self._take_back(updates, memories, task, part)
        return self._counted(torch.nan_to_num(signed) + ZERO_SYMBOL, dense_qsgd_sizes)  # NaN is refused later

    def _take_back(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask, part: slice) -> None:
        lost = ~task.delivered[part]
        if lost.any() and self.options.error_feedback:
            rows = torch.from_numpy(np.flatnonzero(lost)).to(updates.device)
            memories[rows] += updates[rows]

    def _counted(self, symbols: torch.Tensor, sizes_of: Callable[[int, IntArray], IntArray]) -> Sizes:
        """Sizes from how often each symbol comes in each row of (clients, size)."""
        symbols = symbols.long()
        counts = torch.zeros((symbols.shape[0], _SYMBOLS), dtype=torch.int32, device=symbols.device)
        counts.scatter_add_(1, symbols, torch.ones_like(counts[:1, :1]).expand_as(symbols))
        (counted,), ready = _to_host(counts)

        def sizes(span: IntArray) -> IntArray:
            ready.synchronize()
            return sizes_of(symbols.shape[1], counted.numpy()[span])

        return sizes

    def _top_k(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask, part: slice) -> Sizes:
        """All rows at once, without a wait."""
        chosen = self._select(updates, memories, task, part)
        self._scatter(updates, memories, chosen.flat, chosen.values, task, part)

        def sizes(span: IntArray) -> IntArray:
            positions, values = chosen.on_host()
            sent = slice(chosen.parts[span[0]].start, chosen.parts[span[-1]].stop)
            return float32_sizes(updates.shape[1], positions[sent], values[sent], task.kept[part][span])

        return sizes

    def _rounded_top_k(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask, part: slice) -> Sizes:
        """Selected on the GPU; the few chosen values are rounded on the host."""
        chosen = self._select(updates, memories, task, part)
        positions, values = chosen.on_host()
        seen, rest = np.empty_like(values), np.empty_like(values)
        known = np.empty(len(chosen.parts), dtype=np.int64)
        for row, own in enumerate(chosen.parts):
            client = int(task.participants[part][row])
            try:
                seen[own], rest[own] = round_values(self.options, values[own], client, task.number)
            except InvalidInputError as error:
                raise DivergedError(
                    f"the update of client {client} in round {task.number} cannot be sent: {error}"
                ) from error
            sent = SparseUpdate.trusted(updates.shape[1], positions[own], seen[own])
            known[row] = message_bytes(self.options, sent, rest[own], client, task.number)
        memories.view(-1)[chosen.flat] = torch.from_numpy(rest).to(updates.device)
        self._scatter(updates, memories, chosen.flat, torch.from_numpy(seen).to(updates.device), task, part)
        return lambda span: known[span]

    def _select(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask, part: slice) -> "_Chosen":
        """Top-k of every row; ``memories`` then hold the sums with what was chosen cleared."""
        from fedjoule.engine.topk_cuda import rows_with_nan, select_rows

        kept = task.kept[part]
        positions, values, states = select_rows(updates, memories, kept.tolist(), memories)
        flat = positions + self._row_starts(kept, updates.shape[1])
        (host_positions, host_values, host_states), ready = _to_host(positions, values, states)

        def on_host() -> tuple[IntArray, Floats]:
            ready.synchronize()
            for row in rows_with_nan(host_states):
                client = task.participants[part][row]
                raise DivergedError(f"training diverged: the update of client {client} in round {task.number} is NaN")
            return host_positions.numpy(), host_values.numpy()

        ends = np.cumsum(kept).tolist()
        parts = [slice(end - int(k), end) for end, k in zip(ends, kept, strict=True)]
        return _Chosen(flat, values, parts, on_host)

    def _scatter(
        self,
        updates: torch.Tensor,
        memories: torch.Tensor,
        flat: torch.Tensor,
        values: torch.Tensor,
        task: RoundTask,
        part: slice,
    ) -> None:
        """``updates`` becomes what was sent, dense; what was lost goes back to the memories."""
        updates.zero_()
        updates.view(-1)[flat] = values
        lost = np.repeat(~task.delivered[part], task.kept[part])
        if lost.any() and self.options.error_feedback:
            taken_back = torch.from_numpy(np.flatnonzero(lost)).to(updates.device)
            memories.view(-1)[flat[taken_back]] += values[taken_back]

    def _row_starts(self, kept: IntArray, size: int) -> torch.Tensor:
        """The flat position at which the row of each kept entry starts."""
        key = kept.tobytes()
        if key not in self._starts:
            starts = np.repeat(np.arange(kept.size) * size, kept)
            self._starts = {key: torch.from_numpy(starts).to(self.samples.inputs.device)}
        return self._starts[key]

    def _on_device(self, shares: Floats) -> torch.Tensor:
        """The shares of a chunk on the GPU; they seldom change from round to round."""
        key = shares.tobytes()
        if key not in self._shares:
            self._shares = {key: torch.from_numpy(shares).to(self.samples.inputs.device)}
        return self._shares[key]

    def _one_by_one(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask, part: slice) -> Sizes:
        """The compressors of the processor, each client in a thread."""
        computed, kept_back = updates.cpu().numpy(), memories.cpu().numpy()

        def send(row: int) -> int:
            client, k = int(task.participants[part][row]), int(task.kept[part][row])
            compressor = compressor_of(self.options, k, client, task.number)
            try:
                sent, left = compress(computed[row], np.zeros_like(computed[row]), kept_back[row], compressor)
            except InvalidInputError as error:
                raise DivergedError(
                    f"the update of client {client} in round {task.number} cannot be sent: {error}"
                ) from error
            size = message_bytes(self.options, sent, left[sent.positions], client, task.number)
            if not task.delivered[part][row]:
                take_back(sent, left)
            computed[row], kept_back[row] = sent.to_dense(), left
            return size

        known = np.array(list(self._encoders.map(send, range(computed.shape[0]))))
        memories.copy_(torch.from_numpy(kept_back))
        updates.copy_(torch.from_numpy(computed))
        return lambda span: known[span]

    def _count(self, sizes: Sizes, clients: int, buffers: torch.Tensor) -> list[Future[IntArray]]:
        """Bytes of the messages, counted in threads, some clients in each."""
        (own,), ready = _to_host(buffers)
        spans = np.array_split(np.arange(clients), min(_ENCODERS, clients))

        def count(span: IntArray) -> IntArray:
            bytes_of = sizes(span)
            if not own.numel():
                return bytes_of
            ready.synchronize()
            return bytes_of + np.array([dense_bytes(own[row].numpy()) for row in span])

        return [self._encoders.submit(count, span) for span in spans]

    def close(self) -> None:
        """Let the threads and the graphs go, those shared with other runs excepted."""
        from fedjoule.engine.topk_cuda import forget_selections

        forget_selections()
        self._encoders.shutdown()
        if not self._shared:
            self._graphs.clear()


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Entries that the clients of a chunk chose, one client after the other; ``on_host`` waits for them."""

    flat: torch.Tensor
    values: torch.Tensor
    parts: list[slice]
    on_host: Callable[[], tuple[IntArray, Floats]]


def _to_host(*tensors: torch.Tensor) -> tuple[list[torch.Tensor], torch.cuda.Event]:
    """Copies in pinned memory that arrive while the GPU goes on, and the event that says when."""
    host = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
    for target, tensor in zip(host, tensors, strict=True):
        target.copy_(tensor, non_blocking=True)
    ready = torch.cuda.Event(blocking=True)  # threads that wait by spinning would starve the one that feeds the GPU
    ready.record()
    return host, ready
