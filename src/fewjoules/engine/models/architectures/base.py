"""An architecture: how a network is built for some images, how many parameters it has, what a step costs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fewjoules.errors import require_integer

if TYPE_CHECKING:
    from torch import nn

MAX_SIDE = 4096  # channels, height or width
MAX_CLASSES = 1_000_000
FLOPS_PER_MULTIPLY_ADD = 6  # a product and a sum, in the forward pass and twice in the backward one


@dataclass(frozen=True, slots=True)
class Images:
    """Shape of the images (n, channels, height, width) and number of classes that a network is built for."""

    channels: int
    height: int
    width: int
    classes: int


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A named network. Planning needs only its counts; PyTorch is loaded by ``build``.

    ``multiply_adds`` are those of convolutions and linear layers for one image in the forward pass.
    ``statistics`` counts the running means and variances of batch normalisation, all of which every message carries,
    however sparse the update. ``usual_data`` is the data set assumed by plans for a scenario that names none.
    """

    name: str
    build: Callable[[Images], "nn.Module"]
    parameters: Callable[[Images], int]
    multiply_adds: Callable[[Images], int]
    statistics: int = 0
    smallest_side: int = 1
    usual_data: str | None = None

    def flops_per_sample(self, images: Images) -> int:
        """Floating-point operations of one sample in a training step; a backward pass counts as two forward ones."""
        return FLOPS_PER_MULTIPLY_ADD * self.multiply_adds(images)

    def require_images(self, images: Images) -> None:
        """Refuse images that the network cannot take."""
        require_integer("channels", images.channels, low=1, high=MAX_SIDE)
        for side in ("height", "width"):
            value = getattr(images, side)
            require_integer(f"{side} for {self.name}", value, low=self.smallest_side, high=MAX_SIDE)
        require_integer("classes", images.classes, low=1, high=MAX_CLASSES)


def is_own(architecture: str) -> bool:
    """Tell whether the name is that of a user's own function."""
    return ":" in architecture
