"""``fewjoules.train``: train a user's own model on a user's own arrays."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.step_sizes import RateFunction
from fewjoules.engine.loop import Report
from fewjoules.engine.models.layout import require_trainable
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.models.networks import parameter_count
from fewjoules.engine.simulator.federation import Federation
from fewjoules.ledger.target import target_options
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.plan import Plan
from fewjoules.planner.recipe import Recipe
from fewjoules.runs.arguments import Unset, chosen_options, followed_plan, require_kinds
from fewjoules.runs.callbacks import Callback
from fewjoules.runs.client_data import Arrays
from fewjoules.runs.device import choose_device
from fewjoules.runs.listening import require_callbacks
from fewjoules.runs.own_run import OwnRun
from fewjoules.runs.own_task import new_folder, own_task, require_store, require_test
from fewjoules.runs.run import Run
from fewjoules.runs.sources import collect


def train(
    model: nn.Module,
    *,
    clients: Sequence[Arrays],
    test: Arrays | None = None,
    data: Arrays | None = None,
    data_memory_gib: float | None = None,
    plan: Plan | None = None,
    recipe: Recipe | None = None,
    fleet: Fleet | None = None,
    local_steps: int | None = None,
    sparsity: ArrayLike | None = None,
    rounds: int | None = None,
    learning_rate: float | RateFunction | None = None,
    batch_size: int | Unset | None = Unset.UNSET,
    batch_growth: float | None = None,
    error_feedback: bool | None = None,
    seed: int = 0,
    loss: Loss | None = None,
    metrics: Mapping[str, Any] | None = None,
    target: float | Mapping[str, Any] | None = None,
    device: str | torch.device = "auto",
    on_round: Callable[[Report], None] | None = None,
    callbacks: Sequence[Callback] = (),
    meter: bool = False,
    out: str | Path | None = None,
    name: str | None = None,
    checkpoint_seconds: float | None = None,
    memory_gib: float | None = None,
    store_dir: str | Path | None = None,
    **options: Any,
) -> Run:
    """Train by FT-LSGD-DB in the simulator and account for every joule, bit and second.

    ``clients`` holds (inputs, targets) of each client, as arrays or tensors or dicts or tuples of them, in memory or on
    disk, or its map-style data set; or ``data`` is one of these that all share, and ``clients`` holds sample numbers.
    Data sets of more than ``data_memory_gib``, by default a quarter of the free memory, are read batch by batch;
    docs/data.md. Give ``local_steps`` and ``sparsity`` (one number or one per client), or a ``plan``, whose rounds are
    then the default, or a ``preset`` that sets both. A ``recipe`` gives the step size and other options, and by its
    plan H, sparsity and rounds; arguments beside it win. Without one ``learning_rate`` is needed, a number or a
    function of the round, from 1, that returns a number or one for each local step; ``batch_size`` is 32 (None: all
    samples) and ``batch_growth`` 1. ``loss(outputs, targets)``, or ``loss(model, batch)`` with these names,
    may return one number, one per sample or one per label; the default is cross-entropy. ``metrics`` are such functions
    by name, taken on the test set, and ``target``, an accuracy or {metric: value}, ends the run. The caller's model is
    not changed. Error feedback is on unless a preset turns it off. Other options are those of ``TrainingOptions``,
    such as ``inner``, ``outer``, ``compressor`` and ``preset``; docs/training.md explains them all. Where the loss
    blows up, the run returns to an earlier model with half the step size, unless ``guard=False``. Ctrl-C ends the
    training after its round, and what was trained is returned with the stop reason "interrupted". ``callbacks`` see the
    run as it goes on and may end it. ``meter`` also reads every meter of this machine, and refuses where there is none;
    docs/measuring.md. With ``out``, a new or empty folder, everything is also written there (docs/ledger.md), and
    ``fewjoules.resume`` continues the run after Ctrl-C, a kill or a power cut, which loses the work of about
    ``checkpoint_seconds`` (30, or more where checkpoints would take over a twentieth of the time). What clients keep
    takes up to ``memory_gib`` of memory (half of what is free); beyond it, what was used least recently goes to a file
    in ``out``, or else in ``store_dir`` (the system's folder for temporary files). ``name`` is what tables call the
    run, by default that of its recipe, plan or preset. In a script that ``torchrun`` starts, its processes train the
    run together; docs/many-machines.md.
    """
    require_kinds(model, clients, fleet, plan, recipe)
    require_trainable(model)
    listening = require_callbacks(callbacks)
    folder = new_folder(out, checkpoint_seconds)
    spill = require_store(memory_gib, store_dir, folder)
    followed = followed_plan(plan, recipe)
    if followed is not None:
        followed.require_model(parameter_count(model))
    where = choose_device(device)
    samples, parts = collect(clients, where, data=data, memory_gib=data_memory_gib)
    given = {"learning_rate": learning_rate, "batch_growth": batch_growth, "error_feedback": error_feedback}
    options |= {name: value for name, value in given.items() if value is not None} | {"seed": seed}
    options |= {} if batch_size is Unset.UNSET else {"batch_size": batch_size}
    options |= target_options(target, metrics or ())
    chosen = chosen_options(
        len(parts),
        plan=plan,
        recipe=recipe,
        local_steps=local_steps,
        sparsity=sparsity,
        rounds=rounds,
        given=options,
    )
    task = own_task(
        "train",
        model,
        Federation(samples, parts),
        test=test,
        loss=loss,
        metrics=metrics,
        fleet=fleet,
        plan=followed,
        data_memory_gib=data_memory_gib,
    )
    require_test(chosen, task)
    return OwnRun(
        task=task,
        options=chosen,
        plan=followed,
        name=name or _name_of(followed, recipe, chosen),
        folder=folder,
        checkpoint_seconds=checkpoint_seconds,
        on_round=on_round,
        callbacks=listening,
        meter=meter,
        memory_gib=memory_gib,
        store_dir=spill,
    ).carry_out()


def _name_of(plan: Plan | None, recipe: Recipe | None, options: TrainingOptions) -> str:
    """Return what tables call the run."""
    named = None if recipe is None else recipe.name
    return named or (None if plan is None else plan.scheme) or options.preset or "train"
