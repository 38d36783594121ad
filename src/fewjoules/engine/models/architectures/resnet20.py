"""ResNet-20 for CIFAR-10 (He et al., 2016), with batch or with group normalisation."""

from typing import TYPE_CHECKING

from fewjoules.engine.models.architectures.base import Architecture, Images

if TYPE_CHECKING:
    from torch import nn

WIDTHS = ((16, 16),) * 3 + ((16, 32),) + ((32, 32),) * 2 + ((32, 64),) + ((64, 64),) * 2  # channels of each block
GROUP_CHANNELS = 8  # channels that a GroupNorm normalises together
_NORMALISED = 16 + 2 * sum(outside for _, outside in WIDTHS)  # channels, over all layers


def build(images: Images) -> "nn.Module":
    """Build the network with BatchNorm."""
    from torch import nn

    from fewjoules.engine.models.resnet import ResNet20

    return ResNet20(images.channels, images.classes, nn.BatchNorm2d)


def build_with_groups(images: Images) -> "nn.Module":
    """Build the network with GroupNorm, which keeps no statistics."""
    from torch import nn

    from fewjoules.engine.models.resnet import ResNet20

    return ResNet20(images.channels, images.classes, lambda n: nn.GroupNorm(n // GROUP_CHANNELS, n))


def parameters(images: Images) -> int:
    """Number of parameters: convolutions without biases, two per normalised channel, and the last layer."""
    convolutions = 9 * images.channels * 16 + sum(9 * (inside + outside) * outside for inside, outside in WIDTHS)
    return convolutions + 2 * _NORMALISED + 65 * images.classes


def multiply_adds(images: Images) -> int:
    """Multiply-adds of one image: convolutions, which halve the sides where channels double, and the last layer."""
    height, width = images.height, images.width
    total = height * width * 9 * images.channels * 16
    for inside, outside in WIDTHS:
        if outside > inside:
            height, width = (height + 1) // 2, (width + 1) // 2
        total += height * width * 9 * (inside + outside) * outside
    return total + 64 * images.classes


_COMMON = {"parameters": parameters, "multiply_adds": multiply_adds, "smallest_side": 8, "usual_data": "cifar10"}
ARCHITECTURES = (
    Architecture(name="resnet20", build=build, statistics=2 * _NORMALISED, **_COMMON),  # type: ignore[arg-type]
    Architecture(name="resnet20-gn", build=build_with_groups, **_COMMON),  # type: ignore[arg-type]
)
