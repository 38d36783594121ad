"""A node's side of a round: take the model up, train, keep what was not sent, reply.

Nothing here knows Flower: ``mod`` and ``client`` hand over requests that came in its messages.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.codec.frame import decode, encode
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.client import LocalSteps, client_round, new_client
from fewjoules.engine.algorithm.downlink import MAX_PARAMETERS, taken_up
from fewjoules.engine.algorithm.round import ClientOrder
from fewjoules.errors import InvalidInputError
from fewjoules.integrations.flower.memory import Held, NodeMemory
from fewjoules.integrations.flower.messages import WHOLE, Reply, Request

Trainer = Callable[[Held, Request], LocalSteps]


def answer(request: Request, memory: NodeMemory, trainer: Trainer) -> Reply:
    """Run the round that a request asks for; ``trainer`` makes the local steps from the model that the node has.

    A request that was answered before gets the same reply again, without training. One for an earlier round is refused:
    to take the last upload back, which the server may have accepted, would count it twice.
    """
    with memory.alone():
        return _answer(request, memory, trainer)


def _answer(request: Request, memory: NodeMemory, trainer: Trainer) -> Reply:
    held = memory.load()
    if held is not None and held.reply is not None:
        if held.digest == request.digest:
            return held.reply
        if request.round < held.reply.round:
            raise InvalidInputError(
                f"round {held.reply.round} was answered already, got an order for round {request.round}"
            )
    model = _taken_up(request, held)
    order = ClientOrder.from_dict(request.order)
    if model is None:
        return Reply(request.run, memory.client, order.round, needs_model=True)
    state = model.state or new_client(order, model.weights.size)
    upload, kept = client_round(trainer(model, request), state, order, write=True)
    assert upload.payload is not None
    reply = Reply(
        run=request.run,
        client=memory.client,
        round=order.round,
        update=upload.payload,
        buffers=dense_payload(upload.buffers),
        losses=tuple(map(float, upload.losses)),
        correct=tuple(map(float, upload.correct)),
        samples=sum(order.batch_sizes),
    )
    memory.save(replace(model, state=kept, digest=request.digest, reply=reply))
    return reply


def _taken_up(request: Request, held: Held | None) -> Held | None:
    """Return what the node holds with the request's model; None if the message does not fit the model that it has."""
    if request.base == WHOLE:
        state = None if held is None else held.state
        weights = taken_up(None, request.weights, assigns=True)
        return Held(request.model_round, weights, dense_of(request.buffers), request.layout or [], state)
    if held is None or not _fits(request, held.model_round):
        return None
    weights = held.weights
    if held.model_round != request.model_round:
        weights = taken_up(weights, request.weights, assigns=request.assigns)
    return replace(held, model_round=request.model_round, weights=weights, buffers=dense_of(request.buffers))


def _fits(request: Request, model_round: int) -> bool:
    """Whether a message brings the model after ``model_round`` rounds up to date.

    Values that changed since an older model include all that changed since this one; a change fits one model alone.
    """
    if request.assigns:
        return request.base <= model_round <= request.model_round
    return model_round in (request.base, request.model_round)


def dense_payload(vector: Floats) -> bytes:
    """Write a vector with every entry; nothing at all for an empty one."""
    if not vector.size:
        return b""
    return encode(SparseUpdate.trusted(vector.size, np.arange(vector.size), vector))


def dense_of(payload: bytes, max_size: int = MAX_PARAMETERS) -> Floats:
    """Read a vector that ``dense_payload`` wrote."""
    return decode(payload, max_size=max_size).to_dense() if payload else np.zeros(0, dtype=np.float32)
