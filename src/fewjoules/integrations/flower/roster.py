"""Which node is which client. Nodes say who they are; that is checked against their keys and registered names."""

from collections.abc import Mapping
from dataclasses import dataclass
from logging import getLogger

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules.integrations.flower.identity import Introduction
from fewjoules.integrations.flower.polling import SYSTEM_CLOCK, Clock, send
from fewjoules.integrations.flower.records import INTRODUCE, OURS
from fewjoules.physics.fleet import COSTS

INTRODUCTION_SECONDS = 60.0
ASK_AGAIN_SECONDS = 60.0  # a node that did not introduce itself is asked again after so long
_log = getLogger("flwr.fewjoules")


@dataclass(frozen=True, slots=True)
class Member:
    """A client and the node that speaks for it; ``key`` is the node's public key, empty without authentication."""

    told: Introduction
    node: int
    key: bytes


class Roster:
    """The clients of a run, by client-id, and the nodes that are online for them."""

    def __init__(self, keys: Mapping[str, bytes] | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """``keys`` are those by which clients were known before a restart of the server."""
        self.members: dict[str, Member] = {}
        self.keys = dict(keys or {})
        self._refused: set[int] = set()
        self._waiting: dict[int, Member] = {}  # for a client that another node still seems to be online for
        self._silent_until: dict[int, float] = {}
        self._clock = clock

    def gather(self, grid: Grid, count: int, wait_seconds: float) -> None:
        """Wait until ``count`` clients have introduced themselves."""
        end = self._clock.now() + wait_seconds
        while len(self.members) < count:
            self.refresh(grid)
            if len(self.members) >= count:
                return
            if self._clock.now() >= end:
                raise FewJoulesError(
                    f"{count} clients must be online to begin, got {len(self.members)} in {wait_seconds:g} s: "
                    f"{', '.join(sorted(self.members)) or 'none'}"
                )
            self._clock.sleep(1.0)

    def refresh(self, grid: Grid) -> None:
        """Forget nodes that went away and ask new ones who they are."""
        online = {node.node_id: node for node in grid.get_nodes()}
        self.members = {name: one for name, one in self.members.items() if one.node in online}
        self._waiting = {node: one for node, one in self._waiting.items() if node in online}
        for node, member in list(self._waiting.items()):
            if member.told.client not in self.members:
                self.members[member.told.client] = self._waiting.pop(node)
        new = [node for node in online if not self._is_known(node)]
        told = _introductions(grid, new, self._clock)
        for node in new:
            if node not in told:
                self._silent_until[node] = self._clock.now() + ASK_AGAIN_SECONDS
                continue
            try:
                self._admit(Member(told[node], node, bytes(online[node].public_key)), online[node].name)
            except InvalidInputError as error:
                self._refused.add(node)
                _log.warning("node %s is refused: %s", node, error)

    def node_of(self, client: str) -> int | None:
        """Return the node that is online for a client; None if there is none."""
        member = self.members.get(client)
        return None if member is None else member.node

    def _is_known(self, node: int) -> bool:
        members = {one.node for one in self.members.values()}
        silent = self._clock.now() < self._silent_until.get(node, float("-inf"))
        return silent or node in members or node in self._refused or node in self._waiting

    def _admit(self, member: Member, registered: str) -> None:
        """Take a node in; one that comes for a client who seems to be online waits until the other node is gone."""
        client = member.told.client
        if registered and registered != client:
            raise InvalidInputError(f"it is registered as {registered!r} and claims to be client {client!r}")
        if self.keys.get(client, member.key) != member.key:
            raise InvalidInputError(f"client {client!r} is known by another key")
        if client in self.members:
            self._waiting[member.node] = member
            _log.warning("node %s waits: client %s is online as node %s", member.node, client, self.node_of(client))
            return
        self.keys[client] = member.key
        self.members[client] = member


def _introductions(grid: Grid, nodes: list[int], clock: Clock) -> dict[int, Introduction]:
    ask = RecordDict({OURS: ConfigRecord({"ask": INTRODUCE})})
    messages = [Message(ask, dst_node_id=node, message_type=MessageType.TRAIN) for node in nodes]
    if not messages:
        return {}
    found = {}
    for place, reply in send(grid, messages, INTRODUCTION_SECONDS, clock=clock).items():
        try:
            found[nodes[place]] = _introduction_of(reply)
        except (InvalidInputError, KeyError, TypeError, ValueError) as error:
            _log.warning("node %s did not introduce itself: %s", nodes[place], error)
    return found


def _introduction_of(reply: Message) -> Introduction:
    if reply.has_error():
        raise InvalidInputError(f"Flower's error {reply.error.code}: {reply.error.reason}")
    told = reply.content.config_records[OURS]
    costs = {name: float(told[name]) for name in COSTS if name in told}  # type: ignore[arg-type]
    if any(not cost >= 0.0 for cost in costs.values()):
        raise InvalidInputError(f"its costs must be numbers >= 0, got {costs}")
    samples = told["samples"]
    if isinstance(samples, bool) or not isinstance(samples, int) or not 0 <= samples < 2**31:
        raise InvalidInputError(f"its samples must be 0 to 2^31 - 1, got {samples!r}")
    return Introduction(str(told["client-id"])[:64], samples, costs)
