"""An architecture: how a network is built for some images or text, how many parameters it has, what a step costs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fewjoules.errors import InvalidInputError, require_integer

if TYPE_CHECKING:
    from torch import nn

MAX_SIDE = 4096  # channels, height or width
MAX_CLASSES = 1_000_000
MAX_CONTEXT = 4096
MAX_SIZES = {"width": 16_384, "depth": 256, "heads": 1024}  # keys of [model]; which of them a network has differs
FLOPS_PER_MULTIPLY_ADD = 6  # a product and a sum, in the forward pass and twice in the backward one


@dataclass(frozen=True, slots=True)
class Images:
    """Shape of the images (n, channels, height, width) and number of classes that a network is built for."""

    channels: int
    height: int
    width: int
    classes: int


@dataclass(frozen=True, slots=True)
class Text:
    """Windows (n, context) of tokens below ``classes``; a network scores (n, context, classes) what comes next."""

    context: int
    classes: int


Shape = Images | Text


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A named network. Planning needs only its counts; PyTorch is loaded by ``build``.

    ``build``, ``parameters`` and ``multiply_adds`` take a shape of the kind ``takes``, and the ``sizes`` by name: keys
    of [model] with their usual values. ``multiply_adds`` are those of convolutions, linear layers and attention for
    one sample in the forward pass. ``statistics`` counts the running means and variances of batch normalisation, all
    of which every message carries, however sparse the update. ``usual_data`` is the data set assumed by plans for a
    scenario that names none.
    """

    name: str
    build: Callable[..., "nn.Module"]
    parameters: Callable[..., int]
    multiply_adds: Callable[..., int]
    statistics: int = 0
    smallest_side: int = 1
    usual_data: str | None = None
    takes: type[Images] | type[Text] = Images
    sizes: Mapping[str, int] = field(default_factory=dict)

    def flops_per_sample(self, shape: Shape, **sizes: int) -> int:
        """Floating-point operations of one sample in a training step; a backward pass counts as two forward ones."""
        return FLOPS_PER_MULTIPLY_ADD * self.multiply_adds(shape, **sizes)

    def require_shape(self, shape: Shape) -> None:
        """Refuse images or text that the network cannot take."""
        if not isinstance(shape, self.takes):
            wanted, got = ("text", "images") if self.takes is Text else ("images", "text")
            raise InvalidInputError(f"architecture {self.name!r} is for {wanted}, got {got}")
        if isinstance(shape, Text):
            require_integer("context", shape.context, low=1, high=MAX_CONTEXT)
        else:
            require_integer("channels", shape.channels, low=1, high=MAX_SIDE)
            for side in ("height", "width"):
                value = getattr(shape, side)
                require_integer(f"{side} for {self.name}", value, low=self.smallest_side, high=MAX_SIDE)
        require_integer("classes", shape.classes, low=1, high=MAX_CLASSES)

    def all_sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of the network, usual ones where none is given; refuse those that it has not."""
        for name in given:
            if name not in self.sizes:
                has = f"has {' and '.join(self.sizes)}" if self.sizes else "has no sizes to choose"
                raise InvalidInputError(f"{name} is unused: architecture {self.name!r} {has}")
        sizes = {name: given.get(name, usual) for name, usual in self.sizes.items()}
        for name, value in sizes.items():
            require_integer(name, value, low=1, high=MAX_SIZES[name])
        if sizes.get("width", 0) % sizes.get("heads", 1):
            raise InvalidInputError(
                f"width must be a multiple of heads ({sizes['heads']}), which share it equally, got {sizes['width']}"
            )
        return sizes
