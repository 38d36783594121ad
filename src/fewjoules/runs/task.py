"""Turn a scenario into a task: data, partition, model and options."""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from fewjoules import __version__
from fewjoules.arrays import FloatArray, IntArray
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.participation import participants_per_round
from fewjoules.engine.algorithm.streams import stream_key
from fewjoules.engine.models.architectures import ARCHITECTURES
from fewjoules.engine.models.networks import build_for, parameter_count, source_digest
from fewjoules.engine.simulator.federation import Federation
from fewjoules.errors import FewJoulesWarning, InvalidInputError
from fewjoules.ledger.target import OPTIONS as TARGETS
from fewjoules.ledger.target import Target
from fewjoules.own_code import is_own
from fewjoules.physics.fleet import COSTS, Fleet
from fewjoules.planner.plan import Plan
from fewjoules.runs.client_data import as_taken
from fewjoules.runs.device import device_name
from fewjoules.runs.scenario_data import ScenarioData, deal_out, load_data, samples_to_test
from fewjoules.runs.training import Task
from fewjoules.scenario import Scenario
from fewjoules.scenario.schema.training import TrainingTable

SPARE_ROUNDS = 4  # a run with a target and no training.rounds may take this many times the planned rounds


@dataclass(frozen=True, kw_only=True)
class ScenarioTask(Task):
    """A task shared by all schemes of a scenario: data on the training device, its partition, the initial model."""

    scenario: Scenario
    training: TrainingTable
    data: ScenarioData
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
        data = load_data(scenario, training, device, data_dir, progress)
        parts = deal_out(scenario, training, data)
        test = samples_to_test(data, parts)
        _require_test(training, data)
    except InvalidInputError as error:
        raise InvalidInputError(f"{scenario.name}: {error}") from error
    model = _new_model(scenario, training, data)
    own = is_own(data.name)
    return ScenarioTask(
        scenario=scenario,
        training=training,
        data=data,
        federation=Federation(as_taken(model, data.train) if own else data.train, parts),
        test=as_taken(model, test) if own and test is not None else test,
        model=model,
        loss=data.loss,
        metrics=data.metrics,
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


def _require_test(training: TrainingTable, data: ScenarioData) -> None:
    for target in TARGETS:
        if data.test is None and getattr(training, target) is not None:
            raise InvalidInputError(f"training.{target} needs test data, which {data.name!r} does not return")
    wanted = training.target_metric
    if wanted is not None and Target.parse(wanted).name not in data.metrics:
        known = ", ".join(map(str, data.metrics)) or "none"
        raise InvalidInputError(
            f"training.target_metric must begin with a metric that training.data {data.name!r} returns, {known}, "
            f"got {wanted!r}"
        )
    if data.test is None and data.metrics:
        raise InvalidInputError(f"metrics need test data, which training.data {data.name!r} does not return")


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
    parts = deal_out(task.scenario, training, task.data)
    return replace(
        task,
        scenario=replace(task.scenario, training=training),
        training=training,
        federation=Federation(task.federation.samples, parts),
        test=task.test if task.data.test_writers is None else samples_to_test(task.data, parts),
        model=_new_model(task.scenario, training, task.data),
    )


def new_model(task: ScenarioTask, seed: int) -> nn.Module:
    """Return the model of a task with the initial weights of a seed."""
    return _new_model(task.scenario, task.training.model_copy(update={"seed": seed}), task.data)


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
    plan.require_participants(participants_per_round(options), options.clients)
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
    batteries = (task.fleet or task.scenario.fleet).battery_joules if options.sampling == "battery" else None
    return identity_of_task(task) | {"training": options.to_dict(), "batteries": _plain(batteries)}


def identity_of_task(task: ScenarioTask) -> dict[str, Any]:
    """Return the facts that all trainings of a task share, whatever their options."""
    fleet = task.fleet or task.scenario.fleet
    return {
        "fewjoules version": __version__,
        "torch version": torch.__version__,
        "numpy version": np.__version__,
        "device": device_name(task.device),
        "data": task.data.facts,
        "partition": [task.training.partition, task.training.dirichlet_concentration, task.training.shards_per_client],
        "partition file": _digest(task.federation.parts) if task.training.partition == "file" else None,
        "architecture": task.scenario.architecture,
        "architecture sizes": dict(task.scenario.architecture_sizes),
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


def _digest(parts: Sequence[IntArray]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{part.size}\n".encode())
        digest.update(part.data)
    return digest.hexdigest()


def _plain(costs: FloatArray | None) -> list[float] | None:
    return None if costs is None else costs.tolist()


def _new_model(scenario: Scenario, training: TrainingTable, data: ScenarioData) -> nn.Module:
    assert scenario.architecture is not None
    seed = stream_key(training.seed, "weights")
    sizes = scenario.architecture_sizes
    return build_for(scenario.architecture, data.shape, sizes=sizes, seed=seed, folder=scenario.folder)
