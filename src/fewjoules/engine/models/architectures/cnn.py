"""A small convolutional network: two convolutions, each pooled, and two linear layers."""

from typing import TYPE_CHECKING

from fewjoules.engine.models.architectures.base import Architecture, Images

if TYPE_CHECKING:
    from torch import nn


def build(images: Images) -> "nn.Module":
    """Build the network."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(images.channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(_features(images), 64),
        nn.ReLU(),
        nn.Linear(64, images.classes),
    )


def parameters(images: Images) -> int:
    """Number of weights and biases, layer by layer."""
    convolutions = (9 * images.channels + 1) * 16 + (9 * 16 + 1) * 32
    return convolutions + (_features(images) + 1) * 64 + 65 * images.classes


def multiply_adds(images: Images) -> int:
    """Multiply-adds of one image, layer by layer."""
    half = (images.height // 2) * (images.width // 2)
    convolutions = images.height * images.width * 9 * images.channels * 16 + half * 9 * 16 * 32
    return convolutions + _features(images) * 64 + 64 * images.classes


def _features(images: Images) -> int:
    return 32 * (images.height // 4) * (images.width // 4)


ARCHITECTURES = (
    Architecture(name="cnn", build=build, parameters=parameters, multiply_adds=multiply_adds, smallest_side=4),
)
