"""A whole ClientApp: the node trains with FewJoules's own local steps, which are those of the simulator."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fewjoules.integrations.flower.handler import answered_here, handle

if TYPE_CHECKING:
    from torch import nn

    from fewjoules.engine.models.loss import Loss
    from fewjoules.integrations.flower.local import LocalTraining

Data = Callable[[Context], tuple[Any, Any]]


def client_app(model: "nn.Module | Callable[[], nn.Module]", data: Data, *, loss: "Loss | None" = None) -> ClientApp:
    """Return an app that trains ``model`` on the inputs and targets that ``data(context)`` returns."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        made: list[LocalTraining] = []

        def training() -> "LocalTraining":
            if not made:
                made.append(_training(model, data(context), loss))
            return made[0]

        respond = answered_here(context, lambda held, request: training()(held, request))
        return handle(message, context, respond, lambda: training().size)

    return app


def _training(model: Any, data: tuple[Any, Any], loss: Any) -> "LocalTraining":
    import torch
    from torch import nn

    from fewjoules.engine.models.loss import cross_entropy
    from fewjoules.engine.simulator.federation import Samples
    from fewjoules.integrations.flower.local import LocalTraining

    inputs, targets = (torch.as_tensor(one) for one in data)
    made = model if isinstance(model, nn.Module) else model()
    return LocalTraining(made, Samples(inputs, targets), loss or cross_entropy)
