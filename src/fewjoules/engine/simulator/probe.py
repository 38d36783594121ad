"""One forward pass before training: whether model, loss and samples fit together, and what a sample takes."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fewjoules.engine.models.frozen import bits
from fewjoules.engine.models.labels import LabelRule
from fewjoules.engine.models.layout import averaged_buffers, buffer_places, copied, require_shape
from fewjoules.engine.models.loss import Loss, Value, class_count, scores, shape_problem
from fewjoules.engine.models.objective import Judged, Objective
from fewjoules.engine.models.tree import Tree, described, leaves
from fewjoules.engine.simulator.federation import SampleSource, first_of
from fewjoules.engine.simulator.read_samples import ReadSamples
from fewjoules.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Probe:
    """What a forward pass showed: floats that the layers give for a sample, and whether random numbers were drawn.

    ``scalar``: a loss is one number for the whole batch. ``written``: buffers that the pass changed.
    """

    activations: int
    seeded: bool
    scalar: bool
    written: tuple[str, ...]


@torch.enable_grad()
def probed(model: nn.Module, loss: Loss | Objective, samples: SampleSource, count: int = 2) -> Probe:
    """Run a copy of the model and its loss on the first samples; refuse what does not fit."""
    inputs, targets = first_of(samples, count)
    first, objective = leaves(inputs)[0], Objective.of(loss)
    judged = Judged(copied(model).to(first.device), objective)
    judged.net.train()
    buffers = {name: None if one is None else one.clone() for name, one in _buffers(judged.net).items()}
    sent = averaged_buffers(judged.net).keys()
    counts: list[int] = []
    for module in judged.net.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda _m, _i, out: counts.append(_entries(out)))
    devices = [first.device] if first.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        before = rng_states(devices)
        outputs = _outputs(judged, inputs) if objective.needs_outputs else None
        if judged.rule.judged:
            _require_labels(outputs, targets, samples, judged.rule)
        values = _values(judged, outputs, inputs, targets)
        if not objective.total(values, None).requires_grad:
            raise InvalidInputError("the loss must depend on the weights that are trained, got one without a gradient")
        seeded = any(not torch.equal(old, new) for old, new in zip(before, rng_states(devices), strict=True))
    scalar = any(torch.is_tensor(value) and value.ndim == 0 for value in values)
    after = _buffers(judged.net)
    written = tuple(name for name, one in after.items() if not _same(buffers.get(name), one))
    for name in filter(sent.__contains__, written):
        require_shape(name, buffers.get(name), after[name])
    return Probe(sum(counts) // len(first), seeded, scalar, written)


def _buffers(net: nn.Module) -> dict[str, torch.Tensor | None]:
    """Return all buffers of a model by name, also those that are None, but for sparse ones."""
    found = {name: module._buffers[own_name] for name, module, own_name in buffer_places(net)}
    return {name: one for name, one in found.items() if one is None or one.layout == torch.strided}


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(bits(one), bits(other))


def _require_labels(outputs: Any, targets: Tree | None, samples: SampleSource, rule: LabelRule) -> None:
    """Refuse labels for which the model has no output."""
    classes, labels = class_count(outputs, targets, rule), samples.label_range(rule)
    if classes is not None and labels is None and isinstance(samples, ReadSamples):
        samples.classes = classes  # by which labels are checked when they are read
    if classes is not None and labels is not None and labels[1] >= classes:
        raise InvalidInputError(
            f"the model must have an output for each label up to {labels[1]}, got {classes} outputs"
        )


def _outputs(judged: Judged, inputs: Tree) -> Any:
    count = len(leaves(inputs)[0])
    try:
        outputs = judged.outputs(inputs)
    except Exception as error:
        raise InvalidInputError(
            f"the model cannot take inputs that are {described(inputs)} in batches: {_first_line(error)}"
        ) from error
    found = scores(outputs)
    if found is not None and found.shape[:1] != (count,):
        raise InvalidInputError(
            f"the model must give one output per sample, got {tuple(found.shape)} for {count} samples"
        )
    return outputs


def _values(judged: Judged, outputs: Any, inputs: Tree, targets: Tree | None) -> list[Value]:
    """Return what each loss says of the samples; refuse losses that fail or have another shape."""
    if targets is None and judged.objective.needs_outputs:
        raise InvalidInputError(
            "a loss of (outputs, targets) needs targets, and the samples have none; "
            "a loss that takes (model, batch) works without them"
        )
    try:
        values = judged.values(outputs, inputs, targets)
    except InvalidInputError:
        raise
    except Exception as error:
        taken = "the model and a batch of inputs" if outputs is None else f"outputs {_said(outputs)}"
        told = f"{taken} that are {described(inputs, 0)}" if outputs is None else taken
        also = "" if targets is None else f" and targets that are {described(targets, 0)}"
        raise InvalidInputError(f"the loss cannot take {told}{also}: {_first_line(error)}") from error
    for term, value in zip(judged.objective.terms, values, strict=True):
        problem = shape_problem(value, len(leaves(inputs)[0]))
        if problem is not None:
            name = "the loss" if term.name == "loss" else f"the loss {term.name!r}"
            raise InvalidInputError(f"{name} {problem}")
    return values


def _said(outputs: Any) -> str:
    return f"that are {described(outputs, 0)}" if torch.is_tensor(outputs) else f"of type {type(outputs).__name__}"


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]


def _entries(output: Any) -> int:
    """Count the numbers that a layer gives; a recurrent one gives its hidden states and its last state."""
    if isinstance(output, tuple):
        return sum(_entries(part) for part in output)
    return output.numel() if torch.is_tensor(output) else 0


def rng_states(devices: list[torch.device]) -> list[torch.Tensor]:
    """Return the states of PyTorch's random numbers, on the processor and on these GPUs."""
    return [torch.random.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]
