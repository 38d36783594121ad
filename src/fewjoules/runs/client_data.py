"""The data that a user gives to ``fewjoules.train``: arrays of each client, joined in tensors on one device."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from fewjoules.arrays import IntArray
from fewjoules.engine.models.loss import IGNORED_LABEL, Loss
from fewjoules.engine.models.tree import Tree, described, leaves, rebuilt, shapes_of
from fewjoules.engine.simulator.federation import Samples, SampleSource, first_of
from fewjoules.engine.simulator.read_samples import ReadSamples
from fewjoules.errors import InvalidInputError

Arrays = Any  # (inputs, targets), or a dict of inputs without targets; inputs and targets are trees of arrays


def require_loss(caller: str, loss: Loss | None, samples: SampleSource) -> None:
    """Refuse samples without labels unless there is a loss."""
    if loss is not None or has_labels(samples):
        return
    if first_of(samples)[1] is None:
        raise InvalidInputError(f"the samples have no targets, so {caller} needs a loss of (model, batch)")
    raise InvalidInputError(
        f"the targets are numbers, not labels, so {caller} needs a loss, such as loss=torch.nn.functional.mse_loss"
    )


def has_labels(samples: SampleSource) -> bool:
    """Tell whether the targets are one array of whole numbers."""
    targets = first_of(samples)[1]
    return torch.is_tensor(targets) and not targets.is_floating_point()


def as_taken(model: nn.Module, samples: SampleSource) -> SampleSource:
    """Return the samples with whole numbers as inputs (pixels, counts) as float32 if the model takes them only so."""
    inputs = first_of(samples)[0]
    if not torch.is_tensor(inputs) or inputs.is_floating_point():
        return samples
    probe = copy.deepcopy(model).to(samples.device).eval()
    if _runs(probe, inputs) or not _runs(probe, inputs.float()):
        return samples
    if isinstance(samples, Samples):
        return Samples(samples.inputs.float(), samples.targets)
    return samples.with_float_inputs() if isinstance(samples, ReadSamples) else samples


@torch.no_grad()
def _runs(model: nn.Module, inputs: torch.Tensor) -> bool:
    try:
        model(inputs)
    except Exception:
        return False
    return True


def gather(clients: Sequence[Arrays], device: torch.device) -> tuple[Samples, list[IntArray]]:
    """Join the samples of all clients in one tree of tensors; return it and the sample numbers of each client."""
    if len(clients) == 0:
        raise InvalidInputError("clients must have at least one entry")
    own = [tensors_of(given, device, f"clients[{number}]") for number, given in enumerate(clients)]
    for number, samples in enumerate(own):
        for name in ("inputs", "targets"):
            found, like = getattr(samples, name), getattr(own[0], name)
            if shapes_of(found) != shapes_of(like):
                raise InvalidInputError(
                    f"clients[{number}] must have {name} like those of clients[0], {described(like)}, "
                    f"got {described(found)}"
                )
    ends = np.cumsum([len(samples) for samples in own])
    parts = [np.arange(end - len(samples), end) for samples, end in zip(own, ends, strict=True)]
    return Samples(*(_joined([getattr(one, name) for one in own]) for name in ("inputs", "targets"))), parts


def _joined(trees: list[Tree]) -> Tree:
    """Return one tree of all samples of trees of the same shapes."""
    columns = zip(*(leaves(tree) for tree in trees), strict=True)
    return rebuilt(trees[0], [torch.cat(column) for column in columns])


def tensors_of(given: Arrays, device: torch.device, name: str) -> Samples:
    """Return the samples as tensors: floats as float32, labels as int64, other inputs as they are.

    Refuse arrays of unequal lengths, no samples, and numbers that are not finite.
    """
    try:
        inputs, targets = (given, None) if isinstance(given, dict) else given
        inputs, targets = _tensors(inputs), _tensors(targets)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"{name} must be a pair of arrays (inputs, targets), got {type(given).__name__}"
        ) from error
    arrays = [*leaves(inputs), *leaves(targets)]
    if not leaves(inputs) or any(array.ndim == 0 or len(array) != len(arrays[0]) or not len(array) for array in arrays):
        raise InvalidInputError(
            f"{name} must have as many inputs as targets, at least one, got shapes "
            f"{' and '.join(str(tuple(array.shape)) for array in arrays) or 'of nothing'}"
        )
    targets = rebuilt(targets, [_labels(array) for array in leaves(targets)])
    for kind, tree in (("inputs", inputs), ("targets", targets)):
        if not all(bool(torch.isfinite(array).all()) for array in leaves(tree) if array.is_floating_point()):
            raise InvalidInputError(f"{name} must have finite {kind}, got NaN or infinity")
    samples = Samples(_moved(inputs, device), _moved(targets, device))
    labels = samples.label_range()
    if labels is not None and labels[0] < 0:
        raise InvalidInputError(
            f"{name} must have labels of at least 0, or {IGNORED_LABEL} for tokens to ignore, got {labels[0]}"
        )
    return samples


def _tensors(given: Any) -> Tree:
    """Return a dict or tuple of arrays as a tree, its floats as float32, which is the type of weights."""
    if given is None:
        return None
    if isinstance(given, dict):
        return {key: _tensors(given[key]) for key in sorted(given)}  # so that all trees have the same order
    if isinstance(given, tuple):
        return tuple(_tensors(one) for one in given)
    tensor = torch.as_tensor(given)
    return tensor.to(torch.float32) if tensor.is_floating_point() else tensor


def _labels(array: torch.Tensor) -> torch.Tensor:
    return array if array.is_floating_point() else array.to(torch.int64)


def _moved(tree: Tree, device: torch.device) -> Tree:
    return rebuilt(tree, [array.to(device) for array in leaves(tree)])
