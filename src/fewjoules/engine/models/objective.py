"""What a training minimises: one function or several with weights, of a model's outputs or of the model itself."""

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fewjoules.engine.models.labels import IGNORED_LABEL, ClassLoss, LabelRule
from fewjoules.engine.models.loss import Loss, Value, cross_entropy, mean_of, mean_over_tokens, normal
from fewjoules.engine.models.tree import Tree, call, floats, leaves
from fewjoules.errors import InvalidInputError, require_number, shown

_MODEL_AND_BATCH = ("model", "batch")


@dataclass(frozen=True, slots=True)
class Measure:
    """A named function of (outputs, targets), or of (model, batch) if it ``takes_model``.

    ``classes`` is what is known of it if it is a loss of PyTorch that takes labels as classes.
    """

    name: str
    function: Callable[[Any, Any], Any]
    takes_model: bool
    classes: ClassLoss | None = None

    @classmethod
    def of(cls, what: str, name: str, function: Any) -> "Measure":
        """Tell the two kinds apart by the names of the parameters; refuse what is not clearly one of them."""
        if not callable(function):
            raise InvalidInputError(f"{what} must be a function, got {shown(function)}")
        names = _parameter_names(function)
        fitting = [name in names[:2] for name in _MODEL_AND_BATCH]
        if any(fitting) and names[:2] != _MODEL_AND_BATCH:
            raise InvalidInputError(
                f"{what} must be a function of (outputs, targets) or, with these names, of (model, batch); "
                f"got parameters ({', '.join(names)})"
            )
        return cls(name, function, all(fitting), ClassLoss.of(function))

    def value(self, net: nn.Module, outputs: Any, inputs: Tree, targets: Tree | None, rule: LabelRule) -> Any:
        """Return what the function says of a batch, which is its inputs alone where there are no targets."""
        if self.takes_model:
            return normal(self.function(net, inputs if targets is None else (inputs, targets)), targets, rule)
        value = normal(self.function(outputs, targets), targets, rule)
        return value if self.classes is None else self.classes.settled(value, targets)


@dataclass(frozen=True, slots=True)
class Objective:
    """A weighted sum of losses."""

    terms: tuple[Measure, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, loss: "Loss | Objective") -> "Objective":
        """Return the objective of a function, or of a mapping of names to functions or to (function, weight)."""
        if isinstance(loss, Objective):
            return loss
        if not isinstance(loss, Mapping):
            return cls((Measure.of("loss", "loss", loss),), (1.0,))
        if not loss:
            raise InvalidInputError("loss must have at least one function, got an empty mapping")
        terms, weights = [], []
        for name, given in loss.items():
            what = f"loss[{name!r}]"
            function, weight = given if isinstance(given, tuple) and len(given) == 2 else (given, 1.0)
            terms.append(Measure.of(what, str(name), function))
            weights.append(require_number(f"the weight of {what}", weight, low=0.0))
        return cls(tuple(terms), tuple(weights))

    @property
    def named(self) -> str:
        """The names of its functions, with their weights where there are several."""
        names = [_named(term) for term in self.terms]
        if self.weights == (1.0,):
            return names[0]
        return " + ".join(f"{weight!r} {name}" for weight, name in zip(self.weights, names, strict=True))

    @property
    def rule(self) -> LabelRule:
        """Which labels count, by the losses that take them as classes; refuse losses that disagree."""
        usual = any(term.function is cross_entropy for term in self.terms)
        known = [term.classes.ignored for term in self.terms if term.classes is not None]
        if not usual and not known:
            return LabelRule(judged=False, single=True)
        ignored = sorted({*known, *([IGNORED_LABEL] if usual else [])})
        if len(ignored) > 1:
            raise InvalidInputError(f"all losses must have the same ignore_index, got {ignored[0]} and {ignored[1]}")
        return LabelRule(ignored[0], single=not usual)

    @property
    def needs_outputs(self) -> bool:
        """Whether a loss is a function of (outputs, targets)."""
        return any(not term.takes_model for term in self.terms)

    def total(self, values: Sequence[Value], weights: torch.Tensor | None) -> torch.Tensor:
        """Return the weighted sum of the means over a batch, whose samples have these weights."""
        means = [mean_of(value, weights) for value in values]
        if self.weights == (1.0,):
            return means[0]
        return torch.stack([factor * mean for factor, mean in zip(self.weights, means, strict=True)]).sum()


class Judged(nn.Module):
    """A network with its objective as one module, so that weights put in its place reach both."""

    def __init__(self, net: nn.Module, objective: Objective, *, bfloat16: bool = False, whole: bool = False) -> None:
        """Share the network; ``whole``: every sample of a batch counts, so that only means are needed."""
        super().__init__()
        self.net, self.objective, self.mixed, self.whole = net, objective, bfloat16, whole
        self.rule = objective.rule

    def forward(self, inputs: Tree, targets: Tree | None) -> tuple[list[Value], Any]:
        """Return what each loss says of a batch, and the outputs; None if no loss needs them."""
        outputs = self.outputs(inputs) if self.objective.needs_outputs else None
        return self.values(outputs, inputs, targets), outputs

    def outputs(self, inputs: Tree) -> Any:
        """Return the outputs of the network as float32."""
        if not self.mixed:
            return floats(call(self.net, inputs))
        with self._precision(inputs):
            found = call(self.net, inputs)
        return floats(found)

    def values(self, outputs: Any, inputs: Tree, targets: Tree | None) -> list[Value]:
        """Return what each loss says of a batch; the forward pass of a loss of (model, batch) is in the precision."""
        found = []
        for term in self.objective.terms:
            if self.whole and term.function is cross_entropy and torch.is_tensor(targets) and targets.ndim > 1:
                found.append(mean_over_tokens(outputs, targets))
                continue
            with self._precision(inputs) if term.takes_model else contextlib.nullcontext():
                found.append(term.value(self.net, outputs, inputs, targets, self.rule))
        return [floats(value) for value in found]

    def _precision(self, inputs: Tree) -> Any:
        if not self.mixed:
            return contextlib.nullcontext()
        return torch.autocast(leaves(inputs)[0].device.type, torch.bfloat16)


def _named(term: Measure) -> str:
    name = str(getattr(term.function, "__qualname__", type(term.function).__qualname__))
    ignored = IGNORED_LABEL if term.classes is None else term.classes.ignored
    return name if ignored == IGNORED_LABEL else f"{name}(ignore_index={ignored})"


def _parameter_names(function: Any) -> tuple[str, ...]:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function that is not written in Python
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(one.name for one in found if one.kind in positional)
