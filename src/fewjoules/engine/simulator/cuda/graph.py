"""Local training of a chunk of clients on a GPU: one step compiled, all steps of a round recorded as one CUDA graph."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fewjoules.engine.simulator.local import Batches, Progress, Samples
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.errors import FewJoulesWarning

_WARM_UP = 2


class RecordedSteps:
    """H steps for up to ``clients`` clients and batches of up to ``batch`` samples, started by one call.

    ``updates`` then holds w - v of each client and ``buffers`` its buffers. What is missing has weight zero.
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
        like: "RecordedSteps | None" = None,
    ) -> None:
        """Allocate, compile and record; the first two rounds' worth of steps are run on scratch data.

        ``like`` has the same arguments but for ``steps``; its compiled step is used again.
        """
        device = samples.inputs.device
        self.model, self.samples, self.momentum, self.batch = model, samples, momentum, batch
        self.start_weights, self.start_buffers = model.initial_weights.clone(), model.initial_buffers.clone()
        self.updates = torch.empty((clients, model.parameters.size), device=device)
        self.buffers = torch.empty((clients, model.buffers.size), device=device)
        self.numbers = torch.zeros((steps, clients, batch), dtype=torch.int64, device=device)
        self.weights = torch.full((steps, clients, batch), 1.0 / batch, device=device)
        self.rates = torch.zeros(steps, device=device)
        given = (self.numbers, self.weights, self.rates)
        self._host = [torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in given]
        self._taken = torch.cuda.Event()  # the GPU has read ``_host``, which may be written again
        self.progress = Progress(*torch.empty((2, steps, clients), device=device))
        self._step: Callable[..., Any] = self._traced(compiled) if like is None else like._step
        self._graph = self._recorded()

    def run(self, weights: torch.Tensor, buffers: torch.Tensor, batches: Batches) -> tuple[torch.Tensor, torch.Tensor]:
        """Train all clients from these global weights and buffers; the losses and right answers of each step."""
        rows, width = batches.numbers.shape[1:]
        self.start_weights.copy_(weights)
        self.start_buffers.copy_(buffers)
        numbers, shares, rates = self._host
        self._taken.synchronize()
        if batches.numbers.shape != self.numbers.shape:
            numbers.zero_()
            shares.zero_()
        numbers[:, :rows, :width] = torch.from_numpy(batches.numbers)
        shares[:, :rows, :width] = torch.from_numpy(batches.weights)
        rates[:] = torch.from_numpy(batches.rates)
        for target, source in zip((self.numbers, self.weights, self.rates), self._host, strict=True):
            target.copy_(source, non_blocking=True)
        self._taken.record()
        self._graph.replay()
        return self.progress.losses, self.progress.correct

    def _started(self) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
        """Every client at the global weights and buffers, with no velocity; one tensor for each parameter."""
        clients = self.numbers.shape[1]
        weights, buffers = (
            [start.expand(clients, *start.shape).contiguous() for start in layout.views(flat).values()]
            for layout, flat in (
                (self.model.parameters, self.start_weights),
                (self.model.buffers, self.start_buffers),
            )
        )
        return weights, buffers, [torch.zeros_like(tensor) for tensor in weights] if self.momentum else []

    def _traced(self, compiled: bool) -> Callable[..., Any]:
        """One step, line 6 of the algorithm, as a graph of plain operations, fused by torch.compile."""
        names, statistics = list(self.model.parameters.shapes), list(self.model.buffers.shapes)
        momentum = self.momentum

        def step(*tensors: torch.Tensor) -> list[torch.Tensor]:
            weights, rest = tensors[: len(names)], tensors[len(names) :]
            buffers, rest = rest[: len(statistics)], rest[len(statistics) :]
            velocities, (*batch, rate) = rest[:-4], rest[-4:]
            found, losses, correct, new = self.model.gradients(
                dict(zip(names, weights, strict=True)), dict(zip(statistics, buffers, strict=True)), *batch
            )
            if momentum:
                found = [momentum * v + g for v, g in zip(velocities, found, strict=True)]
            stepped = [w - rate * g for w, g in zip(weights, found, strict=True)]
            moving = found if momentum else []
            return [*stepped, *(new[name] for name in statistics), *moving, losses, correct]

        weights, buffers, velocities = self._started()
        example = (*weights, *buffers, *velocities, *self._batch(0), self.rates[0])
        graph = make_fx(step)(*example)
        if not compiled:
            return graph
        with torch.no_grad():
            try:
                fused = torch.compile(graph, dynamic=False, fullgraph=True, options=_compiler_options())
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the compiler's own affairs
                    fused(*example)
            except Exception as error:
                reason = str(error).split("\n")[0]
                warnings.warn(f"the model is not compiled, which is slower: {reason}", FewJoulesWarning, stacklevel=2)
                return graph
        return fused

    def _batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        numbers = self.numbers[step]
        return self.samples.inputs[numbers], self.samples.targets[numbers], self.weights[step]

    @torch.no_grad()
    def _all_steps(self) -> None:
        weights, buffers, velocities = self._started()
        for step in range(len(self.rates)):
            out = self._step(*weights, *buffers, *velocities, *self._batch(step), self.rates[step])
            weights, rest = out[: len(weights)], out[len(weights) :]
            buffers, rest = rest[: len(buffers)], rest[len(buffers) :]
            velocities, (self.progress.losses[step], self.progress.correct[step]) = rest[:-2], rest[-2:]
        starts, targets = self.model.parameters.parts(self.start_weights), self.model.parameters.parts(self.updates)
        for start, target, local in zip(starts.values(), targets.values(), weights, strict=True):
            torch.sub(start, local.flatten(1), out=target)
        for target, buffer in zip(self.model.buffers.parts(self.buffers).values(), buffers, strict=True):
            target.copy_(buffer.flatten(1))

    def _recorded(self) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._all_steps()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._all_steps()
        return graph


def _compiler_options() -> dict[str, Any]:
    """No kernel is chosen by timing it, which would give other bits in another process; older compilers choose so."""
    import torch._inductor

    return {"deterministic": True} if "deterministic" in torch._inductor.list_options() else {}
