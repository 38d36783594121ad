"""The data of a federation on one machine: all samples, which client has which, and the batches drawn from them.

Samples are known by their numbers. Everything that trains or tests a model asks a ``SampleSource`` for batches by
``take`` and never looks into it, so samples may lie in tensors (``Samples``), on disk, or in a data set of the user.
A batch is a pair of trees, ``(inputs, targets)``; ``engine.models.tree`` says what a tree is and how a model takes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from fewjoules.arrays import FloatArray, Floats, IntArray
from fewjoules.engine.algorithm.round import RoundPlan
from fewjoules.engine.algorithm.sampling import draw_batches
from fewjoules.engine.algorithm.streams import stream_key
from fewjoules.engine.models.labels import LabelRule
from fewjoules.engine.models.tree import Tree, leaves, map_tree
from fewjoules.errors import InvalidInputError, shown

Batch = tuple[Tree, Tree | None]  # inputs, and targets unless there are none


class SampleSource(Protocol):
    """Samples by number, from 0 to ``len(samples) - 1``. All have the same tree of shapes and types."""

    @property
    def device(self) -> torch.device:
        """The device on which batches arrive, which is the one that trains."""

    @property
    def resident(self) -> bool:
        """Whether ``take`` is an indexing of tensors on ``device``, so that a CUDA graph can record it."""

    def __len__(self) -> int:
        """Number of samples."""

    def take(self, numbers: torch.Tensor) -> Batch:
        """Return the samples of these numbers, int64 of any shape and on any device.

        Each array of the batch begins with the axes of ``numbers``: (batch,) for one client, (clients, batch) for a
        stack of clients. If ``resident``, it must not copy anything between devices when numbers are on ``device``.
        """

    def read_ahead(self, numbers: IntArray) -> None:
        """Begin to read samples that will soon be taken, where reading takes time."""

    def label_range(self, rule: LabelRule) -> tuple[int, int] | None:
        """Return the smallest and the largest label that counts.

        None where targets are not one array of whole numbers, or where all samples would have to be read to know it.
        """

    def counted(self, rule: LabelRule) -> torch.Tensor | None:
        """Return which samples have a label that counts; None where all do, or as for ``label_range``."""


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples in tensors on one device."""

    inputs: Tree
    targets: Tree | None = None

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return leaves(self.inputs)[0].device

    @property
    def resident(self) -> bool:
        """Tensors are on their device."""
        return True

    def __len__(self) -> int:
        """Number of samples."""
        return len(leaves(self.inputs)[0])

    def take(self, numbers: torch.Tensor) -> Batch:
        """Return the samples of these numbers."""
        numbers = numbers.to(self.device)
        inputs, targets = (map_tree(lambda array: array[numbers], tree) for tree in (self.inputs, self.targets))
        return inputs, targets

    def with_inputs(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "Samples":
        """Return the same samples with every input array changed, to another type."""
        return Samples(map_tree(change, self.inputs), self.targets)

    def read_ahead(self, numbers: IntArray) -> None:
        """Do nothing: tensors need not be read."""

    def label_range(self, rule: LabelRule) -> tuple[int, int] | None:
        """Return the smallest and the largest label that counts; None without such labels."""
        labels = self.targets
        if not torch.is_tensor(labels) or labels.is_floating_point():
            return None
        counted = labels[rule.counted(labels)] if rule.leaves_out(labels) else labels
        return (int(counted.min()), int(counted.max())) if counted.numel() else None

    def counted(self, rule: LabelRule) -> torch.Tensor | None:
        """Return which samples have a label that counts; None where all do, or without such labels."""
        labels = self.targets
        if not torch.is_tensor(labels) or labels.is_floating_point() or not rule.leaves_out(labels):
            return None
        return rule.counted(labels).reshape(len(labels), -1).any(1)


def first_of(samples: SampleSource, count: int = 1) -> Batch:
    """Return the first samples, by which shapes and types are known."""
    return samples.take(torch.arange(min(count, len(samples))))


@dataclass(frozen=True, slots=True, eq=False)
class ClientSlices(Sequence[IntArray]):
    """Clients that each have neighbouring samples of the data; a million clients are two arrays then.

    Args:
        starts: Number of each client's first sample, int64, shape (clients,).
        sizes: Number of each client's samples, int64, shape (clients,). Clients may share samples.
    """

    starts: IntArray
    sizes: IntArray

    def __post_init__(self) -> None:
        """Keep whole numbers as int64; refuse anything but two equally long lists of them."""
        for name in ("starts", "sizes"):
            object.__setattr__(self, name, _whole_numbers(name, getattr(self, name)))
        if self.starts.size != self.sizes.size:
            raise InvalidInputError(
                f"starts and sizes of clients must be equally long, got {self.starts.size} and {self.sizes.size}"
            )

    def __len__(self) -> int:
        """Number of clients."""
        return int(self.sizes.size)

    def __getitem__(self, client: Any) -> Any:
        """Return the sample numbers of a client, or the slices of some clients."""
        if isinstance(client, slice):
            return ClientSlices(self.starts[client], self.sizes[client])
        start = int(self.starts[client])
        return np.arange(start, start + int(self.sizes[client]))


def _whole_numbers(name: str, given: Any) -> IntArray:
    try:
        found = np.asarray(given)
    except (TypeError, ValueError, RuntimeError):
        found = np.empty(0)
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise InvalidInputError(f"{name} of clients must be a list of whole numbers, got {shown(given)}")
    return found.astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True)
class Federation:
    """Training samples, and which of them belong to each client."""

    samples: SampleSource
    parts: Sequence[IntArray]

    @property
    def device(self) -> torch.device:
        """The device that trains, on which batches arrive."""
        return self.samples.device

    @property
    def sizes(self) -> IntArray:
        """Number of samples of each client."""
        if isinstance(self.parts, ClientSlices):
            return self.parts.sizes
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
        parts = federation.parts
        self._starts = parts.starts if isinstance(parts, ClientSlices) else np.cumsum(self._sizes) - self._sizes
        self._order = None if isinstance(parts, ClientSlices) else np.concatenate(parts)
        self._key = stream_key(seed, "batches")
        self._samples = federation.samples
        self._ahead: tuple[int, Batches] | None = None

    def prepare(self, plan: RoundPlan) -> None:
        """Draw the batches of the next round ahead of time, and begin to read them."""
        drawn = self._draw(plan)
        self._samples.read_ahead(drawn.numbers)
        self._ahead = plan.number, drawn

    def batches(self, plan: RoundPlan) -> Batches:
        """Return the batches of a round, drawn ahead or now."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != plan.number:
            return self._draw(plan)
        return replace(ahead[1], rates=plan.rates)  # which the guard may have halved meanwhile

    def _draw(self, plan: RoundPlan) -> Batches:
        clients = plan.participants
        local, weights = draw_batches(self._key, clients, self._sizes[clients], plan.first_step, plan.batch_sizes)
        places = local + self._starts[clients][None, :, None]
        return Batches(places if self._order is None else self._order[places], weights, plan.rates)
