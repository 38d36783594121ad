"""Part of a round: what the participants that one process runs give, where several processes share a round."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from fewjoules.engine.algorithm.backend import Backend
from fewjoules.engine.algorithm.round import RoundPlan, Uploads
from fewjoules.engine.algorithm.state import ClientState, ServerState
from fewjoules.engine.store.client_store import ClientStore


@dataclass(frozen=True, slots=True)
class PartialRound:
    """Result of a round for some of its participants.

    ``add_to(sums, first)`` adds p_m g_m of those whose uploads arrive, in their order, to the sums of the entries from
    ``first`` on; ``buffers`` is (participants, buffers). ``uploads()`` may wait until payload sizes are known.
    """

    add_to: Callable[[torch.Tensor, int], None]
    buffers: torch.Tensor
    uploads: Callable[[], Uploads]


class PartialBackend(Backend, Protocol):
    """A backend that can run some of a round's participants.

    Sums of ``sums_type`` that start at zero and take up one part after the other end as the mean update of ``run``, to
    the bit, if each part has whole chunks.
    """

    sums_type: torch.dtype
    store: ClientStore

    def run_part(self, state: ServerState, plan: RoundPlan, part: slice) -> PartialRound:
        """Run the round of a slice of the participants, at least one; ``plan`` is that of all."""

    def put_client(self, client: int, state: ClientState) -> None:
        """Take over the state of a client from another process."""

    def drop_client(self, client: int) -> None:
        """Forget the state of a client, which another process takes over."""
