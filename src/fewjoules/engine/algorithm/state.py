"""State that the server and each client keep from round to round."""

from dataclasses import dataclass, field

import numpy as np
import torch

from fewjoules.arrays import Floats, IntArray
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.last_rounds import LastRounds

NEVER = 0  # stands for "no round yet": rounds count from 1
NO_MODEL = -1  # in place of the round of a model


@dataclass(frozen=True, slots=True)
class Average:
    """The mean of the models after recent rounds: weights (parameters,) and buffers, float32, of so many ``models``."""

    weights: torch.Tensor
    buffers: torch.Tensor
    models: int


@dataclass(frozen=True, slots=True)
class ServerState:
    """The global model after ``round`` rounds, and the server's record of each client.

    ``weights`` (parameters,), ``buffers`` and ``broadcast``, the last change of the weights before its values were
    rounded, are float32 on the training device; ``outer`` holds the moments of the outer optimiser by name.
    ``residual`` is what the server has not sent yet, empty if it sends everything. ``changed`` (parameters,) is the
    last round in which each weight changed, int32, empty if nobody needs to know. ``accepted`` (clients,) is the last
    round whose upload the server accepted from each client. ``synced`` (clients,) is the last round in which each
    client took part: it has the global model from before that round. ``returns`` holds the rounds after which the
    guard went back to an earlier model; each halved the step size. ``average`` is the mean of recent models, None
    before the first round and where no mean is kept.
    """

    round: int
    weights: torch.Tensor
    buffers: torch.Tensor
    accepted: LastRounds
    synced: LastRounds
    broadcast: torch.Tensor
    residual: torch.Tensor
    changed: torch.Tensor
    outer: dict[str, torch.Tensor] = field(default_factory=dict)
    returns: tuple[int, ...] = ()
    average: Average | None = None

    @classmethod
    def initial(
        cls,
        weights: torch.Tensor,
        buffers: torch.Tensor,
        clients: int,
        *,
        keeps_residual: bool = False,
        notes_changes: bool = False,
    ) -> "ServerState":
        """Return the state before the first round."""
        size, device = weights.numel(), weights.device
        return cls(
            round=NEVER,
            weights=weights,
            buffers=buffers,
            accepted=LastRounds(np.full(clients, NEVER, dtype=np.int64)),
            synced=LastRounds(np.full(clients, NEVER, dtype=np.int64)),
            broadcast=torch.zeros(0, device=device),
            residual=torch.zeros(size if keeps_residual else 0, device=device),
            changed=torch.zeros(size if notes_changes else 0, dtype=torch.int32, device=device),
        )

    @property
    def result(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights and buffers of the model that is evaluated and handed out: the mean of recent ones, if it is kept."""
        return (self.weights, self.buffers) if self.average is None else (self.average.weights, self.average.buffers)

    def held_rounds(self, clients: IntArray) -> IntArray:
        """Return how many rounds the model that each of these clients has was trained for; NO_MODEL if it has none."""
        held: IntArray = self.synced[clients] - 1
        return held


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
