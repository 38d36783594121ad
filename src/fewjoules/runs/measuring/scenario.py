"""Measure the model, optimiser and compressor of a scenario."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fewjoules.arrays import FloatArray
from fewjoules.datasets.shapes import CLASSES, SHAPES, TEXTS, USUAL_CONTEXT
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import ClientOrder, kept_entries, plan_round
from fewjoules.engine.models.architectures import Images, Text
from fewjoules.engine.simulator.federation import Federation
from fewjoules.errors import InvalidInputError, require_integer, require_number
from fewjoules.files import parse_toml
from fewjoules.ledger.target import OPTIONS as TARGETS
from fewjoules.metering.costs import Costs
from fewjoules.metering.protocol import Bench
from fewjoules.own_code import is_own
from fewjoules.physics.fleet import MAX_DEVICES
from fewjoules.planner.problem import MAX_SPARSITY
from fewjoules.runs.measuring.codec import measure_messages
from fewjoules.runs.measuring.random_task import random_task
from fewjoules.runs.measuring.step import measure_steps
from fewjoules.runs.task import prepare, require_training
from fewjoules.runs.training import Task
from fewjoules.scenario import Scenario
from fewjoules.scenario.network import flops_per_sample
from fewjoules.scenario.schema.sentences import validate
from fewjoules.scenario.schema.tables import ModelTable

STEPS = 10  # local steps in a row, from one synchronisation to the next
_FACTORS = (0.5, 1.0, 2.0, 4.0)  # of the scenario's batch size
_LARGEST_BATCH = 1 << 20
_SAMPLES = 1024  # that all clients share, or as many as the largest batch
_SPARSITIES = (3.0, 10.0, 30.0, 100.0, 1000.0)
_PLAIN: dict[str, Any] = {  # everybody takes part, nothing is lost, and no fleet is charged
    "batch_growth": 1.0,
    "participation": 1.0,
    "sampling": "uniform",
    "availability": None,
    "failure_probability": 0.0,
    "failures": {},
    "channel": "average",
    "downlink": "free",
    **dict.fromkeys(TARGETS),
    "energy_budget_joules": None,
    "time_budget_seconds": None,
    "rounds": 1,
}


def usual_batch_sizes(scenario: Scenario) -> list[int]:
    """Return the scenario's batch size, half of it, twice and four times as much."""
    planned = scenario if scenario.recipe is None else scenario.under_recipe()
    batch = require_training(planned).batch_size
    if batch == "all":
        raise InvalidInputError("batch_size = 'all' leaves open what a batch is; give --batch-sizes")
    return sorted({max(1, int(factor * batch)) for factor in _FACTORS})


def flops_of(scenario: Scenario) -> float:
    """Return the operations of one sample in a training step of the scenario's model."""
    model = validate(ModelTable, parse_toml(scenario.text)["model"])
    return flops_per_sample(model, scenario.training, scenario.folder)


def usual_sparsities(scenario: Scenario) -> list[float]:
    """Return sparsities from dense to sparse, each of which leaves at least one entry."""
    return [value for value in _SPARSITIES if value <= scenario.parameters]


def step_measurement(
    scenario: Scenario, device: torch.device, *, clients: int, batch_sizes: Sequence[int], with_idle: bool = False
) -> Callable[[Bench], Costs]:
    """Return what measures local steps of the scenario's model and optimiser, after all checks.

    Costs are those of one step of one client.
    """
    require_integer("--clients", clients, low=1, high=MAX_DEVICES)
    for size in batch_sizes:
        require_integer("--batch-sizes", size, low=1, high=_LARGEST_BATCH)
    if len(set(batch_sizes)) < 2:
        raise InvalidInputError(f"--batch-sizes must be at least two different sizes, got {list(batch_sizes)}")
    training = require_training(scenario)
    data = training.data
    if data is None:
        raise InvalidInputError(f"{scenario.name}: training.data is missing: its samples tell the size of the model")
    options = {
        size: _options(scenario, local_steps=STEPS, batch_size=size, sparsity=np.ones(clients)) for size in batch_sizes
    }
    return lambda bench: measure_steps(
        lambda: _task(scenario, data, device, clients=clients, largest=max(batch_sizes)),
        options.__getitem__,
        bench,
        batch_sizes=batch_sizes,
        with_idle=with_idle,
    )


def _task(scenario: Scenario, data: str, device: torch.device, *, clients: int, largest: int) -> Task:
    """Return the task that is measured: on random samples, or on the user's own, which all clients share."""
    if is_own(data):
        own = prepare(scenario, device)
        samples = own.federation.samples
        if len(samples) < largest:
            raise InvalidInputError(
                f"--batch-sizes must be at most the {len(samples)} samples of training.data = {data!r}, got {largest}"
            )
        return replace(own, federation=Federation(samples, [np.arange(len(samples))] * clients), test=None, fleet=None)
    return random_task(
        str(scenario.architecture),
        Text(scenario.context or USUAL_CONTEXT, TEXTS[data]) if data in TEXTS else Images(*SHAPES[data], CLASSES),
        device,
        clients=clients,
        samples=max(_SAMPLES, largest),
        sizes=scenario.architecture_sizes,
        folder=scenario.folder,
    )


def codec_measurement(
    scenario: Scenario, *, sparsities: Sequence[float], with_idle: bool = False
) -> Callable[[Bench], tuple[Costs, Costs]]:
    """Return what measures messages of the scenario's compressor, after all checks: writing one and reading it."""
    for sparsity in sparsities:
        require_number("--sparsities", sparsity, low=1.0, high=MAX_SPARSITY)
    by_entries = {order.k: order for order in (_order(scenario, sparsity) for sparsity in sparsities)}
    orders = [by_entries[entries] for entries in sorted(by_entries, reverse=True)]
    if COMPRESSORS[orders[0].compressor].dense:
        orders = orders[:1]
    elif len(orders) < 2:
        raise InvalidInputError(
            f"--sparsities must lead to at least two different numbers of entries, got {orders[0].k} of "
            f"{scenario.parameters} parameters"
        )
    return lambda bench: measure_messages(orders, scenario.parameters, bench, with_idle=with_idle)


def _order(scenario: Scenario, sparsity: float) -> ClientOrder:
    options = _options(scenario, local_steps=1, batch_size=1, sparsity=np.array([sparsity]))
    kept = kept_entries(options, scenario.parameters)
    return plan_round(options, kept, np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64), 1).order(0)


def _options(scenario: Scenario, *, local_steps: int, batch_size: int, sparsity: FloatArray) -> TrainingOptions:
    """Return the scenario's options or its recipe's, less those that concern neither a step nor a message."""
    given: dict[str, Any] = require_training(scenario).options(scenario.files, scenario.recipe)
    chosen = {"local_steps": local_steps, "batch_size": batch_size, "sparsity": sparsity}
    return TrainingOptions.of(**given | _PLAIN | chosen)
