"""Asynchronous copies between GPU and host."""

import torch


def to_host(*tensors: torch.Tensor) -> tuple[list[torch.Tensor], torch.cuda.Event]:
    """Start copies into pinned memory; return them and the event that tells when they are complete."""
    host = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
    for target, tensor in zip(host, tensors, strict=True):
        target.copy_(tensor, non_blocking=True)
    ready = torch.cuda.Event(blocking=True)  # spinning threads would starve the one that feeds the GPU
    ready.record()
    return host, ready


def pinned_zeros(like: torch.Tensor) -> torch.Tensor:
    """Return zeros on the host, in pinned memory."""
    return torch.zeros(like.shape, dtype=like.dtype, pin_memory=True)
