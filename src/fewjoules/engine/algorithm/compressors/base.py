"""What a compressor is: how it chooses entries, as which kinds of values they may be sent, and its form on a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fewjoules.arrays import Floats, IntArray
from fewjoules.codec.update import SparseUpdate
from fewjoules.codec.values import KINDS
from fewjoules.errors import InvalidInputError

if TYPE_CHECKING:
    from fewjoules.engine.algorithm.round import ClientOrder

Sent = tuple[SparseUpdate, Floats]
Choose = Callable[[Floats, Floats, "ClientOrder"], Sent]
OWN_KINDS = ("ternary",)  # sent only by the compressor of that name


@dataclass(frozen=True, slots=True)
class RowMessages:
    """Messages of a chunk of clients: entries of each, and ``sizes``, the bytes of some neighbours of them.

    Sizes may have to be waited for; ``counted_by_host`` tells that they are work for threads. ``positions`` are those
    that were sent, in the flattened rows, as a tensor; None means all.
    """

    entries: IntArray
    sizes: Callable[[IntArray], IntArray]
    positions: Any = None
    counted_by_host: bool = False


@dataclass(frozen=True, kw_only=True)
class Compressor:
    """Chooses what is sent of update + residual; what is left is the new residual, and both add to what went in.

    ``choose(update, residual, order)`` may overwrite the arrays it is given. ``kind`` is the kind of values of a
    compressor that has only one; ``rounds_itself`` tells that ``choose`` has rounded to it already. ``dense`` means
    that every entry is sent whatever k. ``on_rows`` does the same for a stack of clients on a GPU (``RowsInFlight`` of
    simulator/cuda/messages.py); without it, each client's row goes through ``choose`` on the host.
    """

    name: str
    choose: Choose
    kind: str | None = None
    rounds_itself: bool = False
    dense: bool = False
    on_rows: Callable[[Any], RowMessages] | None = None

    def require_values(self, values: str) -> None:
        """Refuse a kind of values as which this compressor's entries cannot be sent."""
        if self.kind is not None and values not in ("float32", self.kind):
            raise InvalidInputError(f"compressor = {self.name!r} has values of its own kind, got {values!r}")
        if self.kind is None and values in OWN_KINDS:
            raise InvalidInputError(f"values = {values!r} needs compressor = {values!r}, got {self.name!r}")

    def kind_of(self, order: "ClientOrder") -> str:
        """The kind of values on the wire."""
        return self.kind or order.values

    def send(self, update: Floats, residual: Floats, order: "ClientOrder") -> Sent:
        """Lines 9 and 10: the update as the server will see it, and what is left; rounding errors are left, too."""
        from fewjoules.codec.compressors import with_values

        sent, left = self.choose(update, residual, order)
        kind = self.kind_of(order)
        if kind == "float32" or self.rounds_itself:
            return sent, left
        draws = order.draws(1) if KINDS[kind].needs_rng else None
        return with_values(sent, left, kind, levels=order.levels, rng=draws)

    def message_bytes(self, sent: SparseUpdate, rest: Floats, order: "ClientOrder") -> int:
        """Bytes of the message that carries the update, by ``encoded_size``; ``rest`` is what rounding left of it.

        A kind that rounds at random is sized for the values before rounding, with the draws that rounded them.
        """
        from fewjoules.codec.frame import encoded_size

        kind = self.kind_of(order)
        if not KINDS[kind].needs_rng:
            return encoded_size(sent, values=kind)
        before = SparseUpdate.trusted(sent.size, sent.positions, sent.values + rest)
        draws = order.draws() if self.rounds_itself else order.draws(1)
        return encoded_size(before, values=kind, levels=order.levels, rng=draws)
