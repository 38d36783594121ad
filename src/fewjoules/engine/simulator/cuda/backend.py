"""Backend on a GPU: a whole chunk of clients trains as one stack; compression and aggregation stay on the device.

The host does not wait for a round on the GPU. Meanwhile it prepares the next round and records the previous one, and
threads size the messages that the GPU does not size itself.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
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
from fewjoules.engine.algorithm.server import mean_buffers
from fewjoules.engine.algorithm.state import ClientState, ServerState
from fewjoules.engine.algorithm.streams import stream_key
from fewjoules.engine.models.layout import Layout
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.simulator.cpu.malloc import keep_freed_memory
from fewjoules.engine.simulator.cpu.single import SingleModel
from fewjoules.engine.simulator.cuda.graph import RecordedSteps
from fewjoules.engine.simulator.cuda.kept import HELD_SHARE, ROWS_SHARE, KeptRows, Rows, gpu_rows
from fewjoules.engine.simulator.cuda.messages import Messages
from fewjoules.engine.simulator.cuda.precision import arithmetic
from fewjoules.engine.simulator.cuda.transfer import to_host
from fewjoules.engine.simulator.execution import Execution
from fewjoules.engine.simulator.failures import delivered_uploads
from fewjoules.engine.simulator.federation import Batches, BatchSource, Federation
from fewjoules.engine.simulator.local import Chunk, Progress, train_one, train_stack
from fewjoules.engine.simulator.partial import PartialRound
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.engine.store.client_store import ClientStore, ClientTable, StorePlace
from fewjoules.errors import DivergedError

_ENCODERS = max(1, min(8, CORES // 2))
_SPAN_ENTRIES = 8192  # fewest entries worth a thread: waking it takes as long as counting some thousand
Graphs = dict[tuple[int, int, int, InnerRule, bool, bool], RecordedSteps]


class CudaBackend:
    """Trains a chunk of clients at a time; a module that vmap cannot run has chunks of one."""

    sends_changes = False
    keeps_clients = True
    sums_type = torch.float32

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
        place: StorePlace | None = None,
    ) -> None:
        """Compile nothing before the first round; ``graphs`` shares recorded steps between similar runs."""
        keep_freed_memory()
        self.options, self.execution = options, execution
        self._samples, self._source = federation.samples, BatchSource(federation, options.seed)
        self._device, self._compiled, self._rule = self._samples.device, compiled, InnerRule.of(options)
        kind: Any = ClientModel if execution.stacked else SingleModel
        self._model: Any = kind(model, loss, self._device, precision=options.precision)
        layout: Layout = self._model.parameters if execution.stacked else self._model.layout
        self.store = ClientStore(kept_vectors(options), layout.size, place, values=options.kept_values)
        most, most_held = (
            gpu_rows(self.store.row_bytes, options.clients, self._device, share=share)
            for share in (ROWS_SHARE, HELD_SHARE)
        )
        self._kept = KeptRows(self.store, most, self._device, most_held=most_held)
        self._shared, self._graphs = graphs is not None, {} if graphs is None else graphs
        self._shares: dict[bytes, torch.Tensor] = {}
        self._encoders = ThreadPoolExecutor(_ENCODERS, "fewjoules-encode")
        self._messages = Messages(self._encoders)

    def prepare(self, plan: RoundPlan) -> None:
        """Draw the batches of the next round."""
        self._source.prepare(plan)

    def run(self, state: ServerState, plan: RoundPlan, meanwhile: Callable[[], None]) -> RoundResult:
        """Start a round on the GPU; ``meanwhile`` is called while it runs, and threads size the messages."""
        delivered = delivered_uploads(plan)
        mean = torch.zeros_like(state.weights)
        started = self._start(state, plan, delivered, mean.add_)
        uploads = started.uploads(torch.isfinite(mean).all())
        meanwhile()
        buffers = mean_buffers(started.stacked_buffers(), state.buffers, delivered, plan.shares)
        return RoundResult(mean, buffers, delivered, uploads)

    def run_part(self, state: ServerState, plan: RoundPlan, part: slice) -> PartialRound:
        """Start the round of some participants on the GPU."""
        own = plan.of(part)
        sums: list[torch.Tensor] = []
        started = self._start(state, own, delivered_uploads(own), sums.append)
        finite = torch.stack([torch.isfinite(one).all() for one in sums]).all()

        def add_to(all_sums: torch.Tensor, first: int) -> None:
            for one in sums:
                all_sums.add_(one[first : first + all_sums.numel()])

        return PartialRound(add_to, started.stacked_buffers(), started.uploads(finite))

    def _start(
        self, state: ServerState, plan: RoundPlan, delivered: Flags, add: Callable[[torch.Tensor], object]
    ) -> "_Started":
        """Start a round chunk by chunk; ``add`` takes the sum of p_m g_m of each chunk."""
        batches = self._source.batches(plan)
        started = _Started(plan)
        for part in plan.parts(self.execution.chunk):
            own = plan.of(part)
            rows = self._kept.rows(own.participants)
            with arithmetic(self.options.precision):
                updates, progress, buffers = self._train(state, own, batches.of(part), rows)
            messages, total = self._send(own, delivered[part], rows, updates)
            add(total)
            started.entries.append(messages.entries)
            started.counted += self._count(messages, buffers)
            started.trained.append(progress)
            started.buffers.append(buffers)
        return started

    def take_steps(self, state: ServerState, plan: RoundPlan, batches: Batches) -> None:
        """Start the local steps of a round and forget them, to measure what they cost."""
        for part in plan.parts(self.execution.chunk):
            own = plan.of(part)
            with arithmetic(self.options.precision):
                self._train(state, own, batches.of(part), self._kept.rows(own.participants))

    def client_state(self, client: int) -> ClientState | None:
        """State of a client; None before it first took part."""
        return self._kept.client(client)

    def put_client(self, client: int, state: ClientState) -> None:
        """Take over the state of a client from another process."""
        self._kept.put_client(client, state)

    def drop_client(self, client: int) -> None:
        """Forget the state of a client, which another process takes over."""
        self._kept.drop_client(client)

    def save(self) -> ClientTable:
        """Return one row for each client that took part."""
        return self._kept.save()

    def restore(self, table: ClientTable) -> None:
        """Restore the client states that ``save`` returned."""
        self._kept.restore(table)

    def hold(self) -> None:
        """Hold the client states of now, so that ``take_back`` can return to them."""
        self._kept.hold()

    def take_back(self) -> bool:
        """Return to the client states that were held; False if that is not possible."""
        return self._kept.take_back()

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
        if self.execution.stacked and not self.execution.seeded and self._samples.resident:
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
        self, plan: RoundPlan, delivered: Flags, rows: Rows, updates: torch.Tensor
    ) -> tuple[RowMessages, torch.Tensor]:
        """Run lines 8 to 10 and 20 for a chunk: ``updates`` becomes g_m; return also the sum of p_m g_m."""
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
        shares = np.where(delivered, plan.shares, 0.0).astype(np.float32)
        return messages, self._on_device(shares) @ updates

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


@dataclass(slots=True)
class _Started:
    """A round, or part of one, that runs on the GPU; lists have one entry for each chunk."""

    plan: RoundPlan
    trained: list[Progress] = field(default_factory=list)
    entries: list[IntArray] = field(default_factory=list)
    counted: list[Future[IntArray]] = field(default_factory=list)
    buffers: list[torch.Tensor] = field(default_factory=list)

    def stacked_buffers(self) -> torch.Tensor:
        """Buffers of all participants, (participants, buffers)."""
        return torch.cat(self.buffers) if len(self.buffers) > 1 else self.buffers[0]

    def uploads(self, all_finite: torch.Tensor) -> Callable[[], Uploads]:
        """Return a function that waits for the uploads and refuses a loss or, by the flag, a sum that is not finite."""
        steps = torch.cat([torch.stack((one.losses, one.correct)) for one in self.trained], dim=2)
        (told, finite), ready = to_host(steps, all_finite)
        plan, entries, counted = self.plan, self.entries, self.counted

        def uploads() -> Uploads:
            ready.synchronize()
            losses, correct = told.numpy()
            require_finite(losses, plan.number, plan.participants)
            sizes = [future.result() for future in counted]
            if not bool(finite):
                raise DivergedError(f"training diverged: the mean update of round {plan.number} is not finite")
            written = np.zeros(plan.participants.size, dtype=bool)
            return Uploads(np.concatenate(entries), np.concatenate(sizes), written, losses, correct)

        return uploads
