"""Losses and right answers of a model's outputs, and the means of them that count every sample or token once."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from fewjoules.engine.models.labels import IGNORED_LABEL, USUAL, Counted, LabelRule
from fewjoules.engine.models.tree import Tree
from fewjoules.errors import InvalidInputError

Pair = tuple[torch.Tensor, torch.Tensor]  # a sum and a weight for each sample; their mean is sum over weight
Value = torch.Tensor | Pair  # one number, one for each sample, or a pair
Loss = Callable[[Any, Any], Any] | Mapping[str, Any]  # functions of (outputs, targets) or of (model, batch)


def cross_entropy(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of each sample, or of each token; the default loss."""
    found = scores(outputs)
    if found is None:
        raise InvalidInputError(
            f"cross-entropy needs outputs that are a tensor or have logits, got {type(outputs).__name__}"
        )
    if targets.ndim == 1:
        return functional.cross_entropy(_wide(found), targets, reduction="none")
    losses = functional.cross_entropy(_rows(_wide(found), targets), targets.flatten(), reduction="none")
    return losses.view(targets.shape)


def mean_over_tokens(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of the tokens of a batch that count, in fewer steps than by way of each token."""
    found = scores(outputs)
    assert found is not None
    rows, labels = _rows(_wide(found), targets), targets.flatten()
    if targets.is_cpu and bool((targets.numpy() != IGNORED_LABEL).any()):  # the same bits in one step
        return functional.cross_entropy(rows, labels, ignore_index=IGNORED_LABEL)
    total = functional.cross_entropy(rows, labels, ignore_index=IGNORED_LABEL, reduction="sum")
    return total / (targets != IGNORED_LABEL).sum().clamp(min=1)


def _wide(found: torch.Tensor) -> torch.Tensor:
    """Return scores of half precision as float32."""
    return found if found.dtype == torch.float64 else found.float()


def _rows(found: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the scores of all tokens as (tokens, classes)."""
    last = classes_last(found, targets)
    if last.shape[:-1] != targets.shape:
        raise InvalidInputError(
            f"the loss needs a score of each class for each label, got outputs of shape {tuple(found.shape)} for "
            f"labels of shape {tuple(targets.shape)}"
        )
    return last.flatten(0, -2)


def scores(outputs: Any) -> torch.Tensor | None:
    """Return the scores of classes: the outputs themselves, or their ``logits``; None if there are none."""
    if torch.is_tensor(outputs):
        return outputs
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    return found if torch.is_tensor(found) else None


def classes_last(found: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return scores as (samples, ..., classes); classes are the last axis, or the second as PyTorch's losses have it.

    Where both would fit, they are the last.
    """
    if found.shape[:-1] != targets.shape and found.shape[:1] + found.shape[2:] == targets.shape:
        return found.movedim(1, -1)
    return found


def right_answers(outputs: Any, targets: Tree | None, rule: LabelRule = USUAL) -> Value | None:
    """Return which samples are classified correctly, or how many tokens of each and of how many that count.

    None where outputs are not class scores of whole numbers.
    """
    found = scores(outputs)
    if found is None or not torch.is_tensor(targets) or targets.is_floating_point() or found.ndim != targets.ndim + 1:
        return None
    if targets.ndim == 1:
        right = found.argmax(1) == targets
        counted = rule.counted(targets)
        return Counted(right & counted, counted) if rule.single else right
    last = classes_last(found, targets)
    return None if last.shape[:-1] != targets.shape else counted_tokens(last.argmax(-1) == targets, targets, rule)


def mean_right(outputs: Any, targets: Tree | None, rule: LabelRule = USUAL) -> torch.Tensor | float | None:
    """Return the share of right answers in a batch, in fewer steps than by way of each sample's; None if unknown."""
    found = scores(outputs)
    if found is None or not torch.is_tensor(targets) or targets.is_floating_point() or found.ndim != targets.ndim + 1:
        return None
    last = classes_last(found, targets)
    if last.shape[:-1] != targets.shape:
        return None
    if last.is_cpu:  # NumPy finds the highest score seven times as fast
        labels = targets.numpy()
        counts = labels != rule.ignored
        hits = np.count_nonzero((last.detach().float().numpy().argmax(-1) == labels) & counts)
        return int(hits) / max(1, int(np.count_nonzero(counts)))
    counted = targets != rule.ignored
    return ((last.argmax(-1) == targets) & counted).sum() / counted.sum().clamp(min=1)


def class_count(outputs: Any, targets: Tree | None, rule: LabelRule = USUAL) -> int | None:
    """Return the number of classes; None where outputs are not class scores."""
    found = scores(outputs)
    if found is None or right_answers(outputs, targets, rule) is None:
        return None
    assert torch.is_tensor(targets)
    return int(classes_last(found, targets).shape[-1])


def counted_tokens(values: torch.Tensor, targets: torch.Tensor, rule: LabelRule = USUAL) -> Pair:
    """Return the sum over the tokens of each sample that count, and their number."""
    counted = targets != rule.ignored
    return torch.where(counted, values, 0.0).flatten(1).sum(1).float(), counted.flatten(1).sum(1).float()


def normal(value: Any, targets: Tree | None, rule: LabelRule = USUAL) -> Any:
    """Return what a loss or metric gave, with one number for each token as a pair of sums and numbers of tokens."""
    if isinstance(value, tuple | list) and len(value) == 2:
        return tuple(_tensor(one) for one in value)
    value = _tensor(value)
    if torch.is_tensor(value) and value.ndim > 1 and torch.is_tensor(targets) and not targets.is_floating_point():
        return counted_tokens(value, targets, rule) if value.shape == targets.shape else value
    return value


def _tensor(value: Any) -> Any:
    return torch.as_tensor(value) if isinstance(value, int | float | np.number | np.ndarray) else value


def shape_problem(value: Any, count: int, *, whole: bool = False) -> str | None:
    """Return what is wrong with a normal value of ``count`` samples, or None; a pair may be ``whole``, of the batch."""
    allowed = "one number, one per sample, one per label, or a pair (sums, weights) of one per sample"
    parts = value if isinstance(value, tuple) else (value,)
    if not all(torch.is_tensor(part) for part in parts):
        return f"must be {allowed}, got {type(value).__name__}"
    shapes = [tuple(part.shape) for part in parts]
    if any(shape != (count,) for shape in shapes) and shapes not in ([()], [(), ()] if whole else [()]):
        return f"must be {allowed}, got shape {' and '.join(map(str, shapes))} for {count} samples"
    return None


def mean_of(value: Value, weights: torch.Tensor | None) -> torch.Tensor:
    """Return the mean over a batch; ``weights`` of its samples sum to one, and None means that all are equal.

    The mean of pairs is the weighted sum of their sums over that of their weights, so that every token counts once.
    """
    if isinstance(value, Counted):
        return _mean_of_counted(value, weights)
    if isinstance(value, tuple):
        total, count = (part.sum() if weights is None else part.to(weights.dtype) @ weights for part in value)
        return total / count.clamp(min=torch.finfo(torch.float32).tiny)
    if value.ndim == 0:
        return value
    return value.mean() if weights is None else value @ weights


def _mean_of_counted(value: Counted, weights: torch.Tensor | None) -> torch.Tensor:
    """Return the mean of those that count: to the bit that of all values where all do."""
    least = torch.finfo(torch.float32).tiny
    given, counted = value.values, value.counted.to(value.values.dtype)
    if weights is None:
        return torch.where(counted.bool().all(), given.mean(), given.sum() / counted.sum().clamp(min=least))
    share = torch.where(counted.bool().all(), 1.0, (counted @ weights).clamp(min=least))
    return (given @ weights) / share


def sum_and_weight(value: Value, count: int) -> tuple[float, float]:
    """Return the sum over ``count`` samples and its weight: added over batches, they give the mean of all samples."""
    if isinstance(value, tuple):
        total, weight = value
        return float(total.double().sum()), float(weight.double().sum())
    return float(value * count if value.ndim == 0 else value.double().sum()), float(count)
