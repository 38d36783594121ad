"""What the clients of a chunk send, on a GPU: compression in place, and how many bytes the messages take.

Nothing waits for the GPU where that can be helped: sizes are functions to be called later, in a thread.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import torch

from fewjoules.arrays import IntArray
from fewjoules.codec.sizes import ESTIMATE_FROM, dense_float32_sizes, dense_qsgd_sizes, float32_sizes
from fewjoules.codec.update import SparseUpdate
from fewjoules.codec.values import ZERO_SYMBOL
from fewjoules.engine.algorithm.client import Floats, compress, take_back
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import RoundTask
from fewjoules.engine.algorithm.streams import stream
from fewjoules.engine.algorithm.uploads import compressor_of, message_bytes, round_values
from fewjoules.engine.simulator.cuda.compress import qsgd_of_clients
from fewjoules.errors import DivergedError, InvalidInputError

_SYMBOLS = 256
Sizes = Callable[[IntArray], IntArray]  # bytes of the messages of some neighbouring clients of a chunk


class GpuMessages:
    """Compresses (clients, parameters) stacks by the options of a run."""

    def __init__(self, options: TrainingOptions, encoders: Executor) -> None:
        """``encoders`` do what is left to the host."""
        self.options, self._encoders = options, encoders
        self._starts: dict[bytes, torch.Tensor] = {}

    def send(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask) -> Sizes:
        """Compress the updates of a chunk the fastest way: they become what is sent, ``memories`` what is left."""
        return self._way(task, updates.shape[1])(updates, memories, task)

    def _way(self, task: RoundTask, size: int) -> Callable[..., Sizes]:
        options = self.options
        if options.compressor == "qsgd" and size >= ESTIMATE_FROM:
            return self._quantised
        if options.compressor == "ternary" or (options.compressor == "top-k" and options.values != "float32"):
            return self._rounded_top_k
        if options.values != "float32" or options.compressor not in ("top-k", "none"):
            return self._one_by_one
        everything = options.compressor == "none" or bool(np.all(task.kept == size))
        if everything and size >= ESTIMATE_FROM:
            return self._everything
        return self._top_k if options.compressor == "top-k" else self._one_by_one

    def _everything(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask) -> Sizes:
        """Nothing is left out; the exponents of the values, which the sizes depend on, are counted on the GPU."""
        updates += memories
        memories.zero_()
        self._take_back(updates, memories, task)
        exponents = (updates.view(torch.int32) >> 23) & (_SYMBOLS - 1)
        return self._counted(exponents, dense_float32_sizes)

    def _quantised(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask) -> Sizes:
        """QSGD on the GPU, with the draws of the processor."""
        size, clients = updates.shape[1], task.participants.tolist()
        draws = np.empty(updates.shape)

        def draw(row: int) -> None:
            stream(self.options.seed, "compressor", task.number, clients[row]).random(size, out=draws[row])

        list(self._encoders.map(draw, range(len(clients))))
        memories += updates
        values, signed = qsgd_of_clients(memories, self.options.levels, torch.from_numpy(draws).to(updates.device))
        memories -= values
        updates.copy_(values)
        self._take_back(updates, memories, task)
        return self._counted(torch.nan_to_num(signed) + ZERO_SYMBOL, dense_qsgd_sizes)  # NaN is refused later

    def _take_back(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask) -> None:
        lost = ~task.delivered
        if lost.any() and self.options.error_feedback:
            rows = torch.from_numpy(np.flatnonzero(lost)).to(updates.device)
            memories[rows] += updates[rows]

    def _counted(self, symbols: torch.Tensor, sizes_of: Callable[[int, IntArray], IntArray]) -> Sizes:
        """Sizes from how often each symbol comes in each row of (clients, size)."""
        symbols = symbols.long()
        counts = torch.zeros((symbols.shape[0], _SYMBOLS), dtype=torch.int32, device=symbols.device)
        counts.scatter_add_(1, symbols, torch.ones_like(counts[:1, :1]).expand_as(symbols))
        (counted,), ready = to_host(counts)

        def sizes(span: IntArray) -> IntArray:
            ready.synchronize()
            return sizes_of(symbols.shape[1], counted.numpy()[span])

        return sizes

    def _top_k(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask) -> Sizes:
        """All rows at once, without a wait."""
        chosen = self._select(updates, memories, task)
        self._scatter(updates, memories, chosen.flat, chosen.values, task)

        def sizes(span: IntArray) -> IntArray:
            positions, values = chosen.on_host()
            sent = slice(chosen.parts[span[0]].start, chosen.parts[span[-1]].stop)
            return float32_sizes(updates.shape[1], positions[sent], values[sent], task.kept[span])

        return sizes

    def _rounded_top_k(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask) -> Sizes:
        """Selected on the GPU; the few chosen values are rounded on the host."""
        chosen = self._select(updates, memories, task)
        positions, values = chosen.on_host()
        seen, rest = np.empty_like(values), np.empty_like(values)
        known = np.empty(len(chosen.parts), dtype=np.int64)
        for row, own in enumerate(chosen.parts):
            client = int(task.participants[row])
            try:
                seen[own], rest[own] = round_values(self.options, values[own], client, task.number)
            except InvalidInputError as error:
                raise DivergedError(
                    f"the update of client {client} in round {task.number} cannot be sent: {error}"
                ) from error
            sent = SparseUpdate.trusted(updates.shape[1], positions[own], seen[own])
            known[row] = message_bytes(self.options, sent, rest[own], client, task.number)
        memories.view(-1)[chosen.flat] = torch.from_numpy(rest).to(updates.device)
        self._scatter(updates, memories, chosen.flat, torch.from_numpy(seen).to(updates.device), task)
        return lambda span: known[span]

    def _select(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask) -> "_Chosen":
        """Top-k of every row; ``memories`` then hold the sums with what was chosen cleared."""
        from fewjoules.engine.simulator.cuda.topk import rows_with_nan, select_rows

        kept = task.kept
        positions, values, states = select_rows(updates, memories, kept.tolist(), memories)
        flat = positions + self._row_starts(kept, updates.shape[1], updates.device)
        (host_positions, host_values, host_states), ready = to_host(positions, values, states)

        def on_host() -> tuple[IntArray, Floats]:
            ready.synchronize()
            for row in rows_with_nan(host_states):
                client = task.participants[row]
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
    ) -> None:
        """``updates`` becomes what was sent, dense; what was lost goes back to the memories."""
        updates.zero_()
        updates.view(-1)[flat] = values
        lost = np.repeat(~task.delivered, task.kept)
        if lost.any() and self.options.error_feedback:
            taken_back = torch.from_numpy(np.flatnonzero(lost)).to(updates.device)
            memories.view(-1)[flat[taken_back]] += values[taken_back]

    def _row_starts(self, kept: IntArray, size: int, device: torch.device) -> torch.Tensor:
        """The flat position at which the row of each kept entry starts."""
        key = kept.tobytes()
        if key not in self._starts:
            starts = np.repeat(np.arange(kept.size) * size, kept)
            self._starts = {key: torch.from_numpy(starts).to(device)}
        return self._starts[key]

    def _one_by_one(self, updates: torch.Tensor, memories: torch.Tensor, task: RoundTask) -> Sizes:
        """The compressors of the processor, each client in a thread."""
        computed, kept_back = updates.cpu().numpy(), memories.cpu().numpy()

        def send(row: int) -> int:
            client, k = int(task.participants[row]), int(task.kept[row])
            compressor = compressor_of(self.options, k, client, task.number)
            try:
                sent, left = compress(computed[row], np.zeros_like(computed[row]), kept_back[row], compressor)
            except InvalidInputError as error:
                raise DivergedError(
                    f"the update of client {client} in round {task.number} cannot be sent: {error}"
                ) from error
            size = message_bytes(self.options, sent, left[sent.positions], client, task.number)
            if not task.delivered[row]:
                take_back(sent, left)
            computed[row], kept_back[row] = sent.to_dense(), left
            return size

        known = np.array(list(self._encoders.map(send, range(computed.shape[0]))))
        memories.copy_(torch.from_numpy(kept_back))
        updates.copy_(torch.from_numpy(computed))
        return lambda span: known[span]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Entries that the clients of a chunk chose, one client after the other; ``on_host`` waits for them."""

    flat: torch.Tensor
    values: torch.Tensor
    parts: list[slice]
    on_host: Callable[[], tuple[IntArray, Floats]]


def to_host(*tensors: torch.Tensor) -> tuple[list[torch.Tensor], torch.cuda.Event]:
    """Copies in pinned memory that arrive while the GPU goes on, and the event that says when."""
    host = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
    for target, tensor in zip(host, tensors, strict=True):
        target.copy_(tensor, non_blocking=True)
    ready = torch.cuda.Event(blocking=True)  # threads that wait by spinning would starve the one that feeds the GPU
    ready.record()
    return host, ready
