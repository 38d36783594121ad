"""What the server accepts from a node: a reply to this round's order, of the right size, finite and plausible."""

from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.codec.frame import decode
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.compressors.chunked_top_k import CHUNK
from fewjoules.engine.algorithm.round import ClientOrder
from fewjoules.errors import CorruptPayloadError, InvalidInputError
from fewjoules.integrations.flower.messages import Reply

REJECT, CLIP = "reject", "clip"
_BYTES_PER_ENTRY, _SPARE_BYTES = 9, 4096  # more than any payload of the codec needs


@dataclass(frozen=True, slots=True)
class Screening:
    """Limits on uploads.

    Args:
        max_norm: Largest Euclidean norm of an update; None allows any.
        excess: What happens to a larger one: "reject", or "clip", which scales it to ``max_norm``.
    """

    max_norm: float | None = None
    excess: str = REJECT

    def __post_init__(self) -> None:
        """Refuse limits that make no sense."""
        if self.max_norm is not None and not 0.0 < self.max_norm < np.inf:
            raise InvalidInputError(f"max_norm must be above 0 and finite, got {self.max_norm!r}")
        if self.excess not in (REJECT, CLIP):
            raise InvalidInputError(f"excess must be {REJECT!r} or {CLIP!r}, got {self.excess!r}")

    def update(self, reply: Reply, order: ClientOrder, run: str, client: str, size: int) -> SparseUpdate:
        """Return the update of a reply, or refuse it in one sentence."""
        self._require_own(reply, order, run, client)
        allowed = size if COMPRESSORS[order.compressor].dense else order.k + -(-size // CHUNK)
        if len(reply.update) > _BYTES_PER_ENTRY * allowed + _SPARE_BYTES:
            raise InvalidInputError(f"its payload has {len(reply.update)} bytes, too many for {allowed} entries")
        try:
            update = COMPRESSORS[order.compressor].received(reply.update, order, size)
        except CorruptPayloadError as error:
            raise InvalidInputError(f"its payload does not decode: {error}") from error
        if update.count > allowed:
            raise InvalidInputError(f"its update must have at most {allowed} entries, got {update.count}")
        return self._plausible(update)

    def buffers(self, reply: Reply, size: int) -> Floats:
        """Return the buffers of a reply, or refuse them in one sentence."""
        if not reply.buffers:
            found = np.zeros(0, dtype=np.float32)
        else:
            try:
                found = decode(reply.buffers, max_size=max(size, 1)).to_dense()
            except CorruptPayloadError as error:
                raise InvalidInputError(f"its buffers do not decode: {error}") from error
        if found.size != size:
            raise InvalidInputError(f"its buffers must have {size} entries, got {found.size}")
        return found

    def _require_own(self, reply: Reply, order: ClientOrder, run: str, client: str) -> None:
        for what, found, wanted in (
            ("run", reply.run, run),
            ("client", reply.client, client),
            ("round", reply.round, order.round),
        ):
            if found != wanted:
                raise InvalidInputError(f"it answers for {what} {str(found)[:64]!r}, and was asked for {wanted!r}")
        if len(reply.losses) != order.local_steps or len(reply.correct) != order.local_steps:
            raise InvalidInputError(f"it must tell the loss of {order.local_steps} steps, got {len(reply.losses)}")
        if np.isinf([*reply.losses, *reply.correct]).any():
            raise InvalidInputError("its losses must be finite, or NaN where they are unknown")

    def _plausible(self, update: SparseUpdate) -> SparseUpdate:
        norm = float(np.linalg.norm(update.values.astype(np.float64)))
        if self.max_norm is None or norm <= self.max_norm:
            return update
        if self.excess == REJECT:
            raise InvalidInputError(f"the norm of its update must be at most {self.max_norm:g}, got {norm:g}")
        scaled = (update.values * (self.max_norm / norm)).astype(np.float32)
        return SparseUpdate.trusted(update.size, update.positions, scaled)
