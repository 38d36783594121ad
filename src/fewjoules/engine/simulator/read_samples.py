"""Samples that are read when they are needed: on disk, or from a data set of the user. Only batches are in memory."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from fewjoules.arrays import IntArray
from fewjoules.engine.models.labels import USUAL, LabelRule
from fewjoules.engine.models.tree import described, leaves, map_tree, rebuilt, shapes_of
from fewjoules.engine.simulator.federation import Batch, Samples, SampleSource
from fewjoules.errors import InvalidInputError

AHEAD_BYTES = 1 << 28  # a round whose samples take more is not read ahead
_BLOCK = 1024  # samples that are read at once where all are wanted
_NO_LIMIT = 1 << 62


class Reader(Protocol):
    """Samples of one place, such as the arrays or the data set of a client."""

    name: str

    def __len__(self) -> int:
        """Number of samples."""

    def read(self, numbers: IntArray) -> Batch:
        """Return the samples of these numbers, which increase, as tensors on the processor.

        It must be safe to call it from several threads.
        """

    def prepare(self, numbers: IntArray) -> bool:
        """Ask for samples that will soon be read; return whether reading them ahead saves time."""

    def labels(self) -> IntArray | None:
        """Return the label of every sample; None without labels, or where all samples would have to be read."""


class ReadSamples:
    """Samples of several readers, numbered one reader after the other. Each batch is read when it is taken.

    One round may be read ahead, while another one is trained. ``classes`` is the number of labels that the model
    knows; if the ``rule`` says that labels are judged, a sample with another one is refused when it is read.
    """

    resident = False

    def __init__(
        self,
        readers: Sequence[Reader],
        device: torch.device,
        *,
        change: Callable[[torch.Tensor], torch.Tensor] | None = None,
        rule: LabelRule = USUAL,
    ) -> None:
        """Read one sample, which all others must resemble; ``change`` makes another type of every input array."""
        self.device, self.classes, self._rule = device, _NO_LIMIT, rule
        self._readers, self._change = readers, change
        self._ends = np.cumsum([len(reader) for reader in readers])
        self._first = self._read_own(readers[0], np.zeros(1, dtype=np.int64))
        self._pattern = [shapes_of(tree) for tree in self._first]
        self._thread = ThreadPoolExecutor(1, "fewjoules-read")
        self._ahead: list[tuple[IntArray, Future[Batch]]] = []

    def with_inputs(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "ReadSamples":
        """Return the same samples with every input array changed, to another type."""
        return ReadSamples(self._readers, self.device, change=change, rule=self._rule)

    def __len__(self) -> int:
        """Number of samples."""
        return int(self._ends[-1])

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return sum(array.nbytes for tree in self._first for array in leaves(tree))

    def take(self, numbers: torch.Tensor) -> Batch:
        """Return the samples of these numbers; one that occurs several times is read once."""
        wanted, places = np.unique(numbers.cpu().numpy(), return_inverse=True)
        rows = torch.from_numpy(places.reshape(-1))
        found = self._found_ahead(wanted)
        if found is None:
            batch = self._read(wanted)
        else:
            known, batch = found
            rows = torch.from_numpy(np.searchsorted(known, wanted))[rows]
        shape = tuple(numbers.shape)
        inputs, targets = (
            map_tree(lambda array: array[rows].reshape(shape + array.shape[1:]).to(self.device), tree) for tree in batch
        )
        return inputs, targets

    def read_ahead(self, numbers: IntArray) -> None:
        """Begin to read the samples of a coming round, unless they are too many to keep; the last but one go."""
        wanted = np.unique(numbers)
        self._ahead = self._ahead[-1:]
        slow = [reader.prepare(local) for reader, local in self._by_reader(wanted)]
        if any(slow) and wanted.size * self.sample_bytes <= AHEAD_BYTES:
            self._ahead.append((wanted, self._thread.submit(self._read, wanted)))

    def labels(self) -> IntArray | None:
        """Return the labels of all samples; None without labels, or where all samples would have to be read."""
        found = [reader.labels() for reader in self._readers]
        known = [labels for labels in found if labels is not None]
        return np.concatenate(known) if len(known) == len(found) else None

    def label_range(self, rule: LabelRule) -> tuple[int, int] | None:
        """Return the smallest and the largest label that counts; None where they are not known."""
        labels = self.labels()
        return None if labels is None else Samples(torch.empty(0), torch.from_numpy(labels)).label_range(rule)

    def counted(self, rule: LabelRule) -> torch.Tensor | None:
        """Return which samples have a label that counts; None where it is not known."""
        labels = self.labels()
        return None if labels is None else Samples(torch.empty(0), torch.from_numpy(labels)).counted(rule)

    def loaded(self) -> Samples:
        """Read all samples into memory."""
        found: list[torch.Tensor] = []
        for start in range(0, len(self), _BLOCK):
            stop = min(start + _BLOCK, len(self))
            arrays = [array for tree in self._read(np.arange(start, stop)) for array in leaves(tree)]
            found = found or [torch.empty((len(self), *array.shape[1:]), dtype=array.dtype) for array in arrays]
            for whole, array in zip(found, arrays, strict=True):
                whole[start:stop] = array
        found = [array.to(self.device) for array in found]
        inputs, targets = self._first
        count = len(leaves(inputs))
        return Samples(rebuilt(inputs, found[:count]), rebuilt(targets, found[count:]))

    def _found_ahead(self, wanted: IntArray) -> tuple[IntArray, Batch] | None:
        for known, future in self._ahead:
            places = np.minimum(np.searchsorted(known, wanted), known.size - 1)
            if np.array_equal(known[places], wanted):
                return known, future.result()
        return None

    def _read(self, numbers: IntArray) -> Batch:
        """Read samples of increasing numbers from their readers and join them."""
        batches = []
        for reader, local in self._by_reader(numbers):
            batch = self._read_own(reader, local)
            self._require_alike(batch, reader.name, int(local[0]))
            batches.append(batch)
        if len(batches) == 1:
            return batches[0]
        inputs, targets = (_joined([batch[part] for batch in batches]) for part in (0, 1))
        return inputs, targets

    def _by_reader(self, numbers: IntArray) -> Iterator[tuple[Reader, IntArray]]:
        """Return the readers of samples of increasing numbers, each with its own numbers of them."""
        owners, starts = np.unique(np.searchsorted(self._ends, numbers, side="right"), return_index=True)
        for owner, own in zip(owners.tolist(), np.split(numbers, starts[1:]), strict=True):
            yield self._readers[owner], own - (self._ends[owner - 1] if owner else 0)

    def _read_own(self, reader: Reader, numbers: IntArray) -> Batch:
        inputs, targets = reader.read(numbers)
        if self._rule.judged and torch.is_tensor(targets) and not targets.is_floating_point():
            bad = ((targets < 0) | (targets >= self.classes)) & self._rule.counted(targets)
            if bool(bad.any()):
                place = int(bad.flatten(1).any(1).int().argmax()) if bad.ndim > 1 else int(bad.int().argmax())
                most = "" if self.classes == _NO_LIMIT else f" and below the {self.classes} outputs of the model"
                raise InvalidInputError(
                    f"{reader.name}[{numbers[place]}] must have a label of at least 0{most}"
                    f"{self._rule.said(targets)}, got {int(targets[bad][0])}"
                )
        return inputs if self._change is None else map_tree(self._change, inputs), targets

    def _require_alike(self, batch: Batch, name: str, number: int) -> None:
        for kind, found, like, pattern in zip(("inputs", "targets"), batch, self._first, self._pattern, strict=True):
            if shapes_of(found) != pattern:
                raise InvalidInputError(
                    f"{name}[{number}] must have {kind} like those of {self._readers[0].name}[0], {described(like)}, "
                    f"got {described(found)}"
                )


@dataclass(frozen=True, slots=True)
class SelectedSamples:
    """Some of the samples of another source, in an order of their own; nothing is read before it is taken."""

    samples: SampleSource
    numbers: IntArray

    @property
    def device(self) -> torch.device:
        """The device on which batches arrive."""
        return self.samples.device

    @property
    def resident(self) -> bool:
        """Numbers are looked up on the processor."""
        return False

    def __len__(self) -> int:
        """Number of selected samples."""
        return int(self.numbers.size)

    def take(self, numbers: torch.Tensor) -> Batch:
        """Return the selected samples of these places."""
        return self.samples.take(torch.from_numpy(self.numbers)[numbers.cpu()])

    def read_ahead(self, numbers: IntArray) -> None:
        """Begin to read the samples of these places."""
        self.samples.read_ahead(self.numbers[numbers])

    def label_range(self, rule: LabelRule) -> tuple[int, int] | None:
        """Return that of all samples, selected or not."""
        return self.samples.label_range(rule)

    def counted(self, rule: LabelRule) -> torch.Tensor | None:
        """Return which of the selected samples have a label that counts; None where it is not known."""
        found = self.samples.counted(rule)
        return None if found is None else found.cpu()[torch.from_numpy(self.numbers)]


def _joined(trees: list[object]) -> object:
    columns = zip(*(leaves(tree) for tree in trees), strict=True)
    return rebuilt(trees[0], [torch.cat(column) for column in columns])
