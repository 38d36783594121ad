"""What operators for a whole stack of clients do with the axis that vmap hides."""

import torch


def stacked(clients: int, tensor: torch.Tensor | None, dim: int | None) -> torch.Tensor | None:
    """Replace the leading axis of length 1 by the hidden axis of vmap; ``dim`` is None for a tensor that all share."""
    if tensor is None:
        return None
    if dim is None:
        return tensor.expand(clients, *tensor.shape[1:])
    return tensor.movedim(dim, 0).flatten(0, 1)
