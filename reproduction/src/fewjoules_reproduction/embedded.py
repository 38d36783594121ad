"""The scenario files of the figures, which ship with FewJoules."""

import functools
import hashlib
import json
from importlib import resources
from pathlib import Path

from fewjoules.errors import InvalidInputError
from fewjoules.scenario import Scenario


def embedded_scenario(name: str) -> Scenario:
    """The scenario of ``scenarios/NAME``."""
    file = resources.files("fewjoules_reproduction").joinpath("scenarios", name)
    if not file.is_file():
        raise InvalidInputError(f"the scenario must be one of those in fewjoules_reproduction/scenarios, got {name!r}")
    return Scenario.from_text(file.read_text(encoding="utf-8"), f"{name} (embedded)", Path())


@functools.cache
def scenario_digest(name: str, bit_scale: float) -> str:
    """Of all in a scenario that a training and its joules depend on; bits count as if ``bit_scale`` were 1."""
    scenario = embedded_scenario(name)
    assert scenario.training is not None
    fleet = scenario.fleet
    costs = [fleet.joules_per_step, fleet.joules_per_bit / bit_scale, fleet.message_joules / bit_scale]
    told = {
        "architecture": scenario.architecture,
        "training": scenario.training.model_dump(mode="json"),
        "joules": [[float(f"{value:.6g}") for value in column] for column in costs],
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
