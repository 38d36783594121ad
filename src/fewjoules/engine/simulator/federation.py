"""The data of a federation on one machine: all samples, which client has which, and the batches drawn from them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fewjoules.arrays import FloatArray, Floats, IntArray
from fewjoules.engine.algorithm.round import RoundPlan
from fewjoules.engine.algorithm.sampling import draw_batches
from fewjoules.engine.algorithm.streams import stream_key


@dataclass(frozen=True, slots=True)
class Samples:
    """All training samples on one device; clients refer to them by number."""

    inputs: torch.Tensor
    targets: torch.Tensor


@dataclass(frozen=True, slots=True)
class Federation:
    """Training samples on the training device, and which of them belong to each client."""

    samples: Samples
    parts: Sequence[IntArray]

    @property
    def sizes(self) -> IntArray:
        """Number of samples of each client."""
        return np.array([part.size for part in self.parts], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Batches:
    """Sample numbers with their weights, (steps, clients, batch), and the step sizes, (steps,)."""

    numbers: IntArray
    weights: Floats
    rates: FloatArray

    def of(self, part: slice) -> "Batches":
        """Return the batches of a slice of the clients, cut to the largest of them."""
        width = int((self.weights[:, part] > 0.0).sum(axis=2).max())
        return Batches(self.numbers[:, part, :width], self.weights[:, part, :width], self.rates)


class BatchSource:
    """Draws the batches of a round; one round may be drawn ahead."""

    def __init__(self, federation: Federation, seed: int) -> None:
        """``seed`` is the root seed of the run."""
        self._sizes = federation.sizes
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._order = np.concatenate(federation.parts)
        self._key = stream_key(seed, "batches")
        self._ahead: tuple[int, Batches] | None = None

    def prepare(self, plan: RoundPlan) -> None:
        """Draw the batches of the next round ahead of time."""
        self._ahead = plan.number, self._draw(plan)

    def batches(self, plan: RoundPlan) -> Batches:
        """Return the batches of a round, drawn ahead or now."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != plan.number:
            return self._draw(plan)
        return replace(ahead[1], rates=plan.rates)  # which the guard may have halved meanwhile

    def _draw(self, plan: RoundPlan) -> Batches:
        clients = plan.participants
        local, weights = draw_batches(self._key, clients, self._sizes[clients], plan.first_step, plan.batch_sizes)
        numbers = self._order[local + self._starts[clients][None, :, None]]
        return Batches(numbers, weights, plan.rates)
