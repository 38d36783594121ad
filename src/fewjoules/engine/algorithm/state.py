"""What the server and each client keep from round to round."""

from dataclasses import dataclass, field

import numpy as np
import torch

from fewjoules.arrays import Floats, IntArray
from fewjoules.codec.update import SparseUpdate

NEVER = 0  # in place of a round: rounds count from 1


@dataclass(frozen=True, slots=True)
class ServerState:
    """The global model after ``round`` rounds, and what the server knows of each client.

    ``weights`` (parameters,), ``buffers`` and ``broadcast``, the last change of the weights, are float32 on the
    training device; ``outer`` holds the moments of the outer optimiser by name. ``accepted`` (clients,) is the last
    round whose upload the server accepted from a client, ``synced`` the last round that a client took part in and so
    knows the model before.
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
        """Before the first round."""
        nobody = np.full(clients, NEVER, dtype=np.int64)
        return cls(NEVER, weights, buffers, nobody, nobody.copy(), torch.zeros(0, device=weights.device))


@dataclass(frozen=True, slots=True)
class LastUpload:
    """What a client sent last, until it knows whether the server accepted it."""

    round: int
    update: SparseUpdate


@dataclass(frozen=True, slots=True)
class ClientState:
    """What one client keeps: None where its options ask for nothing.

    ``residual`` is e_m of Algorithm 1, ``velocity`` and ``squares`` are the moments of its inner optimiser after
    ``steps`` local steps; all are float32 vectors of the model's size.
    """

    residual: Floats | None = None
    velocity: Floats | None = None
    squares: Floats | None = None
    steps: int = 0
    last_upload: LastUpload | None = None
