"""Messages of a chunk of clients on a GPU: compress updates in place and size the messages.

To avoid waiting for the GPU, sizes are functions to be called later, in a thread.
"""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import torch

from fewjoules.arrays import Flags, Floats, IntArray
from fewjoules.codec.compressors import with_values
from fewjoules.codec.sizes import ESTIMATE_FROM, dense_float32_sizes, dense_qsgd_sizes
from fewjoules.codec.update import SparseUpdate
from fewjoules.codec.values import KINDS, ZERO_SYMBOL
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.compressors.base import RowMessages
from fewjoules.engine.algorithm.round import ClientOrder, RoundPlan
from fewjoules.engine.simulator.cuda.qsgd import qsgd_of_clients
from fewjoules.engine.simulator.cuda.row_sizes import RowSizer
from fewjoules.engine.simulator.cuda.transfer import to_host
from fewjoules.errors import DivergedError, InvalidInputError

_SYMBOLS = 256
_MAX_SIZERS = 8


class Messages:
    """Compresses (clients, parameters) stacks, and caches tensors that rounds have in common."""

    def __init__(self, encoders: Executor) -> None:
        """Use the threads ``encoders`` for work on the host."""
        self.encoders = encoders
        self._starts: dict[bytes, torch.Tensor] = {}
        self._sizers: OrderedDict[bytes, RowSizer] = OrderedDict()

    def send(self, updates: torch.Tensor, residuals: torch.Tensor, plan: RoundPlan, delivered: Flags) -> RowMessages:
        """Compress a chunk in place: ``updates`` become the sent updates, ``residuals`` the new residuals."""
        rows = RowsInFlight(self, updates, residuals, plan, delivered)
        on_rows = COMPRESSORS[plan.options.compressor].on_rows
        return rows.send_one_by_one() if on_rows is None else on_rows(rows)

    def row_starts(self, kept: IntArray, size: int, device: torch.device) -> torch.Tensor:
        """Return, for each kept entry, the flat position at which its row starts."""
        key = kept.tobytes()
        if key not in self._starts:
            starts = np.repeat(np.arange(kept.size) * size, kept)
            self._starts = {key: torch.from_numpy(starts).to(device)}
        return self._starts[key]

    def sizer(self, kept: IntArray, size: int, device: torch.device) -> RowSizer:
        """Return a sizer for messages of ``kept`` entries each; the last few are cached."""
        key = kept.tobytes()
        found = self._sizers.pop(key, None)
        self._sizers[key] = RowSizer(kept, size, device) if found is None else found
        if len(self._sizers) > _MAX_SIZERS:
            self._sizers.popitem(last=False)
        return self._sizers[key]


@dataclass(frozen=True, slots=True)
class RowsInFlight:
    """Updates and residuals of a chunk of clients, and the ways in which a compressor may send them."""

    messages: Messages
    updates: torch.Tensor
    residuals: torch.Tensor
    plan: RoundPlan
    delivered: Flags

    @property
    def size(self) -> int:
        """Number of parameters of the model."""
        return self.updates.shape[1]

    @property
    def values(self) -> str:
        """Kind of values on the wire."""
        return COMPRESSORS[self.plan.options.compressor].kind or self.plan.options.values

    @property
    def keep_everything(self) -> bool:
        """Whether every entry of every client is sent."""
        return bool(np.all(self.plan.kept == self.size))

    def send_everything(self) -> RowMessages:
        """Send every entry; the GPU counts the exponents of the values, on which the sizes depend."""
        if self.size < ESTIMATE_FROM:
            return self.send_one_by_one()
        self.updates.add_(self.residuals)
        self.residuals.zero_()
        self._take_back()
        exponents = (self.updates.view(torch.int32) >> 23) & (_SYMBOLS - 1)
        return self._counted(exponents, dense_float32_sizes)

    def send_quantised(self) -> RowMessages:
        """Send all entries by QSGD, computed on the GPU with the random draws of the processor."""
        if self.size < ESTIMATE_FROM:
            return self.send_one_by_one()
        draws = np.empty(self.updates.shape)
        orders = [self.plan.order(row) for row in range(draws.shape[0])]

        def draw(row: int) -> None:
            orders[row].draws().random(self.size, out=draws[row])

        list(self.messages.encoders.map(draw, range(draws.shape[0])))
        self.residuals.add_(self.updates)
        chances = torch.from_numpy(draws).to(self.updates.device)
        values, signed = qsgd_of_clients(self.residuals, self.plan.options.levels, chances)
        self.residuals.sub_(values)
        self.updates.copy_(values)
        self._take_back()
        return self._counted(torch.nan_to_num(signed) + ZERO_SYMBOL, dense_qsgd_sizes)  # NaN is refused later

    def send_top_k(self) -> RowMessages:
        """Send the k largest entries of each row; values that are not float32 are rounded on the host."""
        return self._float32_top_k() if self.values == "float32" else self._rounded_top_k()

    def send_one_by_one(self) -> RowMessages:
        """Send each row through the processor's compressor, in threads."""
        computed, kept_back = self.updates.cpu().numpy(), self.residuals.cpu().numpy()
        compressor = COMPRESSORS[self.plan.options.compressor]

        def send(row: int) -> tuple[int, IntArray]:
            order = self.plan.order(row)
            try:
                sent, left = compressor.send(computed[row].copy(), kept_back[row].copy(), order)
            except InvalidInputError as error:
                raise self._cannot_be_sent(row, error) from error
            size = compressor.message_bytes(sent, left[sent.positions], order)
            if not self.delivered[row]:
                left[sent.positions] += sent.values
            computed[row], kept_back[row] = sent.to_dense(), left
            return size, sent.positions + row * self.size

        sizes, positions = zip(*self.messages.encoders.map(send, range(computed.shape[0])), strict=True)
        self.residuals.copy_(torch.from_numpy(kept_back))
        self.updates.copy_(torch.from_numpy(computed))
        known, entries = np.array(sizes, dtype=np.int64), np.array([one.size for one in positions], dtype=np.int64)
        flat = torch.from_numpy(np.concatenate(positions)).to(self.updates.device)
        return RowMessages(entries, lambda span: known[span], lambda: flat)

    def _float32_top_k(self) -> RowMessages:
        """Select, send and size without waiting for the GPU."""
        chosen = self._select()
        self._return_lost(chosen, chosen.values)
        sizer = self.messages.sizer(self.plan.kept, self.size, self.updates.device)
        sizes = sizer.sizes(chosen.positions, chosen.values)

        def checked(span: IntArray) -> IntArray:
            chosen.require_numbers()
            return sizes(span)

        return RowMessages(self.plan.kept, checked, chosen.flat, counted_by_host=sizer.needs_host)

    def _rounded_top_k(self) -> RowMessages:
        """Select on the GPU; round the few chosen values on the host."""
        chosen = self._select()
        (host_positions, host_values), ready = to_host(chosen.positions, chosen.values)
        ready.synchronize()
        chosen.require_numbers()
        positions, values = host_positions.numpy(), host_values.numpy()
        seen, rest = np.empty_like(values), np.empty_like(values)
        known = np.empty(len(chosen.parts), dtype=np.int64)
        compressor = COMPRESSORS[self.plan.options.compressor]
        for row, own in enumerate(chosen.parts):
            order = self.plan.order(row)
            try:
                seen[own], rest[own] = round_values(values[own], self.values, order)
            except InvalidInputError as error:
                raise self._cannot_be_sent(row, error) from error
            sent = SparseUpdate.trusted(self.size, positions[own], seen[own])
            known[row] = compressor.message_bytes(sent, rest[own], order)
        device = self.updates.device
        flat, rounded = chosen.flat(), torch.from_numpy(seen).to(device)
        self.residuals.view(-1)[flat] = torch.from_numpy(rest).to(device)
        self.updates.view(-1)[flat] = rounded
        self._return_lost(chosen, rounded)
        return RowMessages(self.plan.kept, lambda span: known[span], chosen.flat)

    def _select(self) -> "_Chosen":
        """Select the top k of every row; ``updates`` become the chosen entries, ``residuals`` all the others."""
        from fewjoules.engine.simulator.cuda.topk import rows_with_nan, select_rows

        kept = self.plan.kept
        pair = self.updates, self.residuals
        positions, values, states = select_rows(*pair, kept.tolist(), left=self.residuals, sent=self.updates)
        (host_states,), ready = to_host(states)

        def require_numbers() -> None:
            ready.synchronize()
            for row in rows_with_nan(host_states):
                client = self.plan.participants[row]
                raise DivergedError(
                    f"training diverged: the update of client {client} in round {self.plan.number} is NaN"
                )

        def flat() -> torch.Tensor:
            return positions + self.messages.row_starts(kept, self.size, self.updates.device)

        ends = np.cumsum(kept).tolist()
        parts = [slice(end - int(k), end) for end, k in zip(ends, kept, strict=True)]
        return _Chosen(flat, positions, values, parts, require_numbers)

    def _return_lost(self, chosen: "_Chosen", values: torch.Tensor) -> None:
        """Add the values of lost messages back to the residuals."""
        if not self.delivered.all() and self.plan.options.error_feedback:
            lost = np.flatnonzero(np.repeat(~self.delivered, self.plan.kept))
            taken_back = torch.from_numpy(lost).to(self.updates.device)
            self.residuals.view(-1)[chosen.flat()[taken_back]] += values[taken_back]

    def _take_back(self) -> None:
        """Add lost rows of ``updates`` back to the residuals."""
        lost = ~self.delivered
        if lost.any() and self.plan.options.error_feedback:
            rows = torch.from_numpy(np.flatnonzero(lost)).to(self.updates.device)
            self.residuals[rows] += self.updates[rows]

    def _counted(self, symbols: torch.Tensor, sizes_of: Callable[[int, IntArray], IntArray]) -> RowMessages:
        """Size messages with every entry from the counts of each symbol in each row."""
        symbols = symbols.long()
        counts = torch.zeros((symbols.shape[0], _SYMBOLS), dtype=torch.int32, device=symbols.device)
        counts.scatter_add_(1, symbols, torch.ones_like(counts[:1, :1]).expand_as(symbols))
        (counted,), ready = to_host(counts)

        def sizes(span: IntArray) -> IntArray:
            ready.synchronize()
            return sizes_of(self.size, counted.numpy()[span])

        return RowMessages(np.full(symbols.shape[0], self.size), sizes, counted_by_host=True)

    def _cannot_be_sent(self, row: int, error: InvalidInputError) -> DivergedError:
        client = int(self.plan.participants[row])
        return DivergedError(f"the update of client {client} in round {self.plan.number} cannot be sent: {error}")


def round_values(values: Floats, kind: str, order: ClientOrder) -> tuple[Floats, Floats]:
    """Round the chosen values of a client: return the values as the server decodes them, and the rounding errors."""
    chosen = SparseUpdate.trusted(values.size, np.arange(values.size), values)
    draws = order.draws(1) if KINDS[kind].needs_rng else None
    sent, left = with_values(chosen, np.zeros_like(values), kind, levels=order.levels, rng=draws)
    return sent.values, left


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Chosen entries of a chunk, one client after the other; ``require_numbers`` refuses NaN.

    ``flat`` returns their positions in the flattened rows.
    """

    flat: Callable[[], torch.Tensor]
    positions: torch.Tensor
    values: torch.Tensor
    parts: list[slice]
    require_numbers: Callable[[], None]
