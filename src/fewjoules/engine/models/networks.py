"""The networks to train, by name. Layers are plain, so that ``torch.func`` can stack clients and map over them."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from fewjoules.errors import InvalidInputError, require_integer

MAX_SIDE = 4096  # channels, height or width
MAX_CLASSES = 1_000_000
ARCHITECTURES = ("softmax", "cnn", "lenet5", "resnet20", "resnet20-gn")
_GROUP_CHANNELS = 8  # channels that a GroupNorm of resnet20-gn normalises together


def build(architecture: str, *, channels: int, height: int, width: int, classes: int, seed: int) -> nn.Module:
    """A network for images (n, channels, height, width) with logits (n, classes); equal seeds give equal weights."""
    if architecture not in ARCHITECTURES:
        raise InvalidInputError(f"architecture must be one of {', '.join(ARCHITECTURES)}, got {architecture!r}")
    require_integer("channels", channels, low=1, high=MAX_SIDE)
    smallest, network = _NETWORKS[architecture]
    require_integer(f"height for {architecture}", height, low=smallest, high=MAX_SIDE)
    require_integer(f"width for {architecture}", width, low=smallest, high=MAX_SIDE)
    require_integer("classes", classes, low=1, high=MAX_CLASSES)
    require_integer("seed", seed, low=0, high=2**63 - 1)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed every GPU
        return network(channels, height, width, classes)


def parameter_count(model: nn.Module) -> int:
    """Trainable parameters; buffers do not count."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _softmax(channels: int, height: int, width: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, classes))


def _cnn(channels: int, height: int, width: int, classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def _lenet5(channels: int, height: int, width: int, classes: int) -> nn.Module:
    """LeNet-5 as Caffe has it: 431,080 parameters for 28 x 28 pixels and 10 classes."""
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(50 * rows * columns, 500),
        nn.ReLU(),
        nn.Linear(500, classes),
    )


class ResNet20(nn.Module):
    """The residual network of He et al. (2016) for CIFAR-10: 269,722 parameters for 3 channels and 10 classes."""

    def __init__(self, channels: int, classes: int, norm: Callable[[int], nn.Module]) -> None:
        """``norm`` makes the normalisation of a number of channels."""
        super().__init__()
        self.first = nn.Sequential(_convolution(channels, 16, 1), norm(16), nn.ReLU())
        widths = [(16, 16)] * 3 + [(16, 32)] + [(32, 32)] * 2 + [(32, 64)] + [(64, 64)] * 2
        self.blocks = nn.Sequential(*(_Block(inside, outside, norm) for inside, outside in widths))
        self.last = nn.Linear(64, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (n, classes)."""
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
        """The features after the block."""
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


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(channels // _GROUP_CHANNELS, channels)


def _resnet20(channels: int, height: int, width: int, classes: int) -> nn.Module:
    return ResNet20(channels, classes, nn.BatchNorm2d)


def _resnet20_gn(channels: int, height: int, width: int, classes: int) -> nn.Module:
    return ResNet20(channels, classes, _group_norm)


_NETWORKS = {  # smallest side of an image, and the network
    "softmax": (1, _softmax),
    "cnn": (4, _cnn),
    "lenet5": (16, _lenet5),
    "resnet20": (8, _resnet20),
    "resnet20-gn": (8, _resnet20_gn),
}
