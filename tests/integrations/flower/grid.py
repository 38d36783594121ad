"""A grid whose nodes are ClientApps in this process. Messages pass through Flower's own serialisation both ways."""

import itertools

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fewjoules.integrations.flower.polling import Clock


class JumpingClock:
    """A clock that stands still while there is work and jumps ahead when somebody waits."""

    def __init__(self):
        self.seconds = 0.0

    def clock(self):
        return Clock(lambda: self.seconds, self.sleep)

    def sleep(self, seconds):
        self.seconds += seconds


class LocalGrid(Grid):
    """Nodes are (app, node config, public key, registered name); ``lost`` decides which replies never arrive."""

    def __init__(self, nodes, *, run_config=None):
        self.nodes = dict(nodes)
        self.run_config = run_config or {}
        self.lost = lambda message, reply: False
        self.tampered = lambda message, reply: reply
        self._replies = {}
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # Flower sets it in its processes
        self._numbers = itertools.count(1)
        self.sent = []

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **given):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.nodes)

    def get_nodes(self):
        return [
            NodeInfo(node_id=number, public_key=node.get("key", b""), name=node.get("name", ""))
            for number, node in self.nodes.items()
        ]

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            number = f"{next(self._numbers):064x}"
            message.metadata.__dict__["_message_id"] = number
            self.sent.append(message)
            numbers.append(number)
            node = self.nodes.get(message.metadata.dst_node_id)
            reply = self._answered(through_the_wire(message), node)
            if reply is not None and not self.lost(message, reply):
                self._replies[number] = self.tampered(message, reply)
        return numbers

    def _answered(self, message, node):
        if node is None:
            return Message(Error(5, "node unavailable"), reply_to=message)
        context = Context(1, message.metadata.dst_node_id, node["config"], RecordDict(), self.run_config)
        try:
            return through_the_wire(node["app"](message, context))
        except Killed:
            return None
        except Exception as error:  # as Flower's client process does
            return Message(Error(2, repr(error)), reply_to=message)

    def pull_messages(self, message_ids):
        return [self._replies.pop(number) for number in list(message_ids) if number in self._replies]

    def forget_replies(self):
        """Lose what waits for a server that was killed: its next start is another run of Flower's."""
        self._replies.clear()

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


class Killed(BaseException):
    """Stands for a kill -9 of a node: nothing after it runs, and no reply is sent."""


def through_the_wire(message):
    copied = message_from_proto(message_to_proto(message))
    copied.metadata.__dict__["_message_id"] = message.metadata.message_id
    return copied
