"""``fewjoules.resume``: continue a run of ``fewjoules.train``, bit for bit as if it had not stopped."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fewjoules.engine.algorithm.step_sizes import RateFunction
from fewjoules.engine.models.layout import require_trainable
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.report import Report
from fewjoules.engine.simulator.federation import Federation
from fewjoules.errors import InvalidInputError, require_number
from fewjoules.physics.fleet import Fleet
from fewjoules.runs.arguments import require_kinds
from fewjoules.runs.callbacks import Callback
from fewjoules.runs.client_data import Arrays, rule_of
from fewjoules.runs.device import choose_device
from fewjoules.runs.folder import clean_up, is_finished
from fewjoules.runs.listening import require_callbacks, require_function
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
    """Continue a run that ``fewjoules.train(..., out=folder)`` began, bit for bit; a finished run is read and returned.

    The folder has the options of the training and its weights. Give again, unchanged, what a folder cannot hold: the
    code of the model, the data, loss, metrics and fleet, and a learning rate or availability that is a function.
    Anything that differs is refused by name.

    Args:
        folder: Folder of the run.
        model: The model that was trained. Weights that are trained may differ; all others must be the same.
        clients: Data of each client, as for ``train``.
        test: Test set.
        data: Data set that all clients share.
        data_memory_gib: As for ``train``, in GiB.
        loss: Loss, if the run had one of its own.
        metrics: Metrics by name, if the run had some.
        fleet: Costs, if the run had them.
        learning_rate: The function of the round, if it was one.
        availability: When devices can take part, if the run had one.
        device: Device to go on with; by default the one on which the run began.
        on_round: Called with a ``Report`` after each round.
        callbacks: See the run as it goes on.
        meter: False ends the metering of a run that was metered.
        checkpoint_seconds: Seconds between checkpoints.
        memory_gib: Memory for what clients keep, in GiB.

    Returns:
        The finished run, as ``train`` returns it.

    Raises:
        InvalidInputError: The folder is damaged or holds another kind of run, or something differs.

    Examples:
        >>> run = fj.resume("run1", model=model, clients=clients, test=test, fleet=fleet)
    """
    place = require_path("folder", folder)
    settings = own_settings(place)
    require_kinds(model, clients, fleet)
    require_trainable(model)
    listening = require_callbacks(callbacks)
    require_function("on_round", on_round)
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
        federation = Federation(*collect(clients, where, data=data, memory_gib=data_memory_gib, rule=rule_of(loss)))
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
