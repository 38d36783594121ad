"""Softmax regression: one linear layer."""

from typing import TYPE_CHECKING

from fewjoules.engine.models.architectures.base import Architecture, Images

if TYPE_CHECKING:
    from torch import nn


def build(images: Images) -> "nn.Module":
    """Build the network."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(_pixels(images), images.classes))


def parameters(images: Images) -> int:
    """Number of weights and biases."""
    return (_pixels(images) + 1) * images.classes


def multiply_adds(images: Images) -> int:
    """Multiply-adds of one image."""
    return _pixels(images) * images.classes


def _pixels(images: Images) -> int:
    return images.channels * images.height * images.width


ARCHITECTURES = (Architecture(name="softmax", build=build, parameters=parameters, multiply_adds=multiply_adds),)
