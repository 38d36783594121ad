"""The scenario files of the figures, which ship with FedJoule."""

from importlib import resources
from pathlib import Path

from fedjoule.errors import InvalidInputError
from fedjoule.scenario import Scenario


def embedded_scenario(name: str) -> Scenario:
    """The scenario of ``scenarios/NAME``."""
    file = resources.files("fedjoule.reproduce").joinpath("scenarios", name)
    if not file.is_file():
        raise InvalidInputError(f"the scenario must be one of those in reproduce/scenarios, got {name!r}")
    return Scenario.from_text(file.read_text(encoding="utf-8"), f"{name} (embedded)", Path())
