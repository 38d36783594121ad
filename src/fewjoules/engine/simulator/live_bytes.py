"""Bytes of the tensors that live at the same time while code runs: counted from their sizes, the same in every run."""

import sys
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fewjoules.arrays import FloatArray


class LiveBytes(TorchDispatchMode):
    """Within ``with``, ``trail`` gets the bytes that new tensors hold after each operation; scratch is not seen."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether the compiler is told to keep off this mode; importing it only for that would take a second."""
        return "torch._dynamo" in sys.modules

    def __init__(self) -> None:
        """Count from zero."""
        super().__init__()
        self.trail: list[int] = []
        self._made: list[tuple[weakref.ref[torch.UntypedStorage], int]] = []  # with their bytes

    @property
    def peak(self) -> int:
        """The most bytes that new tensors held at once."""
        return max(self.trail, default=0)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count the memory of its results that is not memory of its arguments."""
        found = function(*args, **(kwargs or {}))
        given = {storage._cdata for storage in _storages((args, kwargs))}
        for storage in _storages(found):
            if storage._cdata not in given:
                given.add(storage._cdata)
                self._made.append((weakref.ref(storage), storage.nbytes()))
        # looked at rather than told by callbacks, in which a Ctrl-C would be lost
        self._made = [(storage, count) for storage, count in self._made if storage() is not None]
        self.trail.append(sum(count for _, count in self._made))
        return found


@dataclass(frozen=True, slots=True)
class BytesOfBatch:
    """Bytes that live at each moment of a batch: those that do not depend on its size, and those of each sample."""

    constant: FloatArray
    each: FloatArray

    @classmethod
    def of_scores(cls, count: float) -> "BytesOfBatch":
        """Return the bytes of a batch of which only these, of each sample, are known."""
        return cls(np.zeros(1), np.array([float(count)]))

    @classmethod
    def between(cls, small: LiveBytes, size: int, large: LiveBytes, larger_size: int) -> "BytesOfBatch":
        """Return the line through two batches, moment by moment, or of their peaks if they took other operations."""
        same = len(small.trail) == len(large.trail) > 0
        trails = (small.trail, large.trail) if same else ([small.peak], [large.peak])
        less, more = (np.array(trail, dtype=np.float64) for trail in trails)
        each = np.maximum((more - less) / (larger_size - size), 0.0)
        return cls(np.maximum(less - size * each, 0.0), each)

    @property
    def growth(self) -> float:
        """Bytes that another sample adds where it adds most."""
        return float(self.each.max())

    def peak(self, size: float) -> float:
        """Return the most bytes that a batch of this size holds at once."""
        return float((self.constant + size * self.each).max())


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    tensors = (one for one in pytree.tree_leaves(tree) if torch.is_tensor(one) and one.layout == torch.strided)
    return [tensor.untyped_storage() for tensor in tensors]
