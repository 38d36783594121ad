"""Kinds of models and samples beside vectors with a label: tokens, adapters on a frozen network, dicts of inputs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

SIZES, TOKENS, WORDS, CLASSES, WIDTH = [9, 17, 30, 12, 21], 6, 11, 4, 8


class Words(nn.Module):
    """Scores of the next word at each place."""

    def __init__(self):
        super().__init__()
        self.embedding, self.mixing = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.scores = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        known = self.embedding(tokens)
        return self.scores(torch.tanh(self.mixing(known.cumsum(1))))


class Adapted(Words):
    """The same with tied and frozen weights and a trained low-rank addition to the mixing."""

    def __init__(self):
        super().__init__()
        self.scores.weight = self.embedding.weight
        self.requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(2, WIDTH)), nn.Parameter(torch.zeros(WIDTH, 2))

    def forward(self, tokens):
        known = self.embedding(tokens).cumsum(1)
        return self.scores(torch.tanh(self.mixing(known) + known @ self.down.T @ self.up.T))


class Both(nn.Module):
    """Classes from tokens and numbers, which are given by name."""

    def __init__(self):
        super().__init__()
        self.embedding, self.scores = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH + 3, CLASSES)

    def forward(self, tokens, numbers):
        return self.scores(torch.cat([self.embedding(tokens).mean(1), numbers], dim=1))


def mean_over_tokens(net, inputs, targets):
    """The mean over all tokens of a batch that count, one by one."""
    scores, losses = net(inputs), []
    for sample, token in np.ndindex(*targets.shape):
        if targets[sample, token] >= 0:
            losses.append(functional.cross_entropy(scores[sample, token], targets[sample, token]))
    return torch.stack(losses).mean()


def mean_over_samples(net, inputs, targets):
    return functional.cross_entropy(net(**inputs), targets)


def words_of(size, rng):
    """Tokens and the ones after them, of which some are ignored: half of them in the first sample, all in none."""
    words = (rng.integers(WORDS, size=(size, 1)) + np.arange(TOKENS + 1)) % WORDS
    after = words[:, 1:].copy()
    after[rng.random(after.shape) < 0.3] = -100
    after[:, 0], after[0, TOKENS // 2 :] = words[:, 1], -100
    return np.ascontiguousarray(words[:, :-1]), after


def both_of(size, rng):
    """Words of a class, and numbers that say which; four samples in five have the label of both."""
    labels = rng.integers(CLASSES, size=size)
    tokens = labels[:, None] + CLASSES * rng.integers(2, size=(size, TOKENS))
    numbers = (rng.normal(size=(size, 3)) + labels[:, None]).astype(np.float32)
    return {"tokens": tokens, "numbers": numbers}, np.where(rng.random(size) < 0.2, 0, labels)


@dataclass(frozen=True)
class Kind:
    """A model with the same weights at each call, clients, and the loss of a batch, written literally."""

    module: type[nn.Module]
    clients: list[Any]
    loss: Callable[..., torch.Tensor]

    def network(self):
        made, generator = self.module(), torch.Generator().manual_seed(2)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.normal_(std=0.4, generator=generator)
        return made


def clients_of(draw):
    rng = np.random.default_rng(5)
    return [draw(size, rng) for size in SIZES]


KINDS = {
    "tokens": Kind(Words, clients_of(words_of), mean_over_tokens),
    "adapters": Kind(Adapted, clients_of(words_of), mean_over_tokens),
    "dict of inputs": Kind(Both, clients_of(both_of), mean_over_samples),
}
