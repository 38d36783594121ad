"""Scenarios to start from: files below the folder of the studio, the embedded one, and one for each profile."""

import os
from importlib import resources
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError, shown
from fewjoules.files import parse_toml, read_text
from fewjoules.profiles import profile_names, shipped_profile
from fewjoules.scenario.scenario import MAX_SCENARIO_BYTES
from fewjoules.studio.access import Workspace

MOST_FILES = 500
MOST_LOOKED_AT = 20_000
MOST_FOLDERS_DEEP = 6
MOST_BYTES = 4 * 2**20  # of a scenario that a page can edit
EXAMPLE_DEVICES = 100
_SIGNS = ("[[device]]", "[limits]")


def scenario_files(workspace: Workspace) -> list[str]:
    """Return the names of TOML files below the root that look like scenarios, those nearest to the root first."""
    found, looked = [], 0
    for folder, folders, names in os.walk(workspace.root):
        path = Path(folder)
        depth = len(path.relative_to(workspace.root).parts)
        folders[:] = (
            sorted(one for one in folders if not one.startswith((".", "__"))) if depth < MOST_FOLDERS_DEEP else []
        )
        looked += len(names)
        found += [workspace.name(path / name) for name in names if name.endswith(".toml") and _is_scenario(path / name)]
        if len(found) >= MOST_FILES or looked >= MOST_LOOKED_AT:
            break
    return sorted(found, key=lambda name: (name.count("/"), name))[:MOST_FILES]


def _is_scenario(file: Path) -> bool:
    if file.is_symlink():  # may lead outside; it can still be opened by its name where it does not
        return False
    try:
        text = read_text(file, max_bytes=MOST_BYTES)
    except InvalidInputError:
        return False
    return all(sign in text for sign in _SIGNS)


def load(workspace: Workspace, name: str) -> dict[str, Any]:
    """Return the tables of a scenario file below the root."""
    path = workspace.path(name)
    try:
        tables = parse_toml(read_text(path, max_bytes=min(MOST_BYTES, MAX_SCENARIO_BYTES)))
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {str(error).removeprefix(f'{path}: ')}") from error
    folder = workspace.name(path.parent)
    return {"scenario": tables, "name": path.name, "folder": "" if folder == "." else folder}


def example(name: str) -> dict[str, Any]:
    """Return the embedded scenario, or one of devices of a profile for the same model and rounds law."""
    text = resources.files("fewjoules.embedded").joinpath("four-groups.toml").read_text(encoding="utf-8")
    tables = parse_toml(text)
    if name == "embedded":
        return {"scenario": tables, "name": "four-groups.toml", "folder": ""}
    if name not in profile_names():
        raise InvalidInputError(f"example must be embedded or one of {', '.join(profile_names())}, got {shown(name)}")
    del tables["recipe"]
    device = {"name": name, "count": EXAMPLE_DEVICES, "profile": name}
    return {"scenario": tables | {"device": [device]}, "name": f"{name}.toml", "folder": ""}


def profiles() -> dict[str, dict[str, Any]]:
    """Return what each profile is and states."""
    found = {name: shipped_profile(name) for name in profile_names()}
    return {name: {"description": one.description, "device": one.device} for name, one in found.items()}
