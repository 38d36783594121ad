"""Copies between GPU and host that nobody waits for before they are needed."""

import torch


def to_host(*tensors: torch.Tensor) -> tuple[list[torch.Tensor], torch.cuda.Event]:
    """Copies in pinned memory that arrive while the GPU goes on, and the event that says when."""
    host = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
    for target, tensor in zip(host, tensors, strict=True):
        target.copy_(tensor, non_blocking=True)
    ready = torch.cuda.Event(blocking=True)  # threads that wait by spinning would starve the one that feeds the GPU
    ready.record()
    return host, ready


def pinned_zeros(like: torch.Tensor) -> torch.Tensor:
    """Zeros on the host, in memory that a GPU can read by itself."""
    return torch.zeros(like.shape, dtype=like.dtype, pin_memory=True)
