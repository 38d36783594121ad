"""Read the scenario that a command is called with."""

import shlex
from pathlib import Path

from fewjoules.errors import InvalidInputError
from fewjoules.scenario import Scenario


def read_scenario(path: str | None, allow_outside: bool) -> Scenario:
    """Read a scenario file, or the embedded scenario; where there is no such file, say how to make one."""
    if path is None:
        return Scenario.embedded()
    if path.endswith(".toml") and path.isprintable() and Path(path).parent.is_dir() and not Path(path).exists():
        command = f"fewjoules init {shlex.quote(path)}"
        raise InvalidInputError(f"{path}: there is no such file; {command} writes a first scenario")
    return Scenario.from_toml(path, allow_outside=allow_outside)
