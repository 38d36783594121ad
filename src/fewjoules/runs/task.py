"""Turn a scenario into a task: data, partition, model and options."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from fewjoules import __version__
from fewjoules.arrays import FloatArray, IntArray
from fewjoules.datasets import partition
from fewjoules.datasets.dataset import Dataset
from fewjoules.datasets.load import load
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.streams import stream, stream_key
from fewjoules.engine.models.architectures import ARCHITECTURES
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.models.networks import build, parameter_count, source_digest
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.errors import FewJoulesWarning, InvalidInputError
from fewjoules.ledger.target import OPTIONS as TARGETS
from fewjoules.physics.fleet import COSTS, Fleet
from fewjoules.planner.plan import Plan
from fewjoules.runs.device import device_name
from fewjoules.runs.training import Task
from fewjoules.scenario import Scenario
from fewjoules.scenario.schema.training import TrainingTable

SPARE_ROUNDS = 4  # a run with a target and no training.rounds may take this many times the planned rounds


@dataclass(frozen=True, kw_only=True)
class ScenarioTask(Task):
    """A task shared by all schemes of a scenario: data on the training device, its partition, the initial model."""

    scenario: Scenario
    training: TrainingTable
    dataset: Dataset
    device: torch.device


def prepare(
    scenario: Scenario,
    device: torch.device,
    data_dir: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> ScenarioTask:
    """Load the data, partition it and build the model; refuse a scenario whose parts do not fit together."""
    training = require_training(scenario)
    try:
        dataset = load(training.require("data"), data_dir, progress)
        parts = _deal_out(training, dataset, len(scenario.fleet))
    except InvalidInputError as error:
        raise InvalidInputError(f"{scenario.name}: {error}") from error
    return ScenarioTask(
        scenario=scenario,
        training=training,
        dataset=dataset,
        federation=Federation(_samples(dataset, dataset.train_images, dataset.train_labels, device), parts),
        test=_samples(dataset, dataset.test_images, dataset.test_labels, device),
        model=_new_model(scenario, training, dataset),
        loss=cross_entropy,
        fleet=scenario.fleet,
        device=device,
    )


def require_training(scenario: Scenario) -> TrainingTable:
    """Return [training] of a scenario; refuse one without it or without a network."""
    if scenario.training is None:
        raise _without_training(scenario)
    if scenario.architecture is None:
        raise InvalidInputError(f"{scenario.name}: training needs model.architecture, got model.parameters")
    return scenario.training


def _without_training(scenario: Scenario) -> InvalidInputError:
    """Return the error of a scenario without [training], with the lines that it needs as a note."""
    known = ARCHITECTURES.get(scenario.architecture or "")
    data = "digits" if known is None or known.usual_data is None else known.usual_data
    error = InvalidInputError(f"{scenario.name}: [training] is missing; these lines are enough:")
    error.add_note(f'[training]\ndata = "{data}"\nlearning_rate = 0.1')
    return error


def varied(task: ScenarioTask, **changes: Any) -> ScenarioTask:
    """Return the task with other [training] keys, such as a seed: a new partition and model of the same samples."""
    training = TrainingTable.model_validate(task.training.model_dump(exclude_unset=True) | changes)
    training.check()
    if training.data != task.training.data:
        raise InvalidInputError(f"training.data must stay {task.training.data!r}, got {training.data!r}")
    parts = _deal_out(training, task.dataset, len(task.scenario.fleet))
    return replace(
        task,
        scenario=replace(task.scenario, training=training),
        training=training,
        federation=Federation(task.federation.samples, parts),
        model=_new_model(task.scenario, training, task.dataset),
    )


def options_for(task: ScenarioTask, plan: Plan) -> TrainingOptions:
    """Return training options with the plan's H and sparsity and the scenario's other options.

    Without training.rounds a run takes the plan's rounds, or up to four times as many where it has a target or budget.
    """
    if plan.sparsity.size != len(task.scenario.fleet):
        raise InvalidInputError(
            f"the plan must have one sparsity for each of {len(task.scenario.fleet)} devices, got {plan.sparsity.size}"
        )
    return planned_options(task.scenario, plan, parameter_count(task.model))


def planned_options(scenario: Scenario, plan: Plan, parameters: int) -> TrainingOptions:
    """Return the options of a scenario with a plan's H and sparsity, for a model of this many ``parameters``.

    If the plan carries a recipe, its options win over those of [training].
    """
    training = scenario.training
    if training is None:
        raise InvalidInputError(f"{scenario.name}: [training] is missing")
    plan.require_model(parameters)
    aims = (*TARGETS, "energy_budget_joules", "time_budget_seconds")
    spare = 1 if all(getattr(training, aim) is None for aim in aims) else SPARE_ROUNDS
    options = TrainingOptions.of(
        local_steps=plan.local_steps,
        sparsity=plan.sparsity,
        rounds=training.rounds or plan.rounds_to_train(spare),
        **plan.downlink_option() | _stated_options(scenario, training, plan),
    )
    if COMPRESSORS[options.compressor].dense and float(np.max(plan.sparsity)) > 1.0:
        warnings.warn(
            f"compressor = {options.compressor!r} sends every entry, so the plan's sparsity is not used and its joules "
            "are not what will be spent",
            FewJoulesWarning,
            stacklevel=2,
        )
    return options


def _stated_options(scenario: Scenario, training: TrainingTable, plan: Plan) -> dict[str, Any]:
    try:
        return training.options(scenario.files, plan.recipe)
    except InvalidInputError as error:
        raise InvalidInputError(f"{scenario.name}: {error}") from error


def identity_of(task: ScenarioTask, options: TrainingOptions) -> dict[str, Any]:
    """Return the facts that a checkpoint must share with the run that resumes it."""
    return identity_of_task(task) | {"training": options.to_dict()}


def identity_of_task(task: ScenarioTask) -> dict[str, Any]:
    """Return the facts that all trainings of a task share, whatever their options."""
    fleet = task.fleet or task.scenario.fleet
    return {
        "fewjoules version": __version__,
        "torch version": torch.__version__,
        "numpy version": np.__version__,
        "device": device_name(task.device),
        "data": task.dataset.sha256,
        "partition": [task.training.partition, task.training.dirichlet_concentration, task.training.shards_per_client],
        "architecture": task.scenario.architecture,
        "architecture source": source_digest(str(task.scenario.architecture), task.scenario.folder),
        **identity_of_fleet(fleet),
    }


def identity_of_fleet(fleet: Fleet) -> dict[str, Any]:
    """Return the costs of a fleet, where they come from, and the laws of its channels as plain values."""
    return {
        "fleet": {name: _plain(getattr(fleet, name)) for name in COSTS if name != "battery_joules"},
        "provenance": {kind: codes.tolist() for kind, codes in fleet.provenance.items()},
        "fading": [None if law is None else law.describe() for law in fleet.fading or ()],
    }


def _plain(costs: FloatArray | None) -> list[float] | None:
    return None if costs is None else costs.tolist()


def _new_model(scenario: Scenario, training: TrainingTable, dataset: Dataset) -> nn.Module:
    assert scenario.architecture is not None
    channels, height, width = dataset.shape
    return build(
        scenario.architecture,
        channels=channels,
        height=height,
        width=width,
        classes=dataset.classes,
        seed=stream_key(training.seed, "weights"),
        folder=scenario.folder,
    )


def _deal_out(training: TrainingTable, dataset: Dataset, clients: int) -> list[IntArray]:
    rng = stream(training.seed, "partition")
    labels = dataset.train_labels
    if training.partition == "dirichlet":
        return partition.dirichlet(labels, clients, training.require("dirichlet_concentration"), rng)
    if training.partition == "shards":
        return partition.shards(labels, clients, training.require("shards_per_client"), rng)
    if training.partition == "writers":
        if dataset.writers is None:
            raise InvalidInputError(f"training.partition = 'writers' needs data = 'qmnist', got {dataset.name!r}")
        return partition.writers(dataset.writers, clients, rng)
    return partition.iid(labels, clients, rng)


def _samples(dataset: Dataset, images: Any, labels: IntArray, device: torch.device) -> Samples:
    inputs = torch.from_numpy(dataset.normalised(images)).to(device)
    return Samples(inputs, torch.from_numpy(labels).to(device))
