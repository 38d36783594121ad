"""LeNet-5 in the version of Caffe: 431,080 parameters for 28 x 28 pixels and 10 classes."""

from typing import TYPE_CHECKING

from fewjoules.engine.models.architectures.base import Architecture, Images

if TYPE_CHECKING:
    from torch import nn


def build(images: Images) -> "nn.Module":
    """Build the network."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(images.channels, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(_features(images), 500),
        nn.ReLU(),
        nn.Linear(500, images.classes),
    )


def parameters(images: Images) -> int:
    """Number of weights and biases, layer by layer."""
    convolutions = (25 * images.channels + 1) * 20 + (25 * 20 + 1) * 50
    return convolutions + (_features(images) + 1) * 500 + 501 * images.classes


def multiply_adds(images: Images) -> int:
    """Multiply-adds of one image, layer by layer."""
    first = (images.height - 4) * (images.width - 4)
    second = ((images.height - 4) // 2 - 4) * ((images.width - 4) // 2 - 4)
    convolutions = first * 25 * images.channels * 20 + second * 25 * 20 * 50
    return convolutions + _features(images) * 500 + 500 * images.classes


def _features(images: Images) -> int:
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (images.height, images.width))
    return 50 * rows * columns


ARCHITECTURES = (
    Architecture(
        name="lenet5",
        build=build,
        parameters=parameters,
        multiply_adds=multiply_adds,
        smallest_side=16,
        usual_data="mnist",
    ),
)
