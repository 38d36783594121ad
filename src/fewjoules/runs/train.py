"""``fewjoules.train``: train a user's own model on a user's own arrays."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.step_sizes import RateFunction
from fewjoules.engine.models.layout import require_trainable
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.models.networks import parameter_count
from fewjoules.engine.report import Report
from fewjoules.engine.simulator.federation import Federation
from fewjoules.ledger.target import target_options
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.plan import Plan
from fewjoules.planner.recipe import Recipe
from fewjoules.runs.arguments import Unset, chosen_options, followed_plan, require_kinds
from fewjoules.runs.callbacks import Callback
from fewjoules.runs.client_data import Arrays, rule_of
from fewjoules.runs.device import choose_device
from fewjoules.runs.listening import require_callbacks, require_function
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
    """Train a model in the simulator and account for every joule, bit and second.

    The algorithm is FT-LSGD-DB (docs/training.md). H and sparsity come from ``local_steps`` and ``sparsity``, from a
    ``plan``, from a ``recipe`` with a plan, or from a ``preset``; arguments that are given win over all of these. The
    caller's model is not changed. Ctrl-C ends the training after the current round and returns what was trained, with
    the stop reason "interrupted". In a script that ``torchrun`` starts, its processes train one run together.

    Args:
        model: Any ``nn.Module``; training starts from its weights.
        clients: For each client (inputs, targets) as arrays or tensors, or dicts or tuples of them, in memory or on
            disk; or a map-style data set; or, with ``data``, the numbers of its samples (docs/data.md).
        test: Test set in the same form, on which the model is evaluated.
        data: One data set that all clients share.
        data_memory_gib: Larger data sets are read batch by batch; by default a quarter of the free memory, in GiB.
        plan: H, sparsity of each client, and rounds.
        recipe: Step size and other options; its plan gives H, sparsity and rounds.
        fleet: What bits, messages and steps cost each client, in joules and seconds; without it joules are NaN.
        local_steps: H, local steps between two messages.
        sparsity: One number, or one for each client: with 100, one entry in 100 is sent.
        rounds: When to stop at the latest; needed without a plan.
        learning_rate: A number, or a function of the round (from 1) that returns a number or one for each local step.
            Needed without a recipe.
        batch_size: Samples of a batch, by default 32; None takes all samples of a client.
        batch_growth: Factor by which batches grow with each local step, by default 1.
        error_feedback: Whether entries not sent are added to the next update; on unless a preset turns it off.
        seed: Draws batches, participants, channels and random rounding.
        loss: ``loss(outputs, targets)`` or ``loss(model, batch)``, which returns one number, one per sample or one per
            label; or several by name with weights. By default cross-entropy.
        metrics: More such functions by name, evaluated on the test set.
        target: Ends the run: an accuracy, or {"loss": 0.3}, {"perplexity": 6.0} or {metric: value}.
        device: "auto", "cpu", "cuda" or a ``torch.device``.
        on_round: Called with a ``Report`` after each round.
        callbacks: See the run as it goes on, and may end it.
        meter: Also read every meter of this machine (docs/measuring.md); refused where there is none.
        out: New or empty folder for results and checkpoints, for ``fewjoules.resume`` (docs/ledger.md).
        name: What tables call the run; by default the name of its recipe, plan or preset.
        checkpoint_seconds: Seconds between checkpoints; by default 30, or more if they would take over 5 % of the time.
        memory_gib: Memory for what clients keep, by default half of what is free, in GiB; the rest goes to disk.
        store_dir: Folder for that rest if there is no ``out``; by default the system's folder for temporary files.
        **options: Other fields of ``TrainingOptions``, such as ``inner``, ``outer``, ``compressor``, ``values``,
            ``participation``, ``preset`` and ``guard``; docs/training.md lists them all.

    Returns:
        The trained model, metrics of each round, and a ledger row for each round and participant.

    Raises:
        InvalidInputError: An argument is refused; nothing was trained.
        DivergedError: The loss blew up more often than the guard allows, or once without it.

    Examples:
        >>> run = fj.train(model, clients=clients, test=test, plan=plan, fleet=fleet, learning_rate=0.1)
        >>> run.energy_joules, run.metrics[-1]["test_accuracy"]
    """
    require_kinds(model, clients, fleet, plan, recipe)
    require_trainable(model)
    listening = require_callbacks(callbacks)
    require_function("on_round", on_round)
    folder = new_folder(out, checkpoint_seconds)
    spill = require_store(memory_gib, store_dir, folder)
    followed = followed_plan(plan, recipe)
    if followed is not None:
        followed.require_model(parameter_count(model))
    where = choose_device(device)
    samples, parts = collect(clients, where, data=data, memory_gib=data_memory_gib, rule=rule_of(loss))
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
