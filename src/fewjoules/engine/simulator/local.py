"""Local training: H steps for a chunk of clients, whose weights are the rows of one matrix."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.engine.algorithm.client import local_step
from fewjoules.engine.simulator.cpu.single import SingleModel
from fewjoules.engine.simulator.stack.model import ClientModel


@dataclass(frozen=True, slots=True)
class Samples:
    """All training samples on one device; clients refer to them by number."""

    inputs: torch.Tensor
    targets: torch.Tensor


@dataclass(frozen=True, slots=True)
class Batches:
    """Sample numbers with their weights, (steps, clients, batch), and the step sizes, (steps,)."""

    numbers: IntArray
    weights: NDArray[np.float32]
    rates: FloatArray

    def of(self, part: slice) -> "Batches":
        """Those of some clients, no wider than their largest batch."""
        width = int((self.weights[:, part] > 0.0).sum(axis=2).max())
        return Batches(self.numbers[:, part, :width], self.weights[:, part, :width], self.rates)


@dataclass(frozen=True, slots=True)
class Progress:
    """Loss and share of right answers (NaN where there are no classes) of each step and client."""

    losses: torch.Tensor
    correct: torch.Tensor


def train_stack(
    model: ClientModel, samples: Samples, batches: Batches, local: torch.Tensor, buffers: torch.Tensor, momentum: float
) -> Progress:
    """Line 6 of the algorithm for all clients of the chunk at once; ``local`` and ``buffers`` are changed in place."""
    numbers = torch.from_numpy(batches.numbers).to(local.device)
    weights = torch.from_numpy(batches.weights).to(local.device)
    rates = batches.rates.tolist()
    views, statistics = model.parameters.views(local), model.buffers.views(buffers)
    velocities = list(model.parameters.views(torch.zeros_like(local)).values()) if momentum else []
    progress = Progress(*torch.empty((2, *numbers.shape[:2]), device=local.device))
    for step in range(len(rates)):
        inputs, targets = samples.inputs[numbers[step]], samples.targets[numbers[step]]
        gradients, losses, correct, new = model.gradients(views, statistics, inputs, targets, weights[step])
        local_step(list(views.values()), gradients, rates[step], velocities, momentum)
        for name, buffer in statistics.items():
            buffer.copy_(new[name])
        progress.losses[step], progress.correct[step] = losses, correct
    return progress


def train_one(
    model: SingleModel, samples: Samples, batches: Batches, local: torch.Tensor, buffers: torch.Tensor, momentum: float
) -> Progress:
    """The same for a chunk of one client, without vmap and without padding."""
    model.start(local[0], buffers[0])
    velocities = [torch.zeros_like(p) for p in model.parameters] if momentum else []
    progress = Progress(*torch.empty((2, len(batches.rates), 1), device=local.device))
    for step, rate in enumerate(batches.rates.tolist()):
        used = batches.weights[step, 0] > 0.0
        numbers = torch.from_numpy(batches.numbers[step, 0][used]).to(local.device)
        gradients, loss, correct = model.gradients(samples.inputs[numbers], samples.targets[numbers])
        with torch.no_grad():
            local_step(list(model.parameters), gradients, rate, velocities, momentum)
        progress.losses[step, 0], progress.correct[step, 0] = loss, correct
    model.finish(local[0], buffers[0])
    return progress
