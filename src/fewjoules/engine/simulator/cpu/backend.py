"""Backend on the processor: each chunk of clients goes to a thread, which runs single-threaded kernels.

The result of a client depends neither on the number of threads nor on the thread that it ran on.
"""

import queue
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from fewjoules.arrays import Flags, Floats, IntArray
from fewjoules.codec.aggregate import add_updates
from fewjoules.engine.algorithm.client import (
    Steps,
    Upload,
    client_round,
    kept_vectors,
    new_client,
    settled,
    upload_of,
)
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import ClientOrder, RoundPlan, RoundResult, Uploads, require_finite
from fewjoules.engine.algorithm.rule import InnerRule
from fewjoules.engine.algorithm.server import mean_buffers, mean_update, weights_in_mean
from fewjoules.engine.algorithm.state import ClientState, ServerState
from fewjoules.engine.algorithm.streams import stream_key
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.models.networks import parameter_count
from fewjoules.engine.simulator.cpu.malloc import keep_freed_memory
from fewjoules.engine.simulator.cpu.single import SingleModel
from fewjoules.engine.simulator.cpu.workers import Workers
from fewjoules.engine.simulator.failures import delivered_uploads
from fewjoules.engine.simulator.federation import Batches, BatchSource, Federation
from fewjoules.engine.simulator.local import Chunk, train_one, train_stack
from fewjoules.engine.simulator.partial import PartialRound
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.engine.store.client_store import ClientStore, ClientTable, StorePlace


class CpuBackend:
    """Trains ``chunk`` clients at a time as one stack; a chunk of one works without vmap, for any module."""

    sends_changes = False
    keeps_clients = True
    sums_type = torch.float64

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        federation: Federation,
        options: TrainingOptions,
        *,
        chunk: int,
        workers: Workers,
        seeded: bool,
        place: StorePlace | None = None,
    ) -> None:
        """Copy the model for each thread: modules are not thread-safe. ``seeded``: the model draws random numbers."""
        keep_freed_memory()
        self.options, self.chunk = options, chunk
        self._samples, self._source = federation.samples, BatchSource(federation, options.seed)
        self._workers, self._seeded, self._rule = workers, seeded, InnerRule.of(options)
        self._models: queue.SimpleQueue[Any] = queue.SimpleQueue()
        kind = SingleModel if chunk == 1 else ClientModel
        for _ in range(workers.threads):
            self._models.put(kind(model, loss, torch.device("cpu"), precision=options.precision))
        self.store = ClientStore(kept_vectors(options), parameter_count(model), place, values=options.kept_values)

    def prepare(self, plan: RoundPlan) -> None:
        """Draw the batches of the next round."""
        self._source.prepare(plan)

    def run(self, state: ServerState, plan: RoundPlan, meanwhile: Callable[[], None]) -> RoundResult:
        """Run the local steps, compression and aggregation of one round; the result is ready on return."""
        batches = self._source.batches(plan)
        meanwhile()
        sent, delivered = self._uploads(state, plan, batches)
        uploads = _summary(sent)
        return RoundResult(
            mean_update=torch.from_numpy(mean_update([one.update for one in sent], delivered, plan.shares)),
            buffers=mean_buffers(_stacked_buffers(sent), state.buffers, delivered, plan.shares),
            delivered=delivered,
            uploads=lambda: uploads,
        )

    def run_part(self, state: ServerState, plan: RoundPlan, part: slice) -> PartialRound:
        """Run the round of some participants; it is done on return."""
        own = plan.of(part)
        sent, delivered = self._uploads(state, own, self._source.batches(own))
        shares = weights_in_mean(plan.shares)[part]
        arrived = [one.update for one, here in zip(sent, delivered, strict=True) if here]
        uploads = _summary(sent)
        return PartialRound(
            add_to=lambda sums, first: add_updates(sums.numpy(), arrived, shares[delivered], first),
            buffers=_stacked_buffers(sent),
            uploads=lambda: uploads,
        )

    def _uploads(self, state: ServerState, plan: RoundPlan, batches: Batches) -> tuple[list[Upload], Flags]:
        """Train the participants chunk by chunk and keep their states; return their uploads and which arrive."""
        delivered = delivered_uploads(plan)
        done = self._workers.map(
            lambda part: self._train(state, plan.of(part), batches.of(part), delivered[part]), plan.parts(self.chunk)
        )
        return [one for chunk in done for one in chunk], delivered

    def take_steps(self, state: ServerState, plan: RoundPlan, batches: Batches) -> None:
        """Take the local steps of a round and forget them, to measure what they cost."""

        def take(part: slice) -> None:
            own = plan.of(part)
            orders = [own.order(row) for row in range(own.participants.size)]
            fresh = [new_client(order, state.weights.numel()) for order in orders]
            self._steps(state, batches.of(part), fresh, orders)

        self._workers.map(take, plan.parts(self.chunk))

    def client_state(self, client: int) -> ClientState | None:
        """State of a client; None before it first took part."""
        return self.store.state(client)

    def put_client(self, client: int, state: ClientState) -> None:
        """Take over the state of a client from another process."""
        self.store.put(client, state)

    def drop_client(self, client: int) -> None:
        """Forget the state of a client, which another process takes over."""
        self.store.drop(client)

    def save(self) -> ClientTable:
        """Return one row for each client that took part."""
        return self.store.table()

    def restore(self, table: ClientTable) -> None:
        """Restore the client states that ``save`` returned."""
        self.store.go_back(table)

    def hold(self) -> None:
        """Hold the client states of now, so that ``take_back`` can return to them."""
        self.store.hold()

    def take_back(self) -> bool:
        """Return to the client states that were held; False if that is not possible."""
        return self.store.take_back()

    def close(self) -> None:
        """Do nothing: the threads belong to the simulator."""

    def _train(self, state: ServerState, plan: RoundPlan, batches: Batches, delivered: Flags) -> list[Upload]:
        """Run the round of a chunk of clients: keep their new states, return their uploads."""
        size = state.weights.numel()
        orders = [plan.order(row) for row in range(plan.participants.size)]
        before = [self.store.take(order.client) or new_client(order, size) for order in orders]
        if self.chunk == 1:
            train = lambda one, order: self._steps(state, batches, [one], [order])[0]  # noqa: E731
            done = [client_round(train, before[0], orders[0])]
        else:
            ready = [settled(one, order.accepted_round) for one, order in zip(before, orders, strict=True)]
            steps = self._steps(state, batches, ready, orders)
            done = [upload_of(*one) for one in zip(steps, ready, orders, strict=True)]
        for (_, kept), order, arrived in zip(done, orders, delivered, strict=True):
            known = plan.number if arrived else order.accepted_round  # a simulated client is told at once
            self.store.put(order.client, settled(kept, known))
        return [upload for upload, _ in done]

    def _steps(
        self, state: ServerState, batches: Batches, before: list[ClientState], orders: list[ClientOrder]
    ) -> list[Steps]:
        """Take the H local steps of a chunk of clients, starting from the global weights."""
        chunk = _started(state, before)
        model = self._models.get()
        try:
            with torch.random.fork_rng(devices=[], enabled=self._seeded):
                if self._seeded:
                    torch.manual_seed(stream_key(self.options.seed, "model", orders[0].round, orders[0].client))
                train: Any = train_one if self.chunk == 1 else train_stack
                progress = train(model, self._samples, batches, chunk, self._rule)
        finally:
            self._models.put(model)
        losses, correct = progress.losses.numpy(), progress.correct.numpy()
        require_finite(losses, orders[0].round, np.array([order.client for order in orders]))
        weights = state.weights.numpy()
        return [
            Steps(
                change=np.subtract(weights, local, out=local),
                buffers=chunk.buffers[row].numpy(),
                velocity=_row(chunk.velocity, row),
                squares=_row(chunk.squares, row),
                losses=losses[:, row],
                correct=correct[:, row],
            )
            for row, local in enumerate(chunk.weights.numpy())
        ]


def _started(state: ServerState, before: list[ClientState]) -> Chunk:
    """Return a chunk with every client at the global weights and with the moments that it kept."""
    moments = {}
    for name in ("velocity", "squares"):
        rows = [getattr(one, name) for one in before]
        moments[name] = None if rows[0] is None else torch.from_numpy(np.stack(rows))
    return Chunk(
        weights=state.weights.repeat(len(before), 1),
        buffers=state.buffers.repeat(len(before), 1),
        steps=torch.tensor([one.steps for one in before]),
        **moments,
    )


def _row(stack: torch.Tensor | None, row: int) -> Floats | None:
    return None if stack is None else stack[row].numpy()


def _stacked_buffers(sent: list[Upload]) -> torch.Tensor:
    return torch.from_numpy(np.stack([one.buffers for one in sent]))


def _summary(sent: list[Upload]) -> Uploads:
    entries: IntArray = np.array([one.update.count for one in sent], dtype=np.int64)
    return Uploads(
        entries=entries,
        payload_bytes=np.array([one.payload_bytes for one in sent], dtype=np.int64),
        written=np.zeros(entries.size, dtype=bool),
        losses=np.stack([one.losses for one in sent], axis=1),
        correct=np.stack([one.correct for one in sent], axis=1),
    )
