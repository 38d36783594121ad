"""``fewjoules.resume``: continue a run of ``fewjoules.train``, bit for bit as if it had not stopped."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fewjoules.engine.algorithm.step_sizes import RateFunction
from fewjoules.engine.loop import Report
from fewjoules.engine.models.layout import require_trainable
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.simulator.federation import Federation
from fewjoules.errors import InvalidInputError, require_number
from fewjoules.physics.fleet import Fleet
from fewjoules.runs.arguments import require_kinds
from fewjoules.runs.callbacks import Callback
from fewjoules.runs.client_data import Arrays
from fewjoules.runs.device import choose_device
from fewjoules.runs.folder import clean_up, is_finished
from fewjoules.runs.listening import require_callbacks
from fewjoules.runs.lock import locked
from fewjoules.runs.own_run import OwnRun
from fewjoules.runs.own_settings import own_options, own_plan, own_settings
from fewjoules.runs.own_task import own_task, require_path, require_store
from fewjoules.runs.run import Run
from fewjoules.runs.sources import collect


def resume(
    folder: str | Path,
    *,
    model: nn.Module,
    clients: Sequence[Arrays],
    test: Arrays | None = None,
    data: Arrays | None = None,
    data_memory_gib: float | None = None,
    loss: Loss | None = None,
    metrics: Mapping[str, Any] | None = None,
    fleet: Fleet | None = None,
    learning_rate: RateFunction | None = None,
    availability: Any = None,
    device: str | torch.device = "auto",
    on_round: Callable[[Report], None] | None = None,
    callbacks: Sequence[Callback] = (),
    meter: bool | None = None,
    checkpoint_seconds: float | None = None,
    memory_gib: float | None = None,
) -> Run:
    """Continue the run that ``fewjoules.train(..., out=folder)`` began; a finished one is read and returned.

    The options of the training and its weights are in the folder. What a folder cannot hold is given again as it was:
    the code of the model, the data, the loss, the metrics and the fleet, ``availability``, and a ``learning_rate`` that
    is a function. Whatever differs is refused by name. The model may have any weights, but those that it does not
    train must be the same. ``device`` is the one that the run began on, unless another is given. A run that was metered
    goes on so, unless ``meter=False``.
    """
    place = require_path("folder", folder)
    settings = own_settings(place)
    require_kinds(model, clients, fleet)
    require_trainable(model)
    listening = require_callbacks(callbacks)
    if checkpoint_seconds is not None:
        require_number("checkpoint_seconds", checkpoint_seconds, low=0.0)
    require_store(memory_gib, None, place)
    if meter and not settings["meter"]:
        raise InvalidInputError(f"meter must be given from the first round on, but the run in {place} began without")
    with locked(place):
        if is_finished(place):
            clean_up(place)
            return Run.load(place, model)
        again = {"learning_rate": learning_rate, "availability": availability}
        options, plan = own_options(place, settings, again), own_plan(place, settings)
        where = choose_device(settings["device"] if isinstance(device, str) and device == "auto" else device)
        federation = Federation(*collect(clients, where, data=data, memory_gib=data_memory_gib))
        task = own_task(
            "resume",
            model,
            federation,
            test=test,
            loss=loss,
            metrics=metrics,
            fleet=fleet,
            plan=plan,
            data_memory_gib=data_memory_gib,
        )
        return OwnRun(
            task=task,
            options=options,
            plan=plan,
            name=settings["name"],
            folder=place,
            resume=True,
            checkpoint_seconds=checkpoint_seconds,
            on_round=on_round,
            callbacks=listening,
            meter=settings["meter"] and meter is not False,
            memory_gib=memory_gib,
        ).carry_out()
