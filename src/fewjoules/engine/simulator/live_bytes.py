"""Bytes of the tensors that live at the same time while code runs: counted from their sizes, the same in every run."""

import weakref
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class LiveBytes(TorchDispatchMode):
    """Within ``with``, ``peak`` is the most bytes that new tensors held at once; scratch of kernels is not seen."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        """Count from zero."""
        super().__init__()
        self.peak = 0
        self._now = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count the memory of its results that is not memory of its arguments."""
        found = function(*args, **(kwargs or {}))
        given = {storage._cdata for storage in _storages((args, kwargs))}
        for storage in _storages(found):
            if storage._cdata not in given:
                given.add(storage._cdata)
                self._now += storage.nbytes()
                weakref.finalize(storage, self._freed, storage.nbytes()).atexit = False
        self.peak = max(self.peak, self._now)
        return found

    def _freed(self, count: int) -> None:
        self._now -= count


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    tensors = (one for one in pytree.tree_leaves(tree) if torch.is_tensor(one) and one.layout == torch.strided)
    return [tensor.untyped_storage() for tensor in tensors]
