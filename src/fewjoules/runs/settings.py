"""Save and load the settings of a command and its scenario, so that a run can be resumed."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError, shown
from fewjoules.files import checksum_of, make_folder, read_text, require_intact, whole_file
from fewjoules.runs.files import OWN_COMMAND, PLAN, SCENARIO, SETTINGS, SETTINGS_VERSION
from fewjoules.runs.sealed import read_sealed, write_sealed
from fewjoules.scenario import Scenario

COMMANDS = ("train", "compare", "tune")
_OWN_KEYS = {"compare": {"schemes"}, "tune": {"budget", "trainings", "seed", "out", "date"}}
_KINDS = {
    "scenario": str,
    "scenario_folder": str,
    "data_dir": str | None,
    "device": str,
    "meter": bool,
    "no_guard": bool,
    "schemes": list,
    "seeds": int,
    "rates": dict,
    "checksums": dict,
    "budget": str | None,
    "trainings": int,
    "seed": int,
    "out": str,
    "date": str,
}


def save_settings(folder: Path, scenario: Scenario, **settings: Any) -> None:
    """Write the scenario and the settings of the command, with checksums of the scenario and of the plan beside it."""
    make_folder(folder)
    known = {
        "version": SETTINGS_VERSION,
        "scenario": scenario.name,
        "scenario_folder": str(scenario.folder.resolve()),
        "allow_outside": scenario.allow_outside,
        **settings,
    }
    save_scenario(folder, scenario)
    written = [name for name in (SCENARIO, PLAN) if (folder / name).exists()]
    checksums = {name: checksum_of(folder / name) for name in written}
    write_sealed(folder / SETTINGS, known | {"checksums": checksums})


def save_scenario(folder: Path, scenario: Scenario) -> None:
    """Write the scenario file as it was read."""
    with whole_file(folder / SCENARIO) as stream:
        stream.write(scenario.text.encode())


def stored_settings(folder: Path, command: str | None = None) -> dict[str, Any]:
    """Read the settings that ``save_settings`` wrote; refuse a folder without them or of another command."""
    file = folder / SETTINGS
    if not file.is_file():
        raise InvalidInputError(f"{folder}: must be the results folder of a run, but {SETTINGS} is missing")
    settings = read_sealed(file)
    if isinstance(settings, dict) and settings.get("command") == OWN_COMMAND:
        raise InvalidInputError(
            f"{folder}: the run was made in Python; continue it there with "
            f"fewjoules.resume({str(folder)!r}, model=..., clients=...)"
        )
    keys = {"version", "command", "scenario", "scenario_folder", "data_dir", "device"}
    keys |= _OWN_KEYS.get(str(settings.get("command")), set()) if isinstance(settings, dict) else set()
    if not isinstance(settings, dict) or settings.get("version") != SETTINGS_VERSION or not keys <= set(settings):
        got = settings.get("version") if isinstance(settings, dict) else type(settings).__name__
        raise InvalidInputError(
            f"{file}: must be a table of version {SETTINGS_VERSION} with the keys {', '.join(sorted(keys))}, "
            f"got {shown(got)}"
        )
    if settings["command"] not in COMMANDS:
        allowed = f"{', '.join(COMMANDS[:-1])} or {COMMANDS[-1]}"
        raise InvalidInputError(f"{file}: command must be {allowed}, got {shown(settings['command'])}")
    if command is not None and settings["command"] != command:
        raise InvalidInputError(
            f"{folder}: the run was made by fewjoules {settings['command']}; {command} --resume cannot continue it"
        )
    for name, kind in _KINDS.items():
        if name in settings and not isinstance(settings[name], kind):
            raise InvalidInputError(f"{file}: {name} must not be {shown(settings[name])}")
    if not all(isinstance(scheme, str) for scheme in settings.get("schemes", ())):
        raise InvalidInputError(f"{file}: schemes must be names, got {shown(settings['schemes'])}")
    return dict(settings)


def require_undamaged(folder: Path, settings: Mapping[str, Any]) -> None:
    """Refuse a scenario or a plan that is not the one that ``save_settings`` saw."""
    for name, checksum in settings.get("checksums", {}).items():
        require_intact(folder / name, checksum)


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
