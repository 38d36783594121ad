"""The data that a user gives to ``fewjoules.train``: arrays of each client, joined in tensors on one device."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from fewjoules.arrays import IntArray
from fewjoules.engine.models.labels import USUAL, LabelRule
from fewjoules.engine.models.layout import copied
from fewjoules.engine.models.loss import Loss, cross_entropy
from fewjoules.engine.models.objective import Objective
from fewjoules.engine.models.tree import Tree, call, described, leaves, map_tree, rebuilt, shapes_of
from fewjoules.engine.simulator.federation import Samples, SampleSource, first_of
from fewjoules.engine.simulator.read_samples import ReadSamples
from fewjoules.errors import InvalidInputError
from fewjoules.own_code import first_line
from fewjoules.runs.plain_arrays import plain_tree, require_plain

_NARROW = {torch.uint8, torch.int8, torch.int16, torch.uint16, torch.uint32, torch.uint64}  # no tokens for PyTorch

Arrays = Any  # (inputs, targets), or a dict of inputs without targets; inputs and targets are trees of arrays


def rule_of(loss: Loss | None) -> LabelRule:
    """Return which labels count for a loss, by default cross-entropy."""
    return Objective.of(cross_entropy if loss is None else loss).rule


def require_loss(caller: str, loss: Loss | None, samples: SampleSource) -> None:
    """Refuse samples without labels unless there is a loss."""
    if loss is not None or has_labels(samples):
        return
    if first_of(samples)[1] is None:
        raise InvalidInputError(f"the samples have no targets, so {caller} needs a loss of (model, batch)")
    kind = "numbers" if torch.is_tensor(first_of(samples)[1]) else "several arrays"
    raise InvalidInputError(
        f"the targets are {kind}, not labels, so {caller} needs a loss, such as loss=torch.nn.functional.mse_loss"
    )


def has_labels(samples: SampleSource) -> bool:
    """Tell whether the targets are one array of whole numbers."""
    targets = first_of(samples)[1]
    return torch.is_tensor(targets) and not targets.is_floating_point()


def as_taken(model: nn.Module, samples: SampleSource) -> SampleSource:
    """Return the samples with whole numbers as inputs in the type that the model takes, if it does not take theirs.

    One array (pixels, counts) becomes float32 if the model takes it so; otherwise numbers of fewer than 32 bits or
    without a sign (tokens on disk) become int64.
    """
    inputs = first_of(samples)[0]
    ways = [_as_floats] if torch.is_tensor(inputs) and not inputs.is_floating_point() else []
    ways += [_widened] if any(leaf.dtype in _NARROW for leaf in leaves(inputs)) else []
    if not ways:
        return samples
    probe = copied(model).to(samples.device)
    probe.eval()
    if _runs(probe, inputs):
        return samples
    for way in ways:
        if _runs(probe, map_tree(way, inputs)):
            return samples.with_inputs(way) if isinstance(samples, Samples | ReadSamples) else samples
    return samples


def _as_floats(array: torch.Tensor) -> torch.Tensor:
    return array.float()


def _widened(array: torch.Tensor) -> torch.Tensor:
    return array.long() if array.dtype in _NARROW else array


@torch.no_grad()
def _runs(model: nn.Module, inputs: Tree) -> bool:
    try:
        call(model, inputs)
    except Exception:
        return False
    return True


def gather(clients: Sequence[Arrays], device: torch.device, rule: LabelRule = USUAL) -> tuple[Samples, list[IntArray]]:
    """Join the samples of all clients in one tree of tensors; return it and the sample numbers of each client."""
    if len(clients) == 0:
        raise InvalidInputError("clients must have at least one entry")
    own = [tensors_of(given, device, f"clients[{number}]", rule) for number, given in enumerate(clients)]
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


def tensors_of(given: Arrays, device: torch.device, name: str, rule: LabelRule = USUAL) -> Samples:
    """Return the samples as tensors: floats as float32, labels as int64, other inputs as they are.

    Refuse arrays of unequal lengths, no samples, numbers that are not finite, and labels below 0 where they are judged.
    """
    inputs, targets = (plain_tree(tree, name) for tree in pair_of(given, name))
    try:
        inputs, targets = _tensors(inputs), _tensors(targets)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"{name} must hold arrays of numbers with samples of one shape: {first_line(error)}"
        ) from error
    arrays = [*leaves(inputs), *leaves(targets)]
    for array in arrays:
        require_plain(array, name)
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
    labels = samples.label_range(rule) if rule.judged else None
    if labels is not None and labels[0] < 0:
        raise InvalidInputError(f"{name} must have labels of at least 0{rule.said(targets)}, got {labels[0]}")
    return samples


def pair_of(given: Arrays, name: str) -> tuple[Any, Any]:
    """Return inputs and targets of a client's arrays; refuse what is neither a pair nor a dict."""
    if isinstance(given, Mapping):
        return given, None
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InvalidInputError(
            f"{name} must be a pair of arrays (inputs, targets), a dict of arrays or a data set with a length and "
            f"items, got {kind_of(given)}"
        )
    return given[0], given[1]


def kind_of(given: Any) -> str:
    """Name the type of a value, with the length of a tuple or list."""
    kind = type(given).__name__
    return f"{kind} of {len(given)}" if isinstance(given, tuple | list) else kind


def _tensors(given: Any) -> Tree:
    """Return a dict or tuple of arrays as a tree, its floats as float32, which is the type of weights."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return {key: _tensors(given[key]) for key in sorted(given)}  # so that all trees have the same order
    if isinstance(given, tuple):
        return tuple(_tensors(one) for one in given)
    tensor = _tensor(given)
    return tensor.to(torch.float32) if tensor.is_floating_point() else tensor


def _tensor(given: Any) -> torch.Tensor:
    """Return an array, a table or column of pandas, or a list of numbers or tensors as a tensor."""
    if torch.is_tensor(given):
        return given
    if not hasattr(given, "__array__"):
        return torch.stack(list(given)) if _holds_tensors(given) else torch.as_tensor(given)
    array = np.asarray(given)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.as_tensor(native if native.flags.writeable else native.copy())


def _holds_tensors(given: Any) -> bool:
    """Tell whether this is a list of tensors, or a column of a Hugging Face data set with the format "torch"."""
    return isinstance(given, Sequence) and len(given) > 0 and all(torch.is_tensor(one) for one in given)


def _labels(array: torch.Tensor) -> torch.Tensor:
    return array if array.is_floating_point() else array.to(torch.int64)


def _moved(tree: Tree, device: torch.device) -> Tree:
    return rebuilt(tree, [array.to(device) for array in leaves(tree)])
