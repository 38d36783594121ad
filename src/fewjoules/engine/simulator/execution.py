"""Execution of a run: clients as a stack or one by one, and how many at a time. It depends on shapes, not on timing."""

import copy
import math
import warnings
from dataclasses import dataclass

import torch
from torch import nn

from fewjoules.engine.models.loss import Loss
from fewjoules.engine.simulator.federation import Samples
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.errors import FewJoulesWarning, InvalidInputError

_CACHED_FLOATS = 1 << 20  # activations of a chunk on a processor; a single client with more trains alone
_GPU_SHARE = 0.4  # share of a GPU's memory that a chunk in training may take
_KEPT_COPIES = 6  # copies of each activation that live at once: patches, gradients, tensors saved for backward
_WEIGHT_COPIES = 5  # copies of a client's weights: before and after a step, gradient, velocity, update


@dataclass(frozen=True, slots=True)
class Execution:
    """How clients are trained: ``chunk`` at a time, ``stacked`` by vmap or not; ``seeded``: the model draws numbers.

    ``activations`` are the floats that the layers of one client give for a batch.
    """

    stacked: bool
    chunk: int
    seeded: bool
    activations: int

    @property
    def name(self) -> str:
        """Description for people."""
        return f"stacked, {self.chunk} clients at a time" if self.stacked else "one by one"


def choose_execution(
    model: nn.Module,
    loss: Loss,
    samples: Samples,
    *,
    clients: int,
    batch: int,
    smallest_batch: int,
    equal_batches: bool,
    chunk: int | None,
) -> Execution:
    """Check that model, loss and data fit together, and choose how to train them."""
    chosen = _chosen(model, loss, samples, clients, batch, equal_batches, chunk)
    if chosen.chunk == 1 and smallest_batch == 1:  # without a stack, batch normalisation refuses a single sample
        _probe(model, samples.inputs[:1])
    return chosen


def _chosen(
    model: nn.Module, loss: Loss, samples: Samples, clients: int, batch: int, equal_batches: bool, chunk: int | None
) -> Execution:
    few = slice(0, min(2, len(samples.targets)))
    inputs, targets = samples.inputs[few], samples.targets[few]
    activations, seeded, outputs = _probe(model, inputs)
    scalar = require_fit(outputs, targets, samples, loss)
    floats = max(1, activations * batch)
    reason = _vectorisation_problem(model, loss, inputs, targets)
    if reason is None and scalar and not equal_batches:
        reason = "its loss is one number per batch, and clients have batches of different sizes"
    if reason is not None:
        warnings.warn(f"clients train one by one, which is slower: {reason}", FewJoulesWarning, stacklevel=4)
        return Execution(stacked=False, chunk=1, seeded=seeded, activations=floats)
    if chunk is not None:
        return Execution(stacked=True, chunk=min(chunk, clients), seeded=seeded, activations=floats)
    if samples.inputs.is_cuda:
        total = torch.cuda.mem_get_info(samples.inputs.device)[1]
        fitting = gpu_chunk(total, activations=floats, weights=sum(p.numel() for p in model.parameters()))
        return Execution(stacked=True, chunk=min(fitting, clients), seeded=seeded, activations=floats)
    chunk = min(_CACHED_FLOATS // floats, math.ceil(clients / 2))  # never by the number of threads
    return Execution(stacked=chunk > 1, chunk=max(1, chunk), seeded=seeded, activations=floats)


def gpu_chunk(total_bytes: int, *, activations: int, weights: int) -> int:
    """Return how many clients fit into the memory of a GPU at a time, at least one; sizes are floats per client."""
    return max(1, int(_GPU_SHARE * total_bytes / (4 * (_KEPT_COPIES * activations + _WEIGHT_COPIES * weights))))


def _probe(model: nn.Module, inputs: torch.Tensor) -> tuple[int, bool, torch.Tensor]:
    """Run the model once: return the activations of one sample, whether it draws random numbers, and its outputs."""
    probe = copy.deepcopy(model).to(inputs.device).train()
    counts: list[int] = []
    hooks = [
        module.register_forward_hook(lambda _m, _i, out: counts.append(out.numel() if torch.is_tensor(out) else 0))
        for module in probe.modules()
        if not list(module.children())
    ]
    devices = [inputs.device] if inputs.is_cuda else []
    try:
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            before = _rng_states(devices)
            outputs = probe(inputs)
            seeded = any(not torch.equal(old, new) for old, new in zip(before, _rng_states(devices), strict=True))
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise InvalidInputError(
            f"the model cannot take inputs of shape {tuple(inputs.shape[1:])} in batches: {reason}"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    return sum(counts) // inputs.shape[0], seeded, outputs


def _rng_states(devices: list[torch.device]) -> list[torch.Tensor]:
    return [torch.random.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]


def require_fit(outputs: torch.Tensor, targets: torch.Tensor, samples: Samples, loss: Loss) -> bool:
    """Refuse a model whose outputs do not fit the targets; return whether the loss is one number per batch."""
    if not torch.is_tensor(outputs) or outputs.shape[:1] != targets.shape[:1]:
        got = tuple(outputs.shape) if torch.is_tensor(outputs) else type(outputs).__name__
        raise InvalidInputError(f"the model must give one output per sample, got {got} for {len(targets)} samples")
    _require_outputs(outputs, samples.targets)
    try:
        losses = loss(outputs.float(), targets)
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise InvalidInputError(
            f"the loss cannot take outputs of shape {tuple(outputs.shape)} and targets of shape "
            f"{tuple(targets.shape)}: {reason}"
        ) from error
    if losses.ndim > 1 or (losses.ndim == 1 and len(losses) != len(targets)):
        raise InvalidInputError(f"the loss must be one number or one per sample, got shape {tuple(losses.shape)}")
    return losses.ndim == 0


def require_labels(model: nn.Module, samples: Samples) -> None:
    """Refuse samples with labels for which the model has no output."""
    _, _, outputs = _probe(model, samples.inputs[:2])
    _require_outputs(outputs, samples.targets)


def _require_outputs(outputs: torch.Tensor, targets: torch.Tensor) -> None:
    if outputs.ndim == 2 and targets.ndim == 1 and not targets.is_floating_point():
        largest, classes = int(targets.max()), outputs.shape[1]
        if largest >= classes:
            raise InvalidInputError(
                f"the model must have an output for each label up to {largest}, got {classes} outputs"
            )


def _vectorisation_problem(model: nn.Module, loss: Loss, inputs: torch.Tensor, targets: torch.Tensor) -> str | None:
    """Return why vmap cannot train this model, or None if it can."""
    trial = ClientModel(model, loss, inputs.device)
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in trial.net.modules()):
        return "it has batch normalisation with a cumulative average or hooks"
    weights = torch.full((2, len(targets)), 1.0 / len(targets), device=inputs.device)
    parameters = trial.parameters.views(trial.initial_weights.repeat(2, 1))
    flat = trial.initial_buffers.repeat(2, 1)
    before = torch.random.get_rng_state()
    two = (torch.stack([inputs, inputs]), torch.stack([targets, targets]), weights)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial.gradients(parameters, trial.buffers.views(flat), *two)
    except Exception as error:
        return "vmap cannot run the model: " + str(error).split("\n")[0][:200]
    finally:
        torch.random.set_rng_state(before)
    if not torch.equal(flat, trial.initial_buffers.repeat(2, 1)):
        return "the model writes to its buffers"
    return None
