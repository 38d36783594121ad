"""Local steps of a chunk of clients on a GPU: one step is compiled, and H of them are recorded as one CUDA graph."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fewjoules.engine.algorithm.inner import Moments, traced_step
from fewjoules.engine.algorithm.rule import InnerRule
from fewjoules.engine.models.tree import leaves, rebuilt
from fewjoules.engine.simulator.cuda.transfer import pinned_zeros
from fewjoules.engine.simulator.federation import Batches, SampleSource
from fewjoules.engine.simulator.local import Progress
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.errors import FewJoulesWarning

_WARM_UP = 2
_MOST_OPERATIONS = 6000  # of a step that is compiled; a ResNet-20 has 3,800


class RecordedSteps:
    """H local steps for up to ``clients`` clients and batches of up to ``batch`` samples, started by one call.

    Afterwards ``updates`` holds w - v of each client and ``buffers`` its buffers. ``moments`` holds the kept moments of
    the clients, before and after. Missing samples have weight zero.
    """

    def __init__(
        self,
        model: ClientModel,
        samples: SampleSource,
        clients: int,
        steps: int,
        batch: int,
        rule: InnerRule,
        kept: bool,
        compiled: bool,
        like: "RecordedSteps | None" = None,
    ) -> None:
        """Allocate, compile and record; before recording, two rounds of steps run on scratch data.

        ``like`` has the same arguments except ``steps``; its compiled step is reused.
        """
        device = samples.device
        self.model, self.samples, self.rule, self.batch = model, samples, rule, batch
        self.start_weights, self.start_buffers = model.initial_weights.clone(), model.initial_buffers.clone()
        self.updates = torch.empty((clients, model.parameters.size), device=device)
        self.buffers = torch.empty((clients, model.buffers.size), device=device)
        self.moments = {name: torch.zeros_like(self.updates) for name in (rule.moments if kept else ())}
        self.taken = torch.zeros(clients, dtype=torch.float64, device=device)  # earlier steps of each client
        self.numbers = torch.zeros((steps, clients, batch), dtype=torch.int64, device=device)
        self.weights = torch.full((steps, clients, batch), 1.0 / batch, device=device)
        self.rates = torch.zeros(steps, device=device)
        given = (self.numbers, self.weights, self.rates)
        self._host = [pinned_zeros(tensor) for tensor in given]
        self._copied = torch.cuda.Event()  # set when the GPU has read ``_host``, which may then be overwritten
        self.progress = Progress(*torch.empty((2, steps, clients), device=device))
        self._step: Callable[..., Any] = self._traced(compiled) if like is None else like._step
        self._graph = self._recorded()

    def run(self, weights: torch.Tensor, buffers: torch.Tensor, batches: Batches) -> tuple[torch.Tensor, torch.Tensor]:
        """Train all clients from these global weights and buffers; return losses and accuracies of each step."""
        rows, width = batches.numbers.shape[1:]
        self.start_weights.copy_(weights)
        self.start_buffers.copy_(buffers)
        numbers, shares, rates = self._host
        self._copied.synchronize()
        if batches.numbers.shape != self.numbers.shape:
            numbers.zero_()
            shares.zero_()
        numbers[:, :rows, :width] = torch.from_numpy(batches.numbers)
        shares[:, :rows, :width] = torch.from_numpy(batches.weights)
        rates[:] = torch.from_numpy(batches.rates)
        for target, source in zip((self.numbers, self.weights, self.rates), self._host, strict=True):
            target.copy_(source, non_blocking=True)
        self._copied.record()
        self._graph.replay()
        return self.progress.losses, self.progress.correct

    def _started(self) -> tuple[list[torch.Tensor], list[torch.Tensor], Moments]:
        """Return weights, buffers and moments at the start of a round, one tensor for each parameter."""
        clients = self.numbers.shape[1]
        weights, buffers = (
            [start.expand(clients, *start.shape).contiguous() for start in layout.views(flat).values()]
            for layout, flat in (
                (self.model.parameters, self.start_weights),
                (self.model.buffers, self.start_buffers),
            )
        )
        moments = Moments(steps=self.taken.clone())
        for name in self.rule.moments:
            flat = self.moments.get(name)
            found = (
                [torch.zeros_like(tensor) for tensor in weights]
                if flat is None
                else [view.contiguous() for view in self.model.parameters.views(flat).values()]
            )
            setattr(moments, name, found)
        return weights, buffers, moments

    def _traced(self, compiled: bool) -> Callable[..., Any]:
        """Return one local step, line 6 of the algorithm, as a graph of plain operations, fused by torch.compile."""
        names, statistics = list(self.model.parameters.shapes), list(self.model.buffers.shapes)
        rule, inputs, targets = self.rule, *self.samples.take(self.numbers[0])

        def step(*tensors: torch.Tensor) -> list[torch.Tensor]:
            weights, buffers, moments, (*arrays, shares, rate) = self._parted(tensors)
            count = len(leaves(inputs))
            found, losses, correct, new = self.model.gradients(
                dict(zip(names, weights, strict=True)),
                dict(zip(statistics, buffers, strict=True)),
                rebuilt(inputs, arrays[:count]),
                rebuilt(targets, arrays[count:]),
                shares,
            )
            stepped, moments = traced_step(weights, found, rate, rule, moments)
            return [*stepped, *(new[name] for name in statistics), *self._flat(moments), losses, correct]

        weights, buffers, moments = self._started()
        example = (*weights, *buffers, *self._flat(moments), *self._batch(0), self.rates[0])
        graph = make_fx(step)(*example)
        if not compiled or len(graph.graph.nodes) > _MOST_OPERATIONS:
            return graph
        with torch.no_grad():
            try:
                fused = torch.compile(graph, dynamic=False, fullgraph=True, options=_compiler_options())
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # those of the compiler
                    fused(*example)
            except Exception as error:
                reason = str(error).split("\n")[0]
                warnings.warn(f"the model is not compiled, which is slower: {reason}", FewJoulesWarning, stacklevel=2)
                return graph
        return fused

    def _flat(self, moments: Moments) -> list[torch.Tensor]:
        """Return the moments as a list of tensors; only AdamW counts steps."""
        counted = [moments.steps] if self.rule.kind == "adamw" else []
        return [*moments.velocity, *moments.squares, *counted]

    def _parted(
        self, tensors: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor], Moments, list[torch.Tensor]]:
        """Split the arguments or results of a step into weights, buffers, moments and the rest."""
        rest = list(tensors)

        def front(count: int) -> list[torch.Tensor]:
            found, rest[:] = rest[:count], rest[count:]
            return found

        parameters = len(self.model.parameters.shapes)
        weights, buffers = front(parameters), front(len(self.model.buffers.shapes))
        moments = Moments()
        for name in self.rule.moments:
            setattr(moments, name, front(parameters))
        if self.rule.kind == "adamw":
            (moments.steps,) = front(1)
        return weights, buffers, moments, rest

    def _batch(self, step: int) -> list[torch.Tensor]:
        """Return all arrays of a batch, inputs first, and the weights of its samples."""
        inputs, targets = self.samples.take(self.numbers[step])
        return [*leaves(inputs), *leaves(targets), self.weights[step]]

    @torch.no_grad()
    def _all_steps(self) -> None:
        weights, buffers, moments = self._started()
        for step in range(len(self.rates)):
            out = self._step(*weights, *buffers, *self._flat(moments), *self._batch(step), self.rates[step])
            weights, buffers, moments, (losses, correct) = self._parted(out)
            self.progress.losses[step], self.progress.correct[step] = losses, correct
        layout = self.model.parameters
        starts, targets = layout.parts(self.start_weights), layout.parts(self.updates)
        for start, target, local in zip(starts.values(), targets.values(), weights, strict=True):
            torch.sub(start, local.flatten(1), out=target)
        for target, buffer in zip(self.model.buffers.parts(self.buffers).values(), buffers, strict=True):
            target.copy_(buffer.flatten(1))
        for name, flat in self.moments.items():
            for target, moment in zip(layout.parts(flat).values(), getattr(moments, name), strict=True):
                target.copy_(moment.flatten(1))

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
    """Return options that keep the compiler from choosing kernels by timing, as results would differ between processes.

    This includes tiles of pointwise kernels, which decide whether a product and a sum are rounded once or twice.
    """
    import torch._inductor

    wanted = {"deterministic": True, "triton.autotune_pointwise": False}
    known = torch._inductor.list_options()
    return {name: value for name, value in wanted.items() if name in known}
