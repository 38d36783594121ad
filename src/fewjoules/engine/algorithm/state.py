"""State that the server and each client keep from round to round."""

from dataclasses import dataclass, field

import numpy as np
import torch

from fewjoules.arrays import Flags, Floats, IntArray
from fewjoules.codec.update import SparseUpdate

NEVER = 0  # stands for "no round yet": rounds count from 1


@dataclass(frozen=True, slots=True)
class ServerState:
    """The global model after ``round`` rounds, and the server's record of each client.

    ``weights`` (parameters,), ``buffers`` and ``broadcast``, the last change of the weights, are float32 on the
    training device; ``outer`` holds the moments of the outer optimiser by name. ``accepted`` (clients,) is the last
    round whose upload the server accepted from each client. ``synced`` (clients,) is the last round in which each
    client took part: it has the global model from before that round.
    """

    round: int
    weights: torch.Tensor
    buffers: torch.Tensor
    accepted: IntArray
    synced: IntArray
    broadcast: torch.Tensor
    outer: dict[str, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def initial(cls, weights: torch.Tensor, buffers: torch.Tensor, clients: int) -> "ServerState":
        """Return the state before the first round."""
        nobody = np.full(clients, NEVER, dtype=np.int64)
        return cls(NEVER, weights, buffers, nobody, nobody.copy(), torch.zeros(0, device=weights.device))

    def holds_last(self, clients: IntArray) -> Flags:
        """Whether each of these clients has the model from before the last change."""
        return (self.synced[clients] == self.round) & (self.round > NEVER)


@dataclass(frozen=True, slots=True)
class LastUpload:
    """The last update of a client, kept until the client knows whether the server accepted it."""

    round: int
    update: SparseUpdate


@dataclass(frozen=True, slots=True)
class ClientState:
    """State that one client keeps between rounds; vectors that its options do not need are None.

    ``residual`` is e_m of Algorithm 1, ``velocity`` and ``squares`` are the moments of its inner optimiser after
    ``steps`` local steps; all are float32 vectors of the model's size.
    """

    residual: Floats | None = None
    velocity: Floats | None = None
    squares: Floats | None = None
    steps: int = 0
    last_upload: LastUpload | None = None
