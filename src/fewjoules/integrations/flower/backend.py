"""Backend whose clients are Flower nodes: send each its order and what it lacks of the model, collect the uploads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from logging import getLogger
from typing import Any

import numpy as np
import torch
from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from fewjoules.arrays import Flags, Floats
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.downlink import Downlink, ModelMessage
from fewjoules.engine.algorithm.round import ClientOrder, Received, RoundPlan, RoundResult, Uploads
from fewjoules.engine.algorithm.server import mean_buffers, mean_update
from fewjoules.engine.algorithm.state import NO_MODEL, ClientState, ServerState
from fewjoules.engine.store.client_store import ClientTable
from fewjoules.errors import FewJoulesError, InvalidInputError, require_integer, require_number
from fewjoules.integrations.flower.arrays import Layout
from fewjoules.integrations.flower.messages import WHOLE, Reply, Request
from fewjoules.integrations.flower.node import dense_payload
from fewjoules.integrations.flower.polling import SYSTEM_CLOCK, Clock, send
from fewjoules.integrations.flower.records import PayloadRecord, error_text, model_record, reply_of, request_record
from fewjoules.integrations.flower.roster import Roster
from fewjoules.integrations.flower.screening import Screening

WAIT_SECONDS = 1.0  # between looks for nodes that are offline
_log = getLogger("flwr.fewjoules")


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundRules:
    """When a round ends: all replied, or the deadline passed and enough uploads are accepted.

    A round with fewer is asked for again; nodes that answered before do not train again. Each attempt begins when
    enough nodes are online, or after ``deadline_seconds``.

    Args:
        deadline_seconds: Longest time of an attempt.
        min_replies: Uploads that a round needs.
        attempts: How often a round is asked for before the training fails.
    """

    deadline_seconds: float = 600.0
    min_replies: int = 1
    attempts: int = 5

    def __post_init__(self) -> None:
        """Refuse rules by which no round could end."""
        require_number("deadline_seconds", self.deadline_seconds, low=0.0, above=True)
        require_integer("min_replies", self.min_replies, low=0, high=2**31 - 1)
        require_integer("attempts", self.attempts, low=1, high=2**31 - 1)


USUAL_RULES, USUAL_SCREENING = RoundRules(), Screening()


@dataclass(frozen=True, slots=True)
class _Accepted:
    update: SparseUpdate
    buffers: Floats
    reply: Reply


class FlowerBackend:
    """Runs rounds on the nodes of a grid; what clients keep stays on their nodes."""

    sends_changes = True
    keeps_clients = False

    def __init__(
        self,
        grid: Grid,
        roster: Roster,
        clients: list[str],
        run: str,
        layout: Layout,
        *,
        rules: RoundRules = USUAL_RULES,
        screening: Screening = USUAL_SCREENING,
        config: Mapping[str, Any] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """``clients`` are the client-ids by number; ``run`` names the run in the memories of the nodes."""
        self.grid, self.roster, self.clients, self.run_id, self.layout = grid, roster, clients, run, layout
        self.rules, self.screening, self.config, self._clock = rules, screening, dict(config or {}), clock

    def prepare(self, plan: RoundPlan) -> None:
        """Do nothing: nodes draw their batches themselves."""

    def run(self, state: ServerState, plan: RoundPlan, meanwhile: Callable[[], None]) -> RoundResult:
        """Run one round; it ends by ``rules``."""
        downlink = _Requests(state, plan, self.layout)
        received = Received.nothing(plan.participants.size)
        accepted: dict[int, _Accepted] = {}
        for attempt in range(1, self.rules.attempts + 1):
            open_rows = [row for row in range(plan.participants.size) if row not in accepted]
            self._wait_for_nodes(plan, open_rows, self.rules.min_replies - len(accepted))
            accepted |= self._ask(state, plan, open_rows, downlink, received, meanwhile)
            meanwhile = _nothing
            if len(accepted) >= min(self.rules.min_replies, plan.participants.size):
                return self._result(state, plan, accepted, received)
            _log.warning(
                "round %s: %s of %s uploads were accepted and %s are needed; attempt %s of %s",
                plan.number,
                len(accepted),
                plan.participants.size,
                self.rules.min_replies,
                attempt,
                self.rules.attempts,
            )
        raise FewJoulesError(
            f"round {plan.number} had {len(accepted)} accepted uploads after {self.rules.attempts} attempts, and needs "
            f"{self.rules.min_replies}; start again to go on from round {state.round}"
        )

    def client_state(self, client: int) -> ClientState | None:
        """None: only the node knows."""

    def save(self) -> ClientTable:
        """Return no client: they store their states themselves."""
        return ClientTable.empty()

    def restore(self, table: ClientTable) -> None:
        """Do nothing: the clients store their states themselves."""

    def hold(self) -> None:
        """Do nothing: the clients store their states themselves."""

    def take_back(self) -> bool:
        """Tell that the clients have gone on."""
        return False

    def close(self) -> None:
        """Do nothing: the grid belongs to Flower."""

    def _wait_for_nodes(self, plan: RoundPlan, rows: list[int], needed: int) -> None:
        """Wait until enough of the participants in ``rows`` are online, for the time that a round may take."""
        end = self._clock.now() + self.rules.deadline_seconds
        self.roster.refresh(self.grid)
        while sum(self._node(plan, row) is not None for row in rows) < min(needed, len(rows)):
            left = end - self._clock.now()
            if left <= 0.0:
                return
            self._clock.sleep(min(WAIT_SECONDS, left))
            self.roster.refresh(self.grid)

    def _ask(
        self,
        state: ServerState,
        plan: RoundPlan,
        rows: list[int],
        downlink: "_Requests",
        received: Received,
        meanwhile: Callable[[], None],
    ) -> dict[int, _Accepted]:
        """Send orders to the participants in ``rows`` that are online, and return the uploads that were accepted."""
        held = dict(zip(rows, state.held_rounds(plan.participants[rows]).tolist(), strict=True))
        end = self._clock.now() + self.rules.deadline_seconds
        accepted: dict[int, _Accepted] = {}
        for _ in range(2):  # a node that has lost its model gets it whole the second time
            asked = [row for row in rows if self._node(plan, row) is not None]
            messages = [self._message(plan, row, downlink, held[row]) for row in asked]
            for row in asked:
                downlink.add_to(received, row, held[row])
            left = end - self._clock.now()
            replies = send(self.grid, messages, left, meanwhile=meanwhile, clock=self._clock)
            meanwhile = _nothing
            rows = []
            for place, reply in replies.items():
                row = asked[place]
                if self._take(state, plan, row, reply, accepted, has_model=held[row] == NO_MODEL):
                    continue
                rows.append(row)
                held[row] = NO_MODEL
            if not rows:
                break
        return accepted

    def _take(
        self,
        state: ServerState,
        plan: RoundPlan,
        row: int,
        reply: Message,
        accepted: dict[int, _Accepted],
        *,
        has_model: bool,
    ) -> bool:
        """Accept a reply or refuse it with a warning; False if the node needs the whole model and did not have it."""
        client = self._client(plan, row)
        try:
            if reply.has_error():
                raise InvalidInputError(error_text(reply))
            told = reply_of(reply)
            if told.needs_model and told.client == client and told.run == self.run_id:
                if has_model:
                    raise InvalidInputError("it asks for the model that it was sent")
                return False
            update = self.screening.update(told, plan.order(row), self.run_id, client, state.weights.numel())
            accepted[row] = _Accepted(update, self.screening.buffers(told, state.buffers.numel()), told)
        except InvalidInputError as error:
            _log.warning("round %s: the reply of client %s is refused: %s", plan.number, client, error)
        return True

    def _message(self, plan: RoundPlan, row: int, downlink: "_Requests", held: int) -> Message:
        node = self._node(plan, row)
        assert node is not None
        request, model = downlink.request(self.run_id, plan.order(row), held, self.config)
        content = request_record(request, model)
        return Message(content, dst_node_id=node, message_type=MessageType.TRAIN, group_id=str(plan.number))

    def _client(self, plan: RoundPlan, row: int) -> str:
        return self.clients[int(plan.participants[row])]

    def _node(self, plan: RoundPlan, row: int) -> int | None:
        return self.roster.node_of(self._client(plan, row))

    def _result(
        self, state: ServerState, plan: RoundPlan, accepted: dict[int, _Accepted], received: Received
    ) -> RoundResult:
        everyone = plan.participants.size
        delivered: Flags = np.array([row in accepted for row in range(everyone)])
        size = state.weights.numel()
        nothing = SparseUpdate.trusted(size, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
        updates = [accepted[row].update if row in accepted else nothing for row in range(everyone)]
        buffers = torch.zeros((everyone, state.buffers.numel()))
        for row, one in accepted.items():
            buffers[row] = torch.from_numpy(one.buffers)
        uploads = _uploads(plan, accepted)
        return RoundResult(
            mean_update=torch.from_numpy(mean_update(updates, delivered, plan.shares)),
            buffers=mean_buffers(buffers, state.buffers, delivered, plan.shares),
            delivered=delivered,
            uploads=lambda: uploads,
            reached=delivered,
            received=received,
        )


class _Requests:
    """The requests of a round; nodes that hold the same model share one record of what they lack, written once."""

    def __init__(self, state: ServerState, plan: RoundPlan, layout: Layout) -> None:
        self._round, self._layout = state.round, layout
        self._downlink = Downlink(state, plan.options)
        self._buffers = dense_payload(state.buffers.numpy())
        self._records: dict[int, PayloadRecord] = {}

    def add_to(self, received: Received, row: int, held: int) -> None:
        """Add the message for a node that holds the model after ``held`` rounds to what it was sent."""
        message = self._downlink.message(held)
        received.payload_bytes[row] += len(message.payload) + len(self._buffers)
        received.entries[row] += message.update.count

    def request(self, run: str, order: ClientOrder, held: int, config: dict[str, Any]) -> tuple[Request, PayloadRecord]:
        """Return the request for a node and its record of the model."""
        message = self._downlink.message(held)
        whole = message.base == NO_MODEL
        request = Request(
            run=run,
            order=order.to_dict(),
            model_round=self._round,
            base=WHOLE if whole else message.base,
            assigns=message.assigns,
            weights=message.payload,
            buffers=self._buffers,
            layout=self._layout if whole else None,
            config=config,
        )
        return request, self._record(message)

    def _record(self, message: ModelMessage) -> PayloadRecord:
        if message.base not in self._records:
            self._records[message.base] = model_record(message.payload, self._buffers)
        return self._records[message.base]


def _uploads(plan: RoundPlan, accepted: dict[int, _Accepted]) -> Uploads:
    everyone, steps = plan.participants.size, plan.rates.size
    entries, sizes = np.zeros(everyone, dtype=np.int64), np.zeros(everyone, dtype=np.int64)
    losses, correct = np.full((steps, everyone), np.nan), np.full((steps, everyone), np.nan)
    for row, one in accepted.items():
        entries[row] = one.update.count
        sizes[row] = len(one.reply.update) + len(one.reply.buffers)
        losses[:, row], correct[:, row] = one.reply.losses, one.reply.correct
    told = np.array([row in accepted for row in range(everyone)])
    return Uploads(entries, sizes, told, losses, correct, told)


def _nothing() -> None:
    pass
