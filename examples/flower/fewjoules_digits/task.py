"""The scenario of the app as a task, and what each node holds of it. PyTorch is imported here only."""

from pathlib import Path

import torch

from fewjoules.runs.task import ScenarioTask, prepare
from fewjoules.scenario import Scenario

SCENARIO = Path(__file__).with_name("devices.toml")


def task() -> ScenarioTask:
    """Load the digits, deal them out to the devices, and build the model."""
    return prepare(Scenario.from_toml(SCENARIO), torch.device("cpu"))


def node(config):
    """Return model, inputs and targets of a node; ``device`` of its config is its number in the scenario."""
    own = task()
    number = int(config.get("device", config.get("partition-id", 0)))
    part = torch.from_numpy(own.federation.parts[number])
    return own.model, *own.federation.samples.take(part)
