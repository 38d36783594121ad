"""Save and load the settings of a command and its scenario, so that a run can be resumed."""

import itertools
import json
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError
from fewjoules.files import read_text, whole_file
from fewjoules.runs.files import SCENARIO, SETTINGS, SETTINGS_VERSION
from fewjoules.scenario import Scenario


def save_settings(folder: Path, scenario: Scenario, **settings: Any) -> None:
    """Write the scenario and the settings of the command."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {
        "version": SETTINGS_VERSION,
        "scenario": scenario.name,
        "scenario_folder": str(scenario.folder.resolve()),
        "allow_outside": scenario.allow_outside,
        **settings,
    }
    save_scenario(folder, scenario)
    with whole_file(folder / SETTINGS) as stream:
        stream.write((json.dumps(known, indent=1) + "\n").encode())


def save_scenario(folder: Path, scenario: Scenario) -> None:
    """Write the scenario file as it was read."""
    with whole_file(folder / SCENARIO) as stream:
        stream.write(scenario.text.encode())


def stored_settings(folder: Path, command: str | None = None) -> dict[str, Any]:
    """Read the settings that ``save_settings`` wrote; refuse a folder without them or of another command."""
    file = folder / SETTINGS
    if not file.is_file():
        raise InvalidInputError(f"{folder}: must be the results folder of a run, but {SETTINGS} is missing")
    try:
        settings = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{file}: must be JSON ({error})") from error
    keys = {"version", "command", "scenario", "scenario_folder", "data_dir", "device"}
    made_by_compare = isinstance(settings, dict) and settings.get("command") == "compare"
    keys |= {"schemes"} if made_by_compare else set()
    if not isinstance(settings, dict) or settings.get("version") != SETTINGS_VERSION or not keys <= set(settings):
        got = settings.get("version") if isinstance(settings, dict) else type(settings).__name__
        raise InvalidInputError(
            f"{file}: must be a table of version {SETTINGS_VERSION} with the keys {', '.join(sorted(keys))}, "
            f"got {got!r}"
        )
    if command is not None and settings["command"] != command:
        raise InvalidInputError(
            f"{folder}: the run was made by fewjoules {settings['command']}; {command} --resume cannot continue it"
        )
    return dict(settings)


def stored_scenario(folder: Path, path: str | None, *, allow_outside: bool = False) -> Scenario:
    """Load the scenario of a run to resume; a scenario given by ``path`` must be the same."""
    settings = stored_settings(folder)
    allowed = allow_outside or settings.get("allow_outside") is True
    place = Path(settings["scenario_folder"])
    scenario = Scenario.from_text(read_text(folder / SCENARIO), settings["scenario"], place, allow_outside=allowed)
    if path is not None:
        given = Scenario.from_toml(path, allow_outside=allowed)
        if given.text != scenario.text:
            raise InvalidInputError(
                f"{folder}: the run belongs to another scenario; {_first_difference(scenario.text, given.text)}"
            )
    return scenario


def _first_difference(stored: str, given: str) -> str:
    lines = itertools.zip_longest(stored.splitlines(), given.splitlines(), fillvalue="")
    differing = [(i, a, b) for i, (a, b) in enumerate(lines, start=1) if a != b]
    if not differing:
        return "they differ in empty lines"
    number, before, now = differing[0]
    return f"line {number} was {before!r} and is {now!r} now"
