"""Which node is which client. Nodes say who they are; that is checked against their keys and registered names."""

from collections.abc import Mapping
from dataclasses import dataclass
from logging import getLogger

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules.integrations.flower.identity import Introduction
from fewjoules.integrations.flower.polling import SYSTEM_CLOCK, Clock, send
from fewjoules.integrations.flower.records import INTRODUCE, OURS, introduction_of

INTRODUCTION_SECONDS = 60.0
ASK_AGAIN_SECONDS = 60.0  # a node that did not introduce itself is asked again after so long
_log = getLogger("flwr.fewjoules")


@dataclass(frozen=True, slots=True)
class Member:
    """A client and the node that speaks for it.

    ``key`` is the public key of a node that was registered with a name. It is empty for other nodes: where Flower does
    not authenticate nodes, they take another key at every start.
    """

    told: Introduction
    node: int
    key: bytes


class Roster:
    """The clients of a run, by client-id, and the nodes that are online for them."""

    def __init__(self, keys: Mapping[str, bytes] | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """``keys`` are those by which clients were known before a restart of the server."""
        self.members: dict[str, Member] = {}
        self.keys = dict(keys or {})
        self._refused: set[int] = set()  # nodes that are not asked again while they are online
        self._waiting: dict[int, Member] = {}  # for a client that another node still seems to be online for
        self._silent_until: dict[int, float] = {}
        self._warned: set[str] = set()
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
        self._refused &= online.keys()
        self._waiting = {node: one for node, one in self._waiting.items() if node in online}
        for node, member in list(self._waiting.items()):
            if member.told.client not in self.members:
                self._take_in(self._waiting.pop(node))
        new = [node for node in online if not self._is_known(node)]
        told = self._introductions(grid, new)
        for node in new:
            if node in told:
                name = online[node].name
                self._admit(Member(told[node], node, bytes(online[node].public_key) if name else b""), name)
            else:
                self._silent_until[node] = self._clock.now() + ASK_AGAIN_SECONDS

    def node_of(self, client: str) -> int | None:
        """Return the node that is online for a client; None if there is none."""
        member = self.members.get(client)
        return None if member is None else member.node

    def _is_known(self, node: int) -> bool:
        members = {one.node for one in self.members.values()}
        silent = self._clock.now() < self._silent_until.get(node, float("-inf"))
        return silent or node in members or node in self._refused or node in self._waiting

    def _admit(self, member: Member, registered: str) -> None:
        """Take a node as the one that speaks for its client, let it wait for its turn, or refuse it."""
        client, other = member.told.client, self.members.get(member.told.client)
        if registered and registered != client:
            self._refuse(member, f"it is registered as {registered!r} and claims to be client {client!r}")
        elif self.keys.get(client, b"") not in (b"", member.key):
            self._refuse(member, f"client {client!r} is known by another key")
        elif other is not None:  # it may be the same device, started again before Flower has missed the old node
            self._waiting[member.node] = member
            self._warn(f"node {member.node} waits: client {client!r} is online already, as node {other.node}")
        else:
            self._take_in(member)

    def _take_in(self, member: Member) -> None:
        self.keys[member.told.client] = member.key
        self.members[member.told.client] = member

    def _introductions(self, grid: Grid, nodes: list[int]) -> dict[int, Introduction]:
        ask = RecordDict({OURS: ConfigRecord({"ask": INTRODUCE})})
        messages = [Message(ask, dst_node_id=node, message_type=MessageType.TRAIN) for node in nodes]
        found = {}
        for place, reply in send(grid, messages, INTRODUCTION_SECONDS, clock=self._clock).items():
            try:
                found[nodes[place]] = introduction_of(reply)
            except InvalidInputError as error:
                self._warn(f"node {nodes[place]} did not introduce itself: {error}")
        return found

    def _refuse(self, member: Member, reason: str) -> None:
        self._refused.add(member.node)
        self._warn(f"node {member.node} is refused: {reason}")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s", text)
