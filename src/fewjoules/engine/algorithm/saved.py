"""Tensors of a saved state that are read a block at a time, so that saving needs no second copy of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

BLOCK_BYTES = 16 << 20  # of a block that must be copied to be read


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor as ``blocks()`` of its entries, in order, on the processor and contiguous."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    blocks: Callable[[], Iterator[torch.Tensor]]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "SavedTensor":
        """Return a tensor in one block."""
        return cls(tuple(tensor.shape), tensor.dtype, lambda: iter([tensor.detach().cpu().contiguous()]))

    def whole(self) -> torch.Tensor:
        """Return the tensor in memory."""
        parts = [block.reshape(-1) for block in self.blocks()]
        return torch.cat(parts).reshape(self.shape) if parts else torch.zeros(self.shape, dtype=self.dtype)


def tensors_of(saved: Mapping[str, SavedTensor]) -> dict[str, torch.Tensor]:
    """Return all tensors of a saved state in memory."""
    return {name: tensor.whole() for name, tensor in saved.items()}
