"""The parts of a compressor: how it chooses entries, which kinds of values it can send, and its form on a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fewjoules.arrays import Floats, IntArray
from fewjoules.codec.update import SparseUpdate
from fewjoules.codec.values import KINDS
from fewjoules.errors import CorruptPayloadError, InvalidInputError

if TYPE_CHECKING:
    from fewjoules.engine.algorithm.round import ClientOrder

Sent = tuple[SparseUpdate, Floats]
Choose = Callable[[Floats, Floats, "ClientOrder"], Sent]
OWN_KINDS = ("ternary",)  # sent only by the compressor of that name


@dataclass(frozen=True, slots=True)
class RowMessages:
    """Messages of a chunk of clients: the entries of each, and ``sizes``, which returns the bytes of a range of them.

    ``sizes`` may block; with ``counted_by_host`` it computes on the host and is worth a thread. ``positions``
    returns a tensor of the sent positions in the flattened rows; None means all.
    """

    entries: IntArray
    sizes: Callable[[IntArray], IntArray]
    positions: Callable[[], Any] | None = None
    counted_by_host: bool = False


@dataclass(frozen=True, kw_only=True)
class Compressor:
    """Splits update + residual into a sent update and a new residual, whose sum is the input.

    ``choose(update, residual, order)`` may overwrite its arrays. ``kind`` is set if the compressor supports only one
    kind of values; ``rounds_itself`` means that ``choose`` already rounds to it. ``dense`` means that every entry is
    sent, whatever k is. The server divides what it decodes by ``scale``, if there is one. ``on_rows`` compresses a
    stack of clients on a GPU (``RowsInFlight`` of simulator/cuda/messages.py); without it, each client's row goes
    through ``choose`` on the host.
    """

    name: str
    choose: Choose
    kind: str | None = None
    rounds_itself: bool = False
    dense: bool = False
    scale: Callable[["ClientOrder"], float] | None = None
    on_rows: Callable[[Any], RowMessages] | None = None

    def require_values(self, values: str) -> None:
        """Refuse a kind of values that this compressor cannot send."""
        if self.kind is not None and values not in ("float32", self.kind):
            raise InvalidInputError(f"compressor = {self.name!r} sends its own kind of values, not {values!r}")
        if self.kind is None and values in OWN_KINDS:
            raise InvalidInputError(f"values = {values!r} needs compressor = {values!r}, got {self.name!r}")

    def kind_of(self, order: "ClientOrder") -> str:
        """Kind of values on the wire."""
        return self.kind or order.values

    def send(self, update: Floats, residual: Floats, order: "ClientOrder") -> Sent:
        """Run lines 9 and 10: return the update as the server decodes it and the residual, rounding errors included."""
        from fewjoules.codec.compressors import with_values

        sent, left = self.choose(update, residual, order)
        kind = self.kind_of(order)
        if kind == "float32" or self.rounds_itself:
            return sent, left
        draws = order.draws(1) if KINDS[kind].needs_rng else None
        return with_values(sent, left, kind, levels=order.levels, rng=draws)

    def message_bytes(self, sent: SparseUpdate, rest: Floats, order: "ClientOrder") -> int:
        """Bytes of the message that carries the update, by ``encoded_size``; ``rest`` is its rounding error.

        Kinds that round at random are sized from the values before rounding, with the same random draws.
        """
        from fewjoules.codec.frame import encoded_size

        kind = self.kind_of(order)
        if not KINDS[kind].needs_rng:
            return encoded_size(sent, values=kind)
        before = SparseUpdate.trusted(sent.size, sent.positions, sent.values + rest)
        draws = order.draws() if self.rounds_itself else order.draws(1)
        return encoded_size(before, values=kind, levels=order.levels, rng=draws)

    def write(self, update: Floats, residual: Floats, order: "ClientOrder") -> tuple[bytes, SparseUpdate, Floats]:
        """Run lines 9 and 10 as ``send`` does, and write the message; ``received`` reads it."""
        from fewjoules.codec.frame import encode

        kind = self.kind_of(order)
        if self.rounds_itself:
            total = update + residual
            everything = SparseUpdate.trusted(total.size, np.arange(total.size), total)
            sent, left = self.choose(update, residual, order)
            return encode(everything, values=kind, levels=order.levels, rng=order.draws()), sent, left
        chosen, left = self.choose(update, residual, order)
        draws = order.draws(1) if KINDS[kind].needs_rng else None
        payload = encode(chosen, values=kind, levels=order.levels, rng=draws)
        sent = self.received(payload, order, update.size)
        left[sent.positions] += chosen.values - sent.values
        return payload, sent, left

    def received(self, payload: bytes, order: "ClientOrder", size: int) -> SparseUpdate:
        """Return the update of a message for a model of ``size`` parameters, as the server takes it."""
        from fewjoules.codec.frame import decode

        update = decode(payload, max_size=size)
        if update.size != size:
            raise CorruptPayloadError(f"the payload must be for {size} parameters, got {update.size}")
        if self.scale is None:
            return update
        return SparseUpdate.trusted(size, update.positions, update.values / np.float32(self.scale(order)))
