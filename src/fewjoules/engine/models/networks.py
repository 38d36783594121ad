"""Networks by name: those of ``architectures``, and users' own as "package.module:function"."""

from collections.abc import Callable, Mapping
from dataclasses import astuple, fields
from pathlib import Path

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fewjoules.engine.models.architectures import ARCHITECTURES, Images, Shape, Text
from fewjoules.engine.models.architectures.base import FLOPS_PER_MULTIPLY_ADD
from fewjoules.engine.models.layout import averaged_buffers, require_trainable
from fewjoules.errors import InvalidInputError, require_integer
from fewjoules.own_code import first_line, is_own, own_function, own_source_digest


def build(
    architecture: str,
    *,
    channels: int,
    height: int,
    width: int,
    classes: int,
    seed: int,
    folder: Path | None = None,
) -> nn.Module:
    """Build a network for images (n, channels, height, width) with logits (n, classes); see ``build_for``."""
    return build_for(architecture, Images(channels, height, width, classes), seed=seed, folder=folder)


def build_for(
    architecture: str,
    shape: Shape | None,
    *,
    seed: int,
    sizes: Mapping[str, int] | None = None,
    folder: Path | None = None,
) -> nn.Module:
    """Build a network for images or text; equal seeds give equal weights.

    Without a ``shape`` the data are the user's own, and so must be the architecture, whose function takes no arguments.
    ``sizes`` are those that differ from the architecture's usual ones. The module of a user's own architecture is
    looked up in ``folder`` first.
    """
    require_integer("seed", seed, low=0, high=2**63 - 1)
    if is_own(architecture):
        make: Callable[[], nn.Module] = lambda: _own_network(architecture, shape, folder)  # noqa: E731
    elif architecture in ARCHITECTURES:
        assert shape is not None
        known = ARCHITECTURES[architecture]
        known.require_shape(shape)
        chosen = known.all_sizes(sizes or {})
        make = lambda: known.build(shape, **chosen)  # noqa: E731
    else:
        raise InvalidInputError(
            f"architecture must be one of {', '.join(ARCHITECTURES)} or 'package.module:function', got {architecture!r}"
        )
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed every GPU
        return make()


def parameter_count(model: nn.Module) -> int:
    """Number of trainable parameters, without buffers."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def statistics_count(model: nn.Module) -> int:
    """Number of averaged buffer entries, all of which every message carries."""
    return sum(buffer.numel() for buffer in averaged_buffers(model).values())


def counted_flops_per_sample(model: nn.Module, shape: Shape) -> int:
    """Floating-point operations of one sample in a training step; PyTorch counts those of the forward pass."""
    model.eval()  # one image has no variance for BatchNorm
    counter = FlopCounterMode(display=False)
    if isinstance(shape, Text):
        sample = torch.zeros(1, shape.context, dtype=torch.int64)
    else:
        sample = torch.zeros(1, shape.channels, shape.height, shape.width)
    with counter, torch.no_grad():
        model(sample)
    return counter.get_total_flops() * FLOPS_PER_MULTIPLY_ADD // 2


def source_digest(architecture: str, folder: Path | None) -> str | None:
    """SHA-256 of the file that defines a user's own architecture, so that a resumed run notices a change."""
    return own_source_digest("architecture", architecture, folder) if is_own(architecture) else None


def _own_network(architecture: str, shape: Shape | None, folder: Path | None) -> nn.Module:
    function = own_function("architecture", architecture, folder)
    values = () if shape is None else astuple(shape)
    try:
        model = function(*values)
    except Exception as error:
        names = "" if shape is None else ", ".join(one.name for one in fields(shape))
        raise InvalidInputError(
            f"architecture {architecture!r} must be a function of ({names}); calling it with {values} failed: "
            f"{first_line(error)}"
        ) from error
    if not isinstance(model, nn.Module):
        raise InvalidInputError(
            f"architecture {architecture!r} must return a torch.nn.Module, got {type(model).__name__}"
        )
    try:
        require_trainable(model)
    except InvalidInputError as error:
        raise InvalidInputError(f"architecture {architecture!r} cannot be trained: {error}") from error
    return model
