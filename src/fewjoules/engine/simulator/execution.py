"""Execution of a run: clients as a stack or one by one, and how many at a time. It depends on shapes, not on timing."""

import math
import warnings
from dataclasses import dataclass

import torch
from torch import nn

from fewjoules.engine.models.layout import averaged_buffers
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.models.objective import Objective
from fewjoules.engine.simulator.federation import SampleSource, first_of
from fewjoules.engine.simulator.probe import probed
from fewjoules.engine.simulator.stack.trial import TRIAL_SAMPLES, Trial
from fewjoules.errors import FewJoulesWarning

_CACHED_FLOATS = 1 << 20  # activations of a chunk on a processor; a single client with more trains alone
_WORTH_A_STACK = 4  # clients that must fit into the cache of a processor; else they train faster without vmap
_SMALLEST_STACK = 3  # on a processor; two clients train faster one by one
_FEW_CONSTANTS = 0.01  # numbers for each weight that may be sent in vain without a warning
_GPU_SHARE = 0.4  # share of a GPU's memory that a chunk in training may take
_KEPT_COPIES = 6  # copies of each activation that live at once: patches, gradients, tensors saved for backward
_WEIGHT_COPIES = 5  # copies of a client's weights: before and after a step, gradient, velocity, update
_MIXED = "the loss of a sample depends on the rest of its batch, and clients have batches of different sizes"


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
    loss: Loss | Objective,
    samples: SampleSource,
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
        probed(model, loss, samples, 1)
    return chosen


def _chosen(
    model: nn.Module,
    loss: Loss | Objective,
    samples: SampleSource,
    clients: int,
    batch: int,
    equal_batches: bool,
    chunk: int | None,
) -> Execution:
    probe = probed(model, loss, samples)
    averaged = averaged_buffers(model)
    _warn_of_lost(model, [name for name in probe.written if name not in averaged])
    _warn_of_constant(model, {name: one.numel() for name, one in averaged.items() if name not in probe.written})
    floats = max(1, probe.activations * batch)
    tried = max(2, min(batch, TRIAL_SAMPLES)) if equal_batches else TRIAL_SAMPLES
    trial = Trial(model, loss, first_of(samples, tried))
    reason = trial.problem(probe.written)
    if reason is None and probe.scalar and not equal_batches:
        reason = "its loss is one number per batch, and clients have batches of different sizes"
    if reason is None:
        stacked, together = _chunk(model, samples.device, clients, floats, chunk)
        if stacked:
            reason = trial.difference(seeded=probe.seeded)
            if reason is None and not equal_batches and trial.mixes_samples(seeded=probe.seeded):
                reason = _MIXED
        if reason is None:
            return Execution(stacked=stacked, chunk=together, seeded=probe.seeded, activations=floats)
    warnings.warn(f"clients train one by one, which is slower: {reason}", FewJoulesWarning, stacklevel=4)
    return Execution(stacked=False, chunk=1, seeded=probe.seeded, activations=floats)


def _chunk(model: nn.Module, device: torch.device, clients: int, floats: int, wanted: int | None) -> tuple[bool, int]:
    """Return whether to stack clients that can be stacked, and how many at a time; a client gives so many floats."""
    if wanted is not None:
        chunk = min(wanted, clients)
        return chunk > 1, chunk
    if device.type == "cuda":
        total = torch.cuda.mem_get_info(device)[1]
        fitting = gpu_chunk(total, activations=floats, weights=sum(p.numel() for p in model.parameters()))
        return True, min(fitting, clients)
    if any(isinstance(module, nn.LSTM) for module in model.modules()):  # PyTorch's own beats a stack of cells here
        return False, 1
    cached = _CACHED_FLOATS // floats
    chunk = min(cached, math.ceil(clients / 2))  # never by the number of threads
    stacked = cached >= _WORTH_A_STACK and chunk >= _SMALLEST_STACK
    return stacked, chunk if stacked else 1


def _warn_of_lost(model: nn.Module, written: list[str]) -> None:
    """Warn of buffers of the model's state that do not keep what the model writes to them, but for counts."""
    state = model.state_dict()
    lost = [name for name in written if name in state and state[name].is_floating_point()]
    if lost:
        warnings.warn(
            f"the model writes to {', '.join(lost)}, which stays at its first values: "
            "only buffers of float32 are sent and averaged",
            FewJoulesWarning,
            stacklevel=5,
        )


def _warn_of_constant(model: nn.Module, numbers: dict[str, int]) -> None:
    """Warn of buffers, with so many numbers each, that every message carries although training does not change them."""
    weights = sum(one.numel() for one in model.parameters() if one.requires_grad)
    total, first = sum(numbers.values()), next(iter(numbers), "")
    if total > _FEW_CONSTANTS * weights:
        named = first if len(numbers) == 1 else f"{first} and {len(numbers) - 1} more"
        warnings.warn(
            f"every message carries {total:,} numbers that the model's first step does not change, those of {named}, "
            f"beside entries of {weights:,} weights: a buffer registered with persistent=False is not sent",
            FewJoulesWarning,
            stacklevel=5,
        )


def gpu_chunk(total_bytes: int, *, activations: int, weights: int) -> int:
    """Return how many clients fit into the memory of a GPU at a time, at least one; sizes are floats per client."""
    return max(1, int(_GPU_SHARE * total_bytes / (4 * (_KEPT_COPIES * activations + _WEIGHT_COPIES * weights))))
