"""A whole ClientApp: the node trains with FewJoules's own local steps, which are those of the simulator."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fewjoules.errors import InvalidInputError
from fewjoules.integrations.flower.handler import answered_here, handle
from fewjoules.integrations.flower.worker import Worker

if TYPE_CHECKING:
    from torch import nn

    from fewjoules.engine.models.loss import Loss
    from fewjoules.integrations.flower.local import LocalTraining

Data = Callable[[Context], tuple[Any, Any]]


def client_app(
    model: "str | nn.Module | Callable[[], nn.Module]", data: Data | None = None, *, loss: "Loss | None" = None
) -> ClientApp:
    """Return an app for Flower that trains without code of one's own.

    Flower imports the app anew for each message. With a model given as "package.module:function", a long-lived worker
    process calls ``function(node_config)`` once, which returns model, inputs, targets and, if it likes, a loss; the app
    itself then imports neither PyTorch nor the module.

    Args:
        model: A model, a function that makes one, or "package.module:function".
        data: ``data(context)`` returns inputs and targets; not needed with "package.module:function".
        loss: Loss, as for ``fewjoules.train``.

    Examples:
        >>> app = client_app("my_package.task:load")
    """
    if isinstance(model, str):
        return _passing_on(model)
    if data is None:
        raise InvalidInputError("client_app needs data, a function that returns inputs and targets, got none")
    return _training_here(model, data, loss)


def _passing_on(target: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        worker = Worker(target, context.node_config)
        return handle(message, context, worker.round, worker.samples)

    return app


def _training_here(model: Any, data: Data, loss: "Loss | None") -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        made: list[LocalTraining] = []

        def training() -> "LocalTraining":
            from fewjoules.integrations.flower.local import local_training

            if not made:
                made.append(local_training(model, *data(context), loss))
            return made[0]

        respond = answered_here(context, lambda held, request: training()(held, request))
        return handle(message, context, respond, lambda: training().size)

    return app
