"""Backend of one rank: the chunks of a round are shared out over the ranks, which form the mean in one order.

Every rank has the server's state and makes the same plan. Chunks have the same clients whatever the number of ranks,
since the result of a client may depend in its last bits on who is in its stack. What a client keeps is with the rank
that ran it last, and moves where another one runs it; participants are in the order of their numbers, so few of them
do. The sums of the mean update pass from rank to rank, each adding its own: 8 bytes for each weight on processors and 4
on GPUs, however many clients there are.
"""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.engine.algorithm.client import kept_vectors
from fewjoules.engine.algorithm.round import RoundPlan, RoundResult, Uploads
from fewjoules.engine.algorithm.server import mean_buffers
from fewjoules.engine.algorithm.state import ClientState, ServerState
from fewjoules.engine.ranks import Ranks
from fewjoules.engine.simulator.failures import delivered_uploads
from fewjoules.engine.simulator.gathering import Gathering
from fewjoules.engine.simulator.partial import PartialBackend, PartialRound
from fewjoules.engine.store.client_store import ClientTable, state_of
from fewjoules.errors import DivergedError

_COLUMNS = 3  # of a table of uploads, before those of the steps


class RankedBackend:
    """Runs this rank's chunks of each round by ``local``, and gives every rank the result of the whole round."""

    sends_changes = False
    keeps_clients = True

    def __init__(self, local: PartialBackend, ranks: Ranks, chunk: int) -> None:
        """Take over a backend that has run nothing yet; ``chunk`` is how many clients it trains at a time."""
        self.local, self.ranks, self.chunk = local, ranks, chunk
        self._owners: dict[int, int] | None = {}  # by client; None until ranks have told each other
        self._restored: IntArray = np.zeros(0, dtype=np.int64)
        self._gathering = Gathering(ranks, local.store.size, local.store.place.folder)

    def prepare(self, plan: RoundPlan) -> None:
        """Draw the batches of this rank's participants in the next round."""
        part = parts_of_ranks(plan, self.chunk, self.ranks.size)[self.ranks.rank]
        if part.start < part.stop:
            self.local.prepare(plan.of(part))

    def run(self, state: ServerState, plan: RoundPlan, meanwhile: Callable[[], None]) -> RoundResult:
        """Run this rank's part of a round, and form the mean with the others."""
        parts = parts_of_ranks(plan, self.chunk, self.ranks.size)
        own = parts[self.ranks.rank]
        with self.ranks.together():
            self._move_states(plan, parts, state.weights.numel())
            done = self.local.run_part(state, plan, own) if own.start < own.stop else None
        meanwhile()
        counts = [part.stop - part.start for part in parts]
        delivered = delivered_uploads(plan)
        mean, buffers = self._means(state, plan, done, counts)
        all_finite = torch.isfinite(mean).all() if mean.is_cuda else None

        def uploads() -> Uploads:
            with self.ranks.together():
                told = Uploads.nothing((plan.options.local_steps, 0)) if done is None else done.uploads()
            if all_finite is not None and not bool(all_finite):
                raise DivergedError(f"training diverged: the mean update of round {plan.number} is not finite")
            return _uploads(self.ranks.rows(_table(told), counts))

        return RoundResult(mean, buffers, delivered, uploads)

    def client_state(self, client: int) -> ClientState | None:
        """State of a client that this rank ran last; None for the others."""
        return self.local.client_state(client)

    def save(self) -> ClientTable:
        """Return the states of the clients that this rank ran last."""
        return self.local.save()

    def restore(self, table: ClientTable) -> None:
        """Restore the states that ``save`` or ``own_rows`` returned on this rank."""
        self.local.restore(table)
        self._restored, self._owners = table.numbers(), None

    def gathered(self, tables: Sequence[ClientTable]) -> list[ClientTable]:
        """Return tables of ``save`` with the clients of all ranks, on the first one."""
        return self._gathering.tables(tables)

    def own_rows(self, table: ClientTable) -> ClientTable:
        """Return this rank's share of a table with the clients of all ranks, which the first one may overwrite."""
        numbers = np.array_split(table.numbers(), self.ranks.size)[self.ranks.rank].tolist()
        if self.ranks.is_first:
            return ClientTable(table.names, table.values, {client: table.rows[client] for client in numbers})
        store = self.local.store
        store.go_back(ClientTable.empty())
        for client in numbers:
            store.put(client, state_of(table.rows[client], table.names, table.values))
        return store.table()

    def hold(self) -> None:
        """Hold the client states of now, so that ``take_back`` can return to them."""
        self.local.hold()

    def take_back(self) -> bool:
        """Return to the client states that were held; False if that is not possible."""
        return self.local.take_back()

    def close(self) -> None:
        """Release threads and memory."""
        self.local.close()

    def _means(
        self, state: ServerState, plan: RoundPlan, done: PartialRound | None, counts: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean update and the mean buffers; the last rank computes both, so that all have the same bits."""
        sums = torch.zeros(state.weights.numel(), dtype=self.local.sums_type, device=state.weights.device)
        self.ranks.summed_in_order((lambda _segment, _first: None) if done is None else done.add_to, sums)
        size = state.buffers.numel()
        means = torch.cat([sums.float(), state.buffers])
        if size:
            own = state.buffers.new_zeros((0, size)) if done is None else done.buffers
            stacked = self.ranks.stacked(own, counts)
            means[-size:] = mean_buffers(stacked, state.buffers, delivered_uploads(plan), plan.shares)
        self.ranks.from_last(means)
        return means[: sums.numel()], means[sums.numel() :]

    def _move_states(self, plan: RoundPlan, parts: list[slice], size: int) -> None:
        """Bring what participants keep to the ranks that run them; raise what fails here when all have moved."""
        names, errors = kept_vectors(plan.options), list[Exception]()
        if self._owners is None:
            self._owners = self._told_owners()
        for rank, part in enumerate(parts):
            for client in plan.participants[part].tolist():
                owner = self._owners.get(client, rank)
                self._owners[client] = rank
                if owner != rank and owner == self.ranks.rank:
                    self._send_state(client, names, size, rank, errors)
                elif owner != rank and rank == self.ranks.rank:
                    self._receive_state(client, names, size, owner, errors)
        if errors:
            raise errors[0]

    def _told_owners(self) -> dict[int, int]:
        """Return the owners of all clients after a restore."""
        told = [json.loads(text) for text in self.ranks.texts(json.dumps(self._restored.tolist()))]
        return {client: rank for rank, clients in enumerate(told) for client in clients}

    def _send_state(self, client: int, names: tuple[str, ...], size: int, to: int, errors: list[Exception]) -> None:
        """Send what a client keeps, or zeros where it cannot be read: the other rank waits for it."""
        state = None
        with _noted(errors):
            state = self.local.client_state(client)
            assert state is not None
        self.ranks.send(torch.tensor([0 if state is None else state.steps]), to)
        for name in names:
            vector = np.zeros(size, np.float32) if state is None else np.ascontiguousarray(getattr(state, name))
            self.ranks.send(torch.from_numpy(vector), to)
        with _noted(errors):
            self.local.drop_client(client)

    def _receive_state(
        self, client: int, names: tuple[str, ...], size: int, owner: int, errors: list[Exception]
    ) -> None:
        steps = int(self.ranks.receive(torch.zeros(1, dtype=torch.int64), owner))
        vectors: dict[str, Any] = {name: self.ranks.receive(torch.zeros(size), owner).numpy() for name in names}
        with _noted(errors):
            self.local.put_client(client, ClientState(**vectors, steps=steps))


@contextlib.contextmanager
def _noted(errors: list[Exception]) -> Iterator[None]:
    """Note an error and go on."""
    try:
        yield
    except Exception as error:
        errors.append(error)


def parts_of_ranks(plan: RoundPlan, chunk: int, ranks: int) -> list[slice]:
    """Return the participants of each rank: whole chunks, in order, of about the same number of samples."""
    chunks = plan.parts(chunk)
    work = np.array([int(plan.batch_sizes[:, part].sum()) for part in chunks], dtype=np.int64)
    middles = 2 * np.cumsum(work) - work
    rank_of = middles * ranks // (2 * int(work.sum()))
    edges = np.searchsorted(rank_of, np.arange(ranks + 1)) * chunk
    ends: IntArray = np.minimum(edges, plan.participants.size)
    return [slice(int(first), int(last)) for first, last in itertools.pairwise(ends)]


def _table(told: Uploads) -> FloatArray:
    """Return uploads as rows of numbers that float64 holds exactly."""
    columns = [told.entries, told.payload_bytes, told.written, *told.losses, *told.correct]
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def _uploads(table: FloatArray) -> Uploads:
    """Return the uploads of such rows; losses are float32 in the order of a single process, so that means agree."""
    told: Any = np.ascontiguousarray(table[:, _COLUMNS:].T.astype(np.float32))
    losses, correct = np.split(told, 2)
    return Uploads(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2] > 0, losses, correct)
