"""A transformer decoder that predicts the next token at every place [RADFORD19], in operations that vmap can stack.

Attention is written out: vmap runs ``scaled_dot_product_attention`` client by client on a processor.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from fewjoules.engine.models.tokens import TokenEmbedding

_DEVIATION = 0.02  # of initial weights


class Gpt(nn.Module):
    """Blocks of causal attention and a perceptron, normalised before; the output layer is the tokens' embedding."""

    def __init__(self, *, context: int, vocabulary: int, width: int, depth: int, heads: int) -> None:
        """Draw weights as GPT-2 does: layers that add to the sum over all blocks start smaller."""
        super().__init__()
        self.tokens = TokenEmbedding(vocabulary, width, _DEVIATION)
        self.places = nn.Parameter(torch.empty(context, width).normal_(std=_DEVIATION))
        self.blocks = nn.ModuleList(Block(width, heads, _DEVIATION / math.sqrt(2 * depth)) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return scores (n, tokens, vocabulary) of what follows each of the tokens (n, tokens), at most ``context``."""
        length = tokens.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        hidden = self.tokens(tokens) + self.places[:length]
        for block in self.blocks:
            hidden = block(hidden, later)
        return functional.linear(self.norm(hidden), self.tokens.weight)


class Block(nn.Module):
    """Adds attention to what it is given, then a perceptron of four times the width."""

    def __init__(self, width: int, heads: int, deviation: float) -> None:
        """Draw weights; ``deviation`` is that of the two layers that add to the sum."""
        super().__init__()
        self.heads = heads
        self.attention_norm, self.perceptron_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values = _linear(width, 3 * width, _DEVIATION)
        self.attended = _linear(width, width, deviation)
        self.softmax = nn.Softmax(dim=-1)  # a module, so that its output counts among the activations
        self.up, self.down = _linear(width, 4 * width, _DEVIATION), _linear(4 * width, width, deviation)
        self.gelu = nn.GELU()

    def forward(self, hidden: torch.Tensor, later: torch.Tensor) -> torch.Tensor:
        """Take (n, tokens, width); ``later`` (tokens, tokens) is true where a place must not be seen."""
        hidden = hidden + self.attended(self._attention(self.attention_norm(hidden), later))
        return hidden + self.down(self.gelu(self.up(self.perceptron_norm(hidden))))

    def _attention(self, hidden: torch.Tensor, later: torch.Tensor) -> torch.Tensor:
        split = self.queries_keys_values(hidden).unflatten(2, (3, self.heads, -1))
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        scores = queries @ keys.transpose(-1, -2) / math.sqrt(queries.shape[-1])
        seen = self.softmax(scores.masked_fill(later, -math.inf))
        return (seen.to(values.dtype) @ values).transpose(1, 2).flatten(2)


def _linear(inside: int, outside: int, deviation: float) -> nn.Linear:
    layer = nn.Linear(inside, outside)
    nn.init.normal_(layer.weight, std=deviation)
    nn.init.zeros_(layer.bias)
    return layer
