"""Embedding of tokens as a product, whose gradient is a product too."""

import torch
from torch import nn


class TokenEmbedding(nn.Module):
    """A vector for each token of a small vocabulary: one-hot rows times a matrix.

    A look-up adds the gradients of equal tokens in no fixed order on a GPU; a product has one order on every device.
    """

    def __init__(self, vocabulary: int, width: int, deviation: float) -> None:
        """Draw normal weights."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width).normal_(std=deviation))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Embed tokens (n, context) as (n, context, width)."""
        known = torch.arange(self.weight.shape[0], device=tokens.device)
        return (tokens.unsqueeze(-1) == known).to(self.weight.dtype) @ self.weight
