"""Which labels count: those that a loss ignores are left out, and others must be classes if the loss takes them so."""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

IGNORED_LABEL = -100  # of a token that does not count, as in PyTorch and Hugging Face
_FUNCTIONS = {nn.CrossEntropyLoss: functional.cross_entropy, nn.NLLLoss: functional.nll_loss}
_OPTIONS = ("weight", "ignore_index", "reduction", "label_smoothing")


@dataclass(frozen=True, slots=True)
class LabelRule:
    """Which label a training leaves out, and whether its loss takes the others as classes of the model.

    ``single``: it also leaves out a sample whose only label is that one.
    """

    ignored: int = IGNORED_LABEL
    judged: bool = True
    single: bool = False

    def counted(self, labels: torch.Tensor) -> torch.Tensor:
        """Return which labels count."""
        return labels != self.ignored if self.leaves_out(labels) else torch.ones_like(labels, dtype=torch.bool)

    def leaves_out(self, labels: torch.Tensor) -> bool:
        """Whether some of such labels may be ignored."""
        return self.single or labels.ndim > 1

    def said(self, labels: torch.Tensor) -> str:
        """Return what is allowed beside classes, in the words of an error."""
        if not self.leaves_out(labels) or self.ignored >= 0:
            return ""
        return f", or {self.ignored} for {'tokens' if labels.ndim > 1 else 'samples'} to ignore"


USUAL = LabelRule()  # that of the default loss


class Counted(NamedTuple):
    """Values of samples, 0 where a sample does not count, and which count; where all do, it is as if all were given."""

    values: torch.Tensor
    counted: torch.Tensor


@dataclass(frozen=True, slots=True)
class ClassLoss:
    """A loss of PyTorch that takes labels as classes, and its options.

    ``function`` is the one that computes it; None: a subclass computes it in a way of its own.
    """

    function: Any
    options: dict[str, Any]

    @classmethod
    def of(cls, given: Any) -> "ClassLoss | None":
        """Return the loss if it is an ``nn.CrossEntropyLoss`` or ``nn.NLLLoss``, or the function of one of them."""
        if isinstance(given, nn.CrossEntropyLoss | nn.NLLLoss):
            options = {name: getattr(given, name) for name in _OPTIONS if hasattr(given, name)}
            return cls(_FUNCTIONS.get(type(given)), options)
        partial = isinstance(given, functools.partial) and not given.args
        function, options = (given.func, dict(given.keywords)) if partial else (given, {})
        return cls(function, options) if function in _FUNCTIONS.values() and set(options) <= {*_OPTIONS} else None

    @property
    def ignored(self) -> int:
        """The label that it leaves out."""
        return int(self.options.get("ignore_index", IGNORED_LABEL))

    def settled(self, value: Any, targets: Any) -> Any:
        """Return its value of a batch: zero instead of NaN where no label counts; of samples with which of them do."""
        if not torch.is_tensor(targets) or targets.is_floating_point() or not torch.is_tensor(value):
            return value
        counted = targets != self.ignored
        if value.ndim == 0 and self._is_mean:
            return torch.where(counted.any(), value, 0.0)
        return Counted(value, counted.to(value.dtype)) if value.shape == targets.shape and value.ndim == 1 else value

    def exact(self, outputs: Any, targets: Any) -> tuple[float, float] | None:
        """Return sum and weight of a batch by which means of batches make up the mean of all labels, as if of samples.

        None where all samples count alike, or the loss is no mean: its value is right as it is.
        """
        if self.function is None or not self._is_mean or not torch.is_tensor(targets) or targets.is_floating_point():
            return None
        weight = self.options.get("weight")
        counts = (targets != self.ignored).double()
        if weight is None and bool(counts.all()):
            return None
        if weight is not None:
            counts *= weight[torch.where(counts > 0.0, targets, 0)]
        losses = self.function(outputs, targets, **self.options | {"reduction": "none"})
        labels = targets[0].numel()
        return float(losses.double().sum()) / labels, float(counts.sum()) / labels

    @property
    def _is_mean(self) -> bool:
        return bool(self.options.get("reduction", "mean") == "mean")
