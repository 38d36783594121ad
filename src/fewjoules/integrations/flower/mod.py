"""A Flower mod that turns the dense update of an ordinary ``@app.train()`` function into a sparse payload.

    app = ClientApp(mods=[fewjoules_mod])

The function gets the arrays and the config that it always got, and returns the trained arrays; the mod keeps what was
not sent and adds it to the next update. The config also tells ``local-steps``, ``batch-size`` and ``learning-rate``.
"""

from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from fewjoules.engine.algorithm.client import LocalSteps, Steps
from fewjoules.engine.algorithm.round import ClientOrder
from fewjoules.engine.algorithm.state import ClientState
from fewjoules.errors import FewJoulesError
from fewjoules.integrations.flower.arrays import FlatModel, flat_like
from fewjoules.integrations.flower.handler import answered_here, handle
from fewjoules.integrations.flower.memory import Held
from fewjoules.integrations.flower.messages import Request
from fewjoules.integrations.flower.records import array_record, asked_for, named_arrays

ARRAYS, CONFIG = "arrays", "config"  # the names of Flower's own strategies
LOSSES = ("train_loss", "train-loss", "loss")


def fewjoules_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Make the training function of an ordinary app sparse, inside a round of ``FewJoulesStrategy``.

    Other messages are passed on unchanged.

    Args:
        message: The message that the node received.
        context: State and configuration of the node.
        call_next: The app, or the next mod.

    Returns:
        The reply, with a payload in place of the weights.

    Examples:
        >>> app = ClientApp(mods=[fewjoules_mod])
    """
    if asked_for(message) is None:
        return call_next(message, context)

    def trainer(held: Held, request: Request) -> LocalSteps:
        return lambda state, order: _steps(held, request, state, order)

    def _steps(held: Held, request: Request, state: ClientState, order: ClientOrder) -> Steps:
        message.content = _as_usual(held, request, order)
        reply = call_next(message, context)
        if reply.has_error():
            raise FewJoulesError(f"the training function failed: {reply.error.reason}")
        return _trained(held, reply, state, order)

    return handle(message, context, answered_here(context, trainer), lambda: None)


def _as_usual(held: Held, request: Request, order: ClientOrder) -> RecordDict:
    """Return the content that an ordinary training function expects."""
    told = request.config | {
        "server-round": order.round,
        "local-steps": order.local_steps,
        "batch-size": order.batch_sizes[0],
        "learning-rate": order.rates[0],
    }
    arrays = FlatModel(held.layout, held.weights, held.buffers).arrays()
    return RecordDict({ARRAYS: array_record(arrays), CONFIG: ConfigRecord(told)})


def _trained(held: Held, reply: Message, state: ClientState, order: ClientOrder) -> Steps:
    record = next(iter(reply.content.array_records.values()))
    weights, buffers = flat_like(held.layout, named_arrays(record))
    metrics: dict[str, Any] = {}
    for one in reply.content.metric_records.values():
        metrics |= dict(one)
    loss = next((float(metrics[name]) for name in LOSSES if isinstance(metrics.get(name), (int, float))), np.nan)
    steps = np.full(order.local_steps, loss), np.full(order.local_steps, np.nan)
    return Steps(held.weights - weights, buffers, state.velocity, state.squares, *steps)
