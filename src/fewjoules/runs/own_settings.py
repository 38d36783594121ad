"""settings.json of a run of ``fewjoules.train``: the options of the training, so that they need not be given again."""

from pathlib import Path
from typing import Any

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.errors import InvalidInputError, shown
from fewjoules.files import checksum_of, require_intact
from fewjoules.planner.plan import Plan
from fewjoules.runs.files import OWN_COMMAND, PLAN, SETTINGS, SETTINGS_VERSION
from fewjoules.runs.sealed import read_sealed, write_sealed

_KINDS = {"options": dict, "checksums": dict, "name": str, "device": str, "meter": bool}


def save_own_settings(folder: Path, options: TrainingOptions, plan: Plan | None, **settings: Any) -> None:
    """Write the plan and the settings of a run that begins."""
    if plan is not None:
        plan.save(folder / PLAN)
    known = {"version": SETTINGS_VERSION, "command": OWN_COMMAND, "options": options.to_dict(), **settings}
    written = {} if plan is None else {PLAN: checksum_of(folder / PLAN)}
    write_sealed(folder / SETTINGS, known | {"checksums": written})


def own_settings(folder: Path) -> dict[str, Any]:
    """Read what ``save_own_settings`` wrote; refuse a folder of anything else, or whose plan is damaged."""
    file = folder / SETTINGS
    if not file.is_file():
        raise InvalidInputError(f"{folder}: must be the results folder of a run, but {SETTINGS} is missing")
    found = read_sealed(file)
    if not isinstance(found, dict) or found.get("version") != SETTINGS_VERSION:
        got = found.get("version") if isinstance(found, dict) else type(found).__name__
        raise InvalidInputError(f"{file}: must be a table of version {SETTINGS_VERSION}, got {shown(got)}")
    if found.get("command") != OWN_COMMAND:
        command = shown(found.get("command")).strip("'")
        raise InvalidInputError(
            f"{folder}: the run was made by a command; continue it with fewjoules {command} --resume {folder}"
        )
    for name, kind in _KINDS.items():
        if not isinstance(found.get(name), kind):
            raise InvalidInputError(f"{file}: {name} must be a {kind.__name__}, got {shown(found.get(name))}")
    for name, checksum in found["checksums"].items():
        require_intact(folder / name, checksum)
    return found


def own_plan(folder: Path, settings: dict[str, Any]) -> Plan | None:
    """Return the plan that a run follows, if it has one."""
    return Plan.load(folder / PLAN) if PLAN in settings["checksums"] else None


def own_options(folder: Path, settings: dict[str, Any], again: dict[str, Any]) -> TrainingOptions:
    """Return the options of a run, from the plain values that ``TrainingOptions.to_dict`` gave.

    Options that are no plain values, such as functions, are given ``again``; the identity of the run checks them.
    """
    given = settings["options"] | {name: value for name, value in again.items() if value is not None}
    for name in again:
        if isinstance(given.get(name), dict):
            raise InvalidInputError(f"{folder}: the run has its own {name}, which must be given again")
    try:
        given["decay_rounds"] = tuple(given.get("decay_rounds", ()))
        lost = given.get("failures", {}).items()
        given["failures"] = {int(number): set(devices) for number, devices in lost}
        return TrainingOptions.of(**given)
    except (InvalidInputError, AttributeError, TypeError, ValueError) as error:
        raise InvalidInputError(f"{folder / SETTINGS}: the options are not those of a run ({error})") from error
