"""Scenario files of the figures, which ship with this package, and hashes of them."""

import functools
import hashlib
import json
from importlib import resources
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError
from fewjoules.scenario import Scenario
from fewjoules.scenario.schema.training import TrainingTable

FIRST_KEYS = frozenset(  # of [training] when the first records were made
    [
        *("data", "partition", "dirichlet_concentration", "shards_per_client"),
        *("learning_rate", "schedule", "decay_rounds", "decay_factor", "momentum", "batch_size", "batch_growth"),
        *("error_feedback", "compressor", "values", "levels", "weighting"),
        *("participation", "failure_probability", "failure_trace", "downlink", "channel", "coherence_blocks"),
        *("target_accuracy", "rounds", "energy_budget_joules", "time_budget_seconds", "evaluate_every"),
        *("precision", "seed"),
    ]
)
FIRST_DEFAULTS = {"momentum": 0.0, "downlink": "free"}  # of keys whose default is written otherwise, and means the same


def embedded_scenario(name: str) -> Scenario:
    """Read the scenario file ``scenarios/NAME``."""
    file = resources.files("fewjoules_reproduction").joinpath("scenarios", name)
    if not file.is_file():
        raise InvalidInputError(f"the scenario must be one of those in fewjoules_reproduction/scenarios, got {name!r}")
    return Scenario.from_text(file.read_text(encoding="utf-8"), f"{name} (embedded)", Path())


@functools.cache
def scenario_digest(name: str, bit_scale: float) -> str:
    """Hash of everything in a scenario that its trainings and their joules depend on.

    Joules of bits are divided by ``bit_scale``, so that scenarios that differ in the cost of a bit alone share a hash.
    """
    scenario = embedded_scenario(name)
    assert scenario.training is not None
    fleet = scenario.fleet
    costs = [fleet.joules_per_step, fleet.joules_per_bit / bit_scale, fleet.message_joules / bit_scale]
    hashed = {
        "architecture": scenario.architecture,
        "training": hashed_training(scenario.training),
        "joules": [[float(f"{value:.6g}") for value in column] for column in costs],
    }
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:16]


def hashed_training(training: TrainingTable) -> dict[str, Any]:
    """The part of [training] that the hash covers: ``FIRST_KEYS``, and every later key that is not at its default.

    A key that FewJoules adds to the table therefore leaves the records of earlier trainings valid.
    """
    changed = training.model_dump(mode="json", exclude_defaults=True)
    every = training.model_dump(mode="json")
    hashed = {key: value for key, value in every.items() if key in FIRST_KEYS or key in changed}
    return hashed | {key: value for key, value in FIRST_DEFAULTS.items() if key not in changed}
