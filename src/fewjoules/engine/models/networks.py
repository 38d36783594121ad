"""Networks by name: those of ``architectures``, and users' own as "package.module:function"."""

import contextlib
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fewjoules.engine.models.architectures import ARCHITECTURES, Images
from fewjoules.engine.models.architectures.base import FLOPS_PER_MULTIPLY_ADD, is_own
from fewjoules.engine.models.layout import require_trainable
from fewjoules.errors import InvalidInputError, require_integer


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
    """Build a network for images (n, channels, height, width) with logits (n, classes); equal seeds give equal weights.

    The module of a user's own architecture is looked up in ``folder`` first.
    """
    require_integer("seed", seed, low=0, high=2**63 - 1)
    images = Images(channels, height, width, classes)
    if is_own(architecture):
        make: Callable[[], nn.Module] = lambda: _own_network(architecture, images, folder)  # noqa: E731
    elif architecture in ARCHITECTURES:
        ARCHITECTURES[architecture].require_images(images)
        make = lambda: ARCHITECTURES[architecture].build(images)  # noqa: E731
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
    """Number of float32 buffer entries, all of which every message carries."""
    return sum(buffer.numel() for buffer in model.buffers() if buffer.dtype == torch.float32)


def counted_flops_per_sample(model: nn.Module, images: Images) -> int:
    """Floating-point operations of one sample in a training step; PyTorch counts those of the forward pass."""
    model.eval()  # one image has no variance for BatchNorm
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        model(torch.zeros(1, images.channels, images.height, images.width))
    return counter.get_total_flops() * FLOPS_PER_MULTIPLY_ADD // 2


def source_digest(architecture: str, folder: Path | None) -> str | None:
    """SHA-256 of the file that defines a user's own architecture, so that a resumed run notices a change."""
    if not is_own(architecture):
        return None
    function = _own_function(architecture, folder)
    defined = inspect.isroutine(function) or inspect.isclass(function)  # else an object that can be called
    file = inspect.getsourcefile(function if defined else sys.modules[architecture.partition(":")[0]])
    return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _own_network(architecture: str, images: Images, folder: Path | None) -> nn.Module:
    function = _own_function(architecture, folder)
    try:
        model = function(images.channels, images.height, images.width, images.classes)
    except Exception as error:
        raise InvalidInputError(
            f"architecture {architecture!r} must be a function of (channels, height, width, classes); calling it with "
            f"({images.channels}, {images.height}, {images.width}, {images.classes}) failed: {_first_line(error)}"
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


def _own_function(architecture: str, folder: Path | None) -> Callable[..., Any]:
    module_name, _, name = architecture.partition(":")
    try:
        with _importable(folder):
            module = importlib.import_module(module_name)
    except Exception as error:
        raise InvalidInputError(
            f"architecture {architecture!r} must name a module that can be imported; importing {module_name!r} "
            f"failed: {_first_line(error)}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidInputError(
            f"architecture {architecture!r} must name a function of {module_name}; {name!r} is not one"
        )
    return function


@contextlib.contextmanager
def _importable(folder: Path | None) -> Iterator[None]:
    """Let modules in ``folder`` be imported while the body runs."""
    added = [] if folder is None else [str(folder.resolve())]
    sys.path[:0] = added
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for path in added:
            sys.path.remove(path)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
