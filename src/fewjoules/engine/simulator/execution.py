"""Execution of a run: clients as a stack or one by one, and how many at a time. It depends on shapes, not on timing."""

import math
import warnings
from dataclasses import dataclass

import torch
from torch import nn

from fewjoules.engine.models.loss import Loss
from fewjoules.engine.models.objective import Objective
from fewjoules.engine.models.tree import Tree, leaves, map_tree
from fewjoules.engine.simulator.federation import SampleSource, first_of
from fewjoules.engine.simulator.probe import probed
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.errors import FewJoulesWarning

_CACHED_FLOATS = 1 << 20  # activations of a chunk on a processor; a single client with more trains alone
_WORTH_A_STACK = 4  # clients that must fit into a chunk on a processor; else they train faster without vmap
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
    inputs, targets = first_of(samples, 2)
    probe = probed(model, loss, samples)
    seeded, floats = probe.seeded, max(1, probe.activations * batch)
    reason = _vectorisation_problem(model, loss, inputs, targets)
    if reason is None and probe.scalar and not equal_batches:
        reason = "its loss is one number per batch, and clients have batches of different sizes"
    if reason is not None:
        warnings.warn(f"clients train one by one, which is slower: {reason}", FewJoulesWarning, stacklevel=4)
        return Execution(stacked=False, chunk=1, seeded=seeded, activations=floats)
    if chunk is not None:
        chunk = min(chunk, clients)
        return Execution(stacked=chunk > 1, chunk=chunk, seeded=seeded, activations=floats)
    if samples.device.type == "cuda":
        total = torch.cuda.mem_get_info(samples.device)[1]
        fitting = gpu_chunk(total, activations=floats, weights=sum(p.numel() for p in model.parameters()))
        return Execution(stacked=True, chunk=min(fitting, clients), seeded=seeded, activations=floats)
    if any(isinstance(module, nn.LSTM) for module in model.modules()):  # PyTorch's own beats a stack of cells here
        return Execution(stacked=False, chunk=1, seeded=seeded, activations=floats)
    cached = _CACHED_FLOATS // floats
    chunk = 1 if cached < _WORTH_A_STACK else min(cached, math.ceil(clients / 2))  # never by the number of threads
    return Execution(stacked=chunk > 1, chunk=max(1, chunk), seeded=seeded, activations=floats)


def gpu_chunk(total_bytes: int, *, activations: int, weights: int) -> int:
    """Return how many clients fit into the memory of a GPU at a time, at least one; sizes are floats per client."""
    return max(1, int(_GPU_SHARE * total_bytes / (4 * (_KEPT_COPIES * activations + _WEIGHT_COPIES * weights))))


def _vectorisation_problem(model: nn.Module, loss: Loss | Objective, inputs: Tree, targets: Tree | None) -> str | None:
    """Return why vmap cannot train this model, or None if it can."""
    first = leaves(inputs)[0]
    trial = ClientModel(model, loss, first.device)
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in trial.net.modules()):
        return "it has batch normalisation with a cumulative average or hooks"
    cells = {name: one for name, one in trial.net.named_modules() if isinstance(one, nn.RNNCellBase)}
    for name, cell in cells.items():  # vmap refuses some; others it calls for each client, slower than without it
        return f"vmap cannot run {name} of the model ({type(cell).__name__}) for several clients at once"
    weights = torch.full((2, len(first)), 1.0 / len(first), device=first.device)
    parameters = trial.parameters.views(trial.initial_weights.repeat(2, 1))
    flat = trial.initial_buffers.repeat(2, 1)
    before = torch.random.get_rng_state()
    two = [None if tree is None else map_tree(_twice, tree) for tree in (inputs, targets)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial.gradients(parameters, trial.buffers.views(flat), two[0], two[1], weights)
    except Exception as error:
        return f"vmap cannot run {_culprit(error, trial.net)}: " + str(error).split("\n")[0].partition(". ")[0][:200]
    finally:
        torch.random.set_rng_state(before)
    if not torch.equal(flat, trial.initial_buffers.repeat(2, 1)):
        return "the model writes to its buffers"
    return None


def _culprit(error: Exception, net: nn.Module) -> str:
    """Name the innermost module of a network in which an error was raised."""
    names = {id(module): name for name, module in net.named_modules()}
    found, trace = "the model", error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_locals.get("self")
        if isinstance(module, nn.Module) and names.get(id(module)):
            found = f"{names[id(module)]} of the model ({type(module).__name__})"
        trace = trace.tb_next
    return found


def _twice(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack([tensor, tensor])
