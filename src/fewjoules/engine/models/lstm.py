"""A recurrent network that predicts the next token at every place."""

import torch
from torch import nn

from fewjoules.engine.models.tokens import TokenEmbedding


class Lstm(nn.Module):
    """Embedding, layers of LSTM cells, and a linear layer; the state starts from zero in every window."""

    def __init__(self, *, vocabulary: int, embedding: int, width: int, depth: int) -> None:
        """Draw weights as PyTorch does."""
        super().__init__()
        self.tokens = TokenEmbedding(vocabulary, embedding, 1.0)
        self.layers = nn.LSTM(embedding, width, depth, batch_first=True)
        self.scores = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return scores (n, tokens, vocabulary) of what follows each of the tokens (n, tokens)."""
        hidden, _ = self.layers(self.tokens(tokens))
        return self.scores(hidden)
