"""ResNet-20 as a module. Layers are plain, so that ``torch.func`` can stack clients and map over them."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from fewjoules.engine.models.architectures.resnet20 import WIDTHS


class ResNet20(nn.Module):
    """The residual network of He et al. (2016) for CIFAR-10: 269,722 parameters for 3 channels and 10 classes."""

    def __init__(self, channels: int, classes: int, norm: Callable[[int], nn.Module]) -> None:
        """Build the layers; ``norm(channels)`` makes a normalisation layer."""
        super().__init__()
        self.first = nn.Sequential(_convolution(channels, 16, 1), norm(16), nn.ReLU())
        self.blocks = nn.Sequential(*(_Block(inside, outside, norm) for inside, outside in WIDTHS))
        self.last = nn.Linear(64, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (n, classes)."""
        features = self.blocks(self.first(images))
        logits: torch.Tensor = self.last(features.mean(dim=(2, 3)))
        return logits


class _Block(nn.Module):
    """Two convolutions beside a shortcut without parameters (option A); more channels mean half the side."""

    def __init__(self, inside: int, outside: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.grows = outside - inside
        self.body = nn.Sequential(
            _convolution(inside, outside, 2 if self.grows else 1),
            norm(outside),
            nn.ReLU(),
            _convolution(outside, outside, 1),
            norm(outside),
        )
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features after the block."""
        shortcut = x
        if self.grows:
            before = self.grows // 2
            shortcut = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, before, self.grows - before))
        features: torch.Tensor = self.relu(self.body(x) + shortcut)
        return features


def _convolution(inside: int, outside: int, stride: int) -> nn.Module:
    layer = nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
