"""A transformer that predicts the next token: 1,208,576 parameters for 80 characters out of 66 at its usual sizes."""

from typing import TYPE_CHECKING

from fewjoules.engine.models.architectures.base import Architecture, Text

if TYPE_CHECKING:
    from torch import nn


def build(text: Text, *, width: int, depth: int, heads: int) -> "nn.Module":
    """Build the network."""
    from fewjoules.engine.models.gpt import Gpt

    return Gpt(context=text.context, vocabulary=text.classes, width=width, depth=depth, heads=heads)


def parameters(text: Text, *, width: int, depth: int, heads: int) -> int:
    """Number of parameters: embeddings of tokens and places, blocks, and the last normalisation."""
    attention = 4 * (width + 1) * width
    perceptron = (width + 1) * 4 * width + (4 * width + 1) * width
    return (text.classes + text.context) * width + depth * (attention + perceptron + 4 * width) + 2 * width


def multiply_adds(text: Text, *, width: int, depth: int, heads: int) -> int:
    """Multiply-adds of one window: each token attends to every place, though later ones are hidden from it."""
    block = 12 * width * width + 2 * text.context * width
    return text.context * (depth * block + 2 * text.classes * width)  # one-hot tokens are multiplied too


ARCHITECTURES = (
    Architecture(
        name="gpt",
        build=build,
        parameters=parameters,
        multiply_adds=multiply_adds,
        usual_data="shakespeare",
        takes=Text,
        sizes={"width": 128, "depth": 6, "heads": 4},
    ),
)
