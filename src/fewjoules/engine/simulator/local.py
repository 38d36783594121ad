"""Local training: H steps for a chunk of clients, whose weights are the rows of one matrix."""

from dataclasses import dataclass
from typing import Any

import torch

from fewjoules.engine.algorithm.inner import Moments, step_in_place
from fewjoules.engine.algorithm.rule import InnerRule
from fewjoules.engine.models.layout import Layout
from fewjoules.engine.simulator.cpu.single import SingleModel
from fewjoules.engine.simulator.federation import Batches, SampleSource
from fewjoules.engine.simulator.stack.model import ClientModel


@dataclass(slots=True)
class Chunk:
    """Clients in training: weights and buffers are (clients, size), and so are moments if clients keep them.

    ``steps`` is the number of local steps that each client has taken before, (clients,).
    """

    weights: torch.Tensor
    buffers: torch.Tensor
    steps: torch.Tensor
    velocity: torch.Tensor | None = None
    squares: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Loss and accuracy (NaN where there are no classes) of each local step and client."""

    losses: torch.Tensor
    correct: torch.Tensor


def train_stack(model: ClientModel, samples: SampleSource, batches: Batches, chunk: Chunk, rule: InnerRule) -> Progress:
    """Take all local steps (line 6) of the chunk's clients at once; the chunk is changed in place."""
    device = chunk.weights.device
    numbers = torch.from_numpy(batches.numbers)
    numbers = numbers.to(device) if samples.resident else numbers
    weights = torch.from_numpy(batches.weights).to(device)
    views, statistics = model.parameters.views(chunk.weights), model.buffers.views(chunk.buffers)
    parameters = list(views.values())
    moments = _started(chunk, rule, model.parameters, parameters, chunk.steps)
    progress = Progress(*torch.empty((2, *numbers.shape[:2]), device=device))
    for step, rate in enumerate(batches.rates.tolist()):
        batch = samples.take(numbers[step])
        gradients, losses, correct, new = model.gradients(views, statistics, *batch, weights[step])
        step_in_place(parameters, gradients, rate, rule, moments, stacked=True)
        for name, buffer in statistics.items():
            buffer.copy_(new[name])
        progress.losses[step], progress.correct[step] = losses, correct
    _finished(chunk, moments, model.parameters)
    return progress


def train_one(model: SingleModel, samples: SampleSource, batches: Batches, chunk: Chunk, rule: InnerRule) -> Progress:
    """Take all local steps (line 6) of a chunk of one client, without vmap and without padding."""
    device = chunk.weights.device
    model.start(chunk.weights[0], chunk.buffers[0])
    moments = _started(chunk, rule, model.layout, model.parameters, int(chunk.steps[0]))
    progress = Progress(*torch.empty((2, len(batches.rates), 1), device=device))
    for step, rate in enumerate(batches.rates.tolist()):
        used = batches.weights[step, 0] > 0.0
        batch = samples.take(torch.from_numpy(batches.numbers[step, 0][used]))
        gradients, loss, correct = model.gradients(*batch)
        with torch.no_grad():
            step_in_place(model.parameters, gradients, rate, rule, moments, stacked=False)
        progress.losses[step, 0], progress.correct[step, 0] = loss, correct
    model.finish(chunk.weights[0], chunk.buffers[0])
    _finished(chunk, moments, model.layout)
    return progress


def _started(chunk: Chunk, rule: InnerRule, layout: Layout, parameters: list[torch.Tensor], steps: Any) -> Moments:
    """Return moments shaped like the parameters: those that the clients kept, or zeros before the first step."""
    kept = chunk.velocity is not None
    moments = Moments(steps=steps if kept else 0)
    for name in rule.moments:
        found = [torch.zeros_like(parameter) for parameter in parameters]
        flat = getattr(chunk, name)
        if flat is not None:
            for tensor, view in zip(found, layout.views(flat).values(), strict=True):
                tensor.copy_(view.reshape(tensor.shape))
        setattr(moments, name, found)
    return moments


@torch.no_grad()
def _finished(chunk: Chunk, moments: Moments, layout: Layout) -> None:
    for name in ("velocity", "squares"):
        flat = getattr(chunk, name)
        if flat is not None:
            for tensor, view in zip(getattr(moments, name), layout.views(flat).values(), strict=True):
                view.copy_(tensor.reshape(view.shape))
