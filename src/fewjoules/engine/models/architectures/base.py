"""What an architecture is: how a network is built for some images, and how many parameters it will have."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fewjoules.errors import require_integer

if TYPE_CHECKING:
    from torch import nn

MAX_SIDE = 4096  # channels, height or width
MAX_CLASSES = 1_000_000


@dataclass(frozen=True, slots=True)
class Images:
    """What a network is built for: images (n, channels, height, width) of so many classes."""

    channels: int
    height: int
    width: int
    classes: int


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A network by name. Planning needs ``parameters`` alone, so that only ``build`` loads PyTorch.

    ``statistics`` are numbers that every message carries whole, however sparse the update: running means and variances
    of batch normalisation. ``usual_data`` is what a scenario that names no data is planned for.
    """

    name: str
    build: Callable[[Images], "nn.Module"]
    parameters: Callable[[Images], int]
    statistics: int = 0
    smallest_side: int = 1
    usual_data: str | None = None

    def require_images(self, images: Images) -> None:
        """Refuse images that the network cannot take."""
        require_integer("channels", images.channels, low=1, high=MAX_SIDE)
        for side in ("height", "width"):
            value = getattr(images, side)
            require_integer(f"{side} for {self.name}", value, low=self.smallest_side, high=MAX_SIDE)
        require_integer("classes", images.classes, low=1, high=MAX_CLASSES)
