"""A message of ``FewJoulesStrategy`` at a node: introduce the node, or run the round that is asked for."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from flwr.app import Context, Message

from fewjoules.integrations.flower.identity import client_id, introduction, state_folder
from fewjoules.integrations.flower.messages import Reply, Request
from fewjoules.integrations.flower.records import INTRODUCE, asked_for, introduction_record, reply_record, request_of

if TYPE_CHECKING:
    from fewjoules.integrations.flower.node import Trainer

Respond = Callable[[Request], Reply]


def handle(message: Message, context: Context, respond: Respond, samples: Callable[[], int | None]) -> Message:
    """Return the node's reply to a message of ours."""
    if asked_for(message) == INTRODUCE:
        told = introduction(context.node_config, samples())
        return Message(introduction_record(told), reply_to=message)
    return Message(reply_record(respond(request_of(message))), reply_to=message)


def answered_here(context: Context, trainer: "Trainer") -> Respond:
    """Return a function that runs rounds in this process, with the memory that the node config names."""

    def respond(request: Request) -> Reply:
        from fewjoules.integrations.flower.memory import NodeMemory
        from fewjoules.integrations.flower.node import answer

        config = context.node_config
        return answer(request, NodeMemory(state_folder(config), client_id(config), request.run), trainer)

    return respond
