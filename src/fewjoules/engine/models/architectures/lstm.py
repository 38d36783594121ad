"""A recurrent network that predicts the next token: the one of federated averaging [MCMAHAN17], two layers of 256."""

from typing import TYPE_CHECKING

from fewjoules.engine.models.architectures.base import Architecture, Text

if TYPE_CHECKING:
    from torch import nn

EMBEDDING = 8  # numbers that stand for a token


def build(text: Text, *, width: int, depth: int) -> "nn.Module":
    """Build the network."""
    from fewjoules.engine.models.lstm import Lstm

    return Lstm(vocabulary=text.classes, embedding=EMBEDDING, width=width, depth=depth)


def parameters(text: Text, *, width: int, depth: int) -> int:
    """Number of weights and biases; PyTorch's cells have two biases for each of their four gates."""
    layers = sum(4 * width * (inside + width + 2) for inside in _inside(width, depth))
    return text.classes * EMBEDDING + layers + (width + 1) * text.classes


def multiply_adds(text: Text, *, width: int, depth: int) -> int:
    """Multiply-adds of one window."""
    layers = sum(4 * width * (inside + width) for inside in _inside(width, depth))
    return text.context * (text.classes * (EMBEDDING + width) + layers)  # one-hot tokens are multiplied too


def _inside(width: int, depth: int) -> list[int]:
    return [EMBEDDING, *[width] * (depth - 1)]


ARCHITECTURES = (
    Architecture(
        name="lstm",
        build=build,
        parameters=parameters,
        multiply_adds=multiply_adds,
        usual_data="shakespeare",
        takes=Text,
        sizes={"width": 256, "depth": 2},
    ),
)
