"""Local training of a chunk of clients on a GPU: one step compiled, all steps of a round recorded as one CUDA graph."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fedjoule.engine.algorithm import local_step
from fedjoule.engine.local import Batches, Progress, Samples
from fedjoule.engine.stack import ClientModel
from fedjoule.errors import FedJouleWarning

_WARM_UP = 2


class RecordedSteps:
    """H steps for up to ``clients`` clients and batches of up to ``batch`` samples, started by one call.

    ``updates`` then holds w - v of each client. Missing clients and samples have weight zero.
    """

    def __init__(
        self,
        model: ClientModel,
        samples: Samples,
        clients: int,
        steps: int,
        batch: int,
        momentum: float,
        compiled: bool,
    ) -> None:
        """Allocate, compile and record; the first two rounds' worth of steps are run on scratch data."""
        device = samples.inputs.device
        self.model, self.samples, self.momentum, self.batch = model, samples, momentum, batch
        # one contiguous tensor for each parameter: the kernels that change many at once need it
        self.local = {
            n: t.repeat(clients, *[1] * t.ndim) for n, t in model.parameters.views(model.initial_weights).items()
        }
        self.buffers = {
            n: t.repeat(clients, *[1] * t.ndim) for n, t in model.buffers.views(model.initial_buffers).items()
        }
        self.start_weights, self.start_buffers = model.initial_weights.clone(), model.initial_buffers.clone()
        self.updates = torch.empty((clients, model.parameters.size), device=device)
        self.velocities = [torch.zeros_like(t) for t in self.local.values()] if momentum else []
        self.numbers = torch.zeros((steps, clients, batch), dtype=torch.int64, device=device)
        self.weights = torch.full((steps, clients, batch), 1.0 / batch, device=device)
        self.rates = torch.zeros(steps, device=device)
        self.progress = Progress(*torch.empty((2, steps, clients), device=device))
        self._gradients = self._traced(compiled)
        self._graph = self._recorded()

    def run(self, weights: torch.Tensor, buffers: torch.Tensor, batches: Batches) -> tuple[torch.Tensor, torch.Tensor]:
        """Train all clients from these global weights and buffers; the losses and right answers of each step."""
        rows, width = batches.numbers.shape[1:]
        self.start_weights.copy_(weights)
        self.start_buffers.copy_(buffers)
        if batches.numbers.shape != self.numbers.shape:
            self.numbers.zero_()
            self.weights.zero_()
        self.numbers[:, :rows, :width].copy_(torch.from_numpy(batches.numbers), non_blocking=True)
        self.weights[:, :rows, :width].copy_(torch.from_numpy(batches.weights), non_blocking=True)
        self.rates.copy_(torch.from_numpy(batches.rates.astype(np.float32)), non_blocking=True)
        self._graph.replay()
        return self.progress.losses, self.progress.correct

    def new_buffers(self) -> torch.Tensor:
        """The buffers of every client, as rows."""
        if not self.buffers:
            return self.weights[0, :, :0]
        return torch.cat([buffer.flatten(1) for buffer in self.buffers.values()], dim=1)

    def _traced(self, compiled: bool) -> Callable[..., Any]:
        """One step's gradients as a graph of plain operations, fused by torch.compile."""
        views, statistics = self.local, self.buffers
        names = list(statistics)

        def gradients(*tensors: torch.Tensor) -> list[torch.Tensor]:
            parameters = dict(zip(views, tensors[: len(views)], strict=True))
            rest = tensors[len(views) :]
            buffers = dict(zip(names, rest[: len(names)], strict=True))
            found, losses, correct, new = self.model.gradients(parameters, buffers, *rest[len(names) :])
            return [*found, losses, correct, *(new[name] for name in names)]

        example = (*views.values(), *statistics.values(), *self._batch(0))
        graph = make_fx(gradients)(*example)
        if not compiled:
            return graph
        with torch.no_grad():
            fused = torch.compile(graph, dynamic=False, fullgraph=True)
            try:
                fused(*example)
            except Exception as error:
                reason = str(error).split("\n")[0]
                warnings.warn(f"the model is not compiled, which is slower: {reason}", FedJouleWarning, stacklevel=2)
                return graph
        return fused

    def _batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        numbers = self.numbers[step]
        return self.samples.inputs[numbers], self.samples.targets[numbers], self.weights[step]

    @torch.no_grad()
    def _all_steps(self) -> None:
        views, statistics = self.local, self.buffers
        for name, start in self.model.parameters.views(self.start_weights).items():
            views[name].copy_(start.expand_as(views[name]))
        for name, start in self.model.buffers.views(self.start_buffers).items():
            statistics[name].copy_(start.expand_as(statistics[name]))
        for velocity in self.velocities:
            velocity.zero_()
        for step in range(len(self.rates)):
            out = self._gradients(*views.values(), *statistics.values(), *self._batch(step))
            gradients, rest = out[: len(views)], out[len(views) :]
            local_step(list(views.values()), gradients, self.rates[step], self.velocities, self.momentum)
            self.progress.losses[step], self.progress.correct[step] = rest[0], rest[1]
            for buffer, new in zip(statistics.values(), rest[2:], strict=True):
                buffer.copy_(new)
        starts, targets = self.model.parameters.parts(self.start_weights), self.model.parameters.parts(self.updates)
        for name, target in targets.items():
            torch.sub(starts[name], views[name].flatten(1), out=target)

    def _recorded(self) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._all_steps()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._all_steps()
        return graph


@contextlib.contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Matrix products on the GPU in full float32, in TF32, or (with autocast in the model) in bfloat16."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        matmul.allow_tf32 = before
