"""One round seen from outside: what goes in, what comes out, and the state that it changes."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.engine.algorithm.client import Floats
from fewjoules.engine.simulator.local import Batches
from fewjoules.errors import DivergedError

Flags = NDArray[np.bool_]


@dataclass(slots=True)
class TrainingState:
    """All that one round hands to the next.

    ``weights`` (parameters,), ``memories`` (clients, parameters; no rows without error feedback) and ``buffers`` are
    float32 on the training device. ``mean_update`` is what the last round's broadcast told, and ``synced`` (clients,)
    the last round whose model a client holds (0: none); both matter only where the downlink is charged.
    """

    round: int
    weights: torch.Tensor
    memories: torch.Tensor
    buffers: torch.Tensor
    synced: IntArray
    mean_update: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))


@dataclass(frozen=True, slots=True)
class RoundTask:
    """Round ``number`` (from 1): who takes part, whose upload arrives, each one's k and share, and all batches."""

    number: int
    participants: IntArray
    delivered: Flags
    kept: IntArray
    shares: FloatArray
    batches: Batches

    def of(self, part: slice) -> "RoundTask":
        """The task of some neighbouring participants."""
        return RoundTask(
            self.number,
            self.participants[part],
            self.delivered[part],
            self.kept[part],
            self.shares[part],
            self.batches.of(part),
        )


@dataclass(frozen=True, slots=True)
class Uploads:
    """What the participants sent and how their steps went, one entry each; ``losses`` are (steps, participants)."""

    entries: IntArray
    payload_bytes: IntArray
    losses: FloatArray
    correct: FloatArray


def average_buffers(stacked: torch.Tensor, before: torch.Tensor, task: RoundTask) -> torch.Tensor:
    """The mean of the buffers that arrived, (clients, buffers); those of before if none did."""
    if not task.delivered.any():
        return before
    arrived = torch.from_numpy(np.where(task.delivered, task.shares, 0.0)).to(stacked.device)
    return ((arrived / arrived.sum()) @ stacked.double()).float()


def require_finite(losses: FloatArray, number: int, clients: IntArray) -> None:
    """Stop at the first loss, (steps, clients), that is NaN or infinite and say whose it was."""
    bad = np.argwhere(~np.isfinite(losses))
    if bad.size:
        step, row = bad[0]
        raise DivergedError(
            f"training diverged: the loss of client {clients[row]} at local step {step + 1} of round {number} is "
            f"{losses[step, row]}; a smaller learning rate may help"
        )
