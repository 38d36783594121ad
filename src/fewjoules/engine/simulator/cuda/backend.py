"""Backend on a GPU: a whole chunk of clients trains as one stack; compression and aggregation stay on the device.

The host does not wait for a round on the GPU. Meanwhile it prepares the next round and records the previous one, and
threads size the messages that the GPU does not size itself.
"""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import nn

from fewjoules.arrays import Flags, Floats, IntArray
from fewjoules.cores import CORES
from fewjoules.engine.algorithm.client import dense_bytes, kept_vectors
from fewjoules.engine.algorithm.compressors.base import RowMessages
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import RoundPlan, RoundResult, Uploads, require_finite
from fewjoules.engine.algorithm.rule import InnerRule
from fewjoules.engine.algorithm.saved import SavedTensor
from fewjoules.engine.algorithm.server import mean_buffers
from fewjoules.engine.algorithm.state import ClientState, ServerState
from fewjoules.engine.algorithm.streams import stream_key
from fewjoules.engine.models.layout import Layout
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.simulator.cpu.malloc import keep_freed_memory
from fewjoules.engine.simulator.cpu.single import SingleModel
from fewjoules.engine.simulator.cuda.graph import RecordedSteps
from fewjoules.engine.simulator.cuda.kept import KeptRows, Rows
from fewjoules.engine.simulator.cuda.messages import Messages
from fewjoules.engine.simulator.cuda.precision import arithmetic
from fewjoules.engine.simulator.cuda.transfer import to_host
from fewjoules.engine.simulator.execution import Execution
from fewjoules.engine.simulator.failures import delivered_uploads
from fewjoules.engine.simulator.federation import Batches, BatchSource, Federation
from fewjoules.engine.simulator.local import Chunk, Progress, train_one, train_stack
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.errors import DivergedError

_ENCODERS = max(1, min(8, CORES // 2))
_SPAN_ENTRIES = 8192  # fewest entries worth a thread: waking it takes as long as counting some thousand
Graphs = dict[tuple[int, int, int, InnerRule, bool, bool], RecordedSteps]


class CudaBackend:
    """Trains a chunk of clients at a time; a module that vmap cannot run has chunks of one."""

    sends_changes = False
    keeps_clients = True

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        federation: Federation,
        options: TrainingOptions,
        execution: Execution,
        *,
        compiled: bool,
        graphs: Graphs | None = None,
    ) -> None:
        """Compile nothing before the first round; ``graphs`` shares recorded steps between similar runs."""
        keep_freed_memory()
        self.options, self.execution = options, execution
        self._samples, self._source = federation.samples, BatchSource(federation, options.seed)
        self._device, self._compiled, self._rule = self._samples.inputs.device, compiled, InnerRule.of(options)
        kind: Any = ClientModel if execution.stacked else SingleModel
        self._model: Any = kind(model, loss, self._device, precision=options.precision)
        layout: Layout = self._model.parameters if execution.stacked else self._model.layout
        self._kept = KeptRows(kept_vectors(options), layout.size, options.clients, self._device)
        self._shared, self._graphs = graphs is not None, {} if graphs is None else graphs
        self._shares: dict[bytes, torch.Tensor] = {}
        self._encoders = ThreadPoolExecutor(_ENCODERS, "fewjoules-encode")
        self._messages = Messages(self._encoders)

    def prepare(self, plan: RoundPlan) -> None:
        """Draw the batches of the next round."""
        self._source.prepare(plan)

    def run(self, state: ServerState, plan: RoundPlan, meanwhile: Callable[[], None]) -> RoundResult:
        """Start a round on the GPU; ``meanwhile`` is called while it runs, and threads size the messages."""
        batches = self._source.batches(plan)
        everyone = plan.participants.size
        delivered = delivered_uploads(plan)
        mean = torch.zeros_like(state.weights)
        trained: list[Progress] = []
        entries: list[IntArray] = []
        counted: list[Future[IntArray]] = []
        buffers = []
        for part in plan.parts(self.execution.chunk):
            own = plan.of(part)
            rows = self._kept.rows(own.participants)
            with arithmetic(self.options.precision):
                updates, progress, own_buffers = self._train(state, own, batches.of(part), rows)
            messages = self._send(own, delivered[part], rows, updates, mean)
            entries.append(messages.entries)
            counted += self._count(messages, own_buffers)
            trained.append(progress)
            buffers.append(own_buffers)
        steps = torch.cat([torch.stack((one.losses, one.correct)) for one in trained], dim=2)
        (told, finite), ready = to_host(steps, torch.isfinite(mean).all())
        meanwhile()

        def uploads() -> Uploads:
            ready.synchronize()
            losses, correct = told.numpy()
            require_finite(losses, plan.number, plan.participants)
            sizes = [future.result() for future in counted]
            if not bool(finite):
                raise DivergedError(f"training diverged: the mean update of round {plan.number} is not finite")
            written = np.zeros(everyone, dtype=bool)
            return Uploads(np.concatenate(entries), np.concatenate(sizes), written, losses, correct)

        whole = torch.cat(buffers) if len(buffers) > 1 else buffers[0]
        return RoundResult(mean, mean_buffers(whole, state.buffers, delivered, plan.shares), delivered, uploads)

    def take_steps(self, state: ServerState, plan: RoundPlan, batches: Batches) -> None:
        """Start the local steps of a round and forget them: what they cost can be measured so."""
        for part in plan.parts(self.execution.chunk):
            own = plan.of(part)
            with arithmetic(self.options.precision):
                self._train(state, own, batches.of(part), self._kept.rows(own.participants))

    def client_state(self, client: int) -> ClientState | None:
        """State of a client; None before it first took part."""
        return self._kept.client(client)

    def save(self) -> dict[str, SavedTensor]:
        """Return one row for each client that took part, in the order of their numbers."""
        return self._kept.save()

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the client states that ``save`` returned."""
        self._kept.restore(tensors)

    def close(self) -> None:
        """Release threads and graphs, except graphs shared with other runs."""
        from fewjoules.engine.simulator.cuda.topk import forget_selections

        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # a graph must not be freed while it runs
        forget_selections()
        self._encoders.shutdown()
        if not self._shared:
            self._graphs.clear()

    def _train(
        self, state: ServerState, plan: RoundPlan, batches: Batches, rows: Rows
    ) -> tuple[torch.Tensor, Progress, torch.Tensor]:
        """Take the local steps of a chunk: return w - v, losses and accuracies, and buffers; store the moments."""
        if self.execution.stacked and not self.execution.seeded:
            found = self._replay(state, batches, rows)
        else:
            found = self._train_eagerly(state, plan, batches, rows)
        self._kept.count_steps(rows, self.options.local_steps)
        return found

    def _replay(self, state: ServerState, batches: Batches, rows: Rows) -> tuple[torch.Tensor, Progress, torch.Tensor]:
        clients = batches.numbers.shape[1]
        steps = self._recorded(batches.numbers.shape[2])
        for name, moments in steps.moments.items():
            moments[:clients] = self._kept.take(name, rows)
        if steps.moments:
            steps.taken[:clients] = torch.from_numpy(self._kept.steps(rows)).to(self._device)
        losses, correct = steps.run(state.weights, state.buffers, batches)
        for name, moments in steps.moments.items():
            self._kept.put(name, rows, moments[:clients])
        progress = Progress(losses[:, :clients].clone(), correct[:, :clients].clone())
        return steps.updates[:clients], progress, steps.buffers[:clients].clone()

    def _train_eagerly(
        self, state: ServerState, plan: RoundPlan, batches: Batches, rows: Rows
    ) -> tuple[torch.Tensor, Progress, torch.Tensor]:
        clients = plan.participants.size
        names = [name for name in self._kept.names if name != "residual"]
        chunk = Chunk(
            weights=state.weights.repeat(clients, 1),
            buffers=state.buffers.repeat(clients, 1),
            steps=torch.from_numpy(self._kept.steps(rows)).to(self._device),
            **{name: self._kept.take(name, rows).clone() for name in names},
        )
        train: Any = train_stack if self.execution.stacked else train_one
        with torch.random.fork_rng(devices=[self._device], enabled=self.execution.seeded):
            if self.execution.seeded:
                torch.manual_seed(stream_key(self.options.seed, "model", plan.number, int(plan.participants[0])))
            progress = train(self._model, self._samples, batches, chunk, self._rule)
        for name in names:
            self._kept.put(name, rows, getattr(chunk, name))
        return state.weights - chunk.weights, progress, chunk.buffers

    def _recorded(self, batch: int) -> RecordedSteps:
        """Return recorded steps for batches of this size; larger batches are padded so that few sizes are compiled."""
        first = self.options.batch_size or batch
        capacity = batch if batch <= first else first * 2 ** math.ceil(math.log2(batch / first))
        chunk, kept = self.execution.chunk, bool(self._rule.kept_moments)
        key = (chunk, self.options.local_steps, capacity, self._rule, kept, self._compiled)
        if key not in self._graphs:
            if not self._shared:
                self._graphs.clear()
            like = [graph for known, graph in self._graphs.items() if known[:1] + known[2:] == key[:1] + key[2:]]
            self._graphs[key] = RecordedSteps(self._model, self._samples, *key, like=like[0] if like else None)
        return self._graphs[key]

    def _send(
        self, plan: RoundPlan, delivered: Flags, rows: Rows, updates: torch.Tensor, mean: torch.Tensor
    ) -> RowMessages:
        """Run lines 8 to 10 and 20 for a chunk: ``updates`` becomes g_m, and p_m g_m is added to ``mean``."""
        feedback = self.options.error_feedback
        residuals = self._kept.take("residual", rows) if feedback else torch.zeros_like(updates)
        if self.options.residual_decay != 1.0:
            residuals *= self.options.residual_decay
        messages = self._messages.send(updates, residuals, plan, delivered)
        if feedback:
            self._kept.put("residual", rows, residuals)
        if self.options.momentum_state == "cleared":
            velocity = self._kept.take("velocity", rows)
            velocity.view(-1)[slice(None) if messages.positions is None else messages.positions()] = 0.0
            self._kept.put("velocity", rows, velocity)
        mean += self._on_device(np.where(delivered, plan.shares, 0.0).astype(np.float32)) @ updates
        return messages

    def _on_device(self, shares: Floats) -> torch.Tensor:
        """Return the shares of a chunk on the GPU; the last ones are cached, as they seldom change."""
        key = shares.tobytes()
        if key not in self._shares:
            self._shares = {key: torch.from_numpy(shares).to(self._device)}
        return self._shares[key]

    def _count(self, messages: RowMessages, buffers: torch.Tensor) -> list[Future[IntArray]]:
        """Size the messages in threads, several clients in each."""
        (own,), ready = to_host(buffers)
        clients = messages.entries.size
        work = int(messages.entries.sum()) if messages.counted_by_host else 0
        spans = np.array_split(np.arange(clients), max(1, min(_ENCODERS, clients, -(-work // _SPAN_ENTRIES))))

        def count(span: IntArray) -> IntArray:
            bytes_of = messages.sizes(span)
            if not own.numel():
                return bytes_of
            ready.synchronize()
            return bytes_of + np.array([dense_bytes(own[row].numpy()) for row in span])

        return [self._encoders.submit(count, span) for span in spans]
