"""The commands that repeat or continue what a folder holds, to be run in the folder of the studio."""

import re
import shlex
from typing import Any

from fewjoules.files import read_text
from fewjoules.runs.files import OWN_COMMAND, PLAN, SCENARIO
from fewjoules.studio.access import Workspace
from fewjoules.studio.runs.folders import COMPARISON_KIND, FINISHED, RUNNING, TUNING_KIND, Found

_NAMES_FILES = re.compile(r"trace|partition_file|:", re.IGNORECASE)  # keys and values that name other files


def commands_of(found: Found, state: str, workspace: Workspace, parent: Found | None = None) -> dict[str, str]:
    """Return commands by what they do: continue what was stopped, and repeat it in a new folder."""
    if parent is not None:
        return commands_of(parent, state, workspace)
    name = _folder(found, workspace)
    if found.settings.get("command") == OWN_COMMAND:
        told = (
            {}
            if state == FINISHED
            else {"Continue it in Python": f"fewjoules.resume({name!r}, model=..., clients=...)"}
        )
        return told | {"Read it in Python": f"fewjoules.Run.load({name!r})"}
    command = {COMPARISON_KIND: "compare", TUNING_KIND: "tune"}.get(found.kind, "train")
    known = bool(found.settings)
    resume = {
        "Continue it, once it is stopped" if state == RUNNING else "Continue it": _joined(
            "fewjoules", command, "--resume", name
        )
    }
    again = {"Repeat it": _joined("fewjoules", command, *_arguments(found, name))} if known else {}
    return again if state == FINISHED else (resume | again if known else {})


def _arguments(found: Found, name: str) -> list[str]:
    """Return the arguments that begin the same anew."""
    settings = found.settings
    own = {COMPARISON_KIND: _of_comparison, TUNING_KIND: _of_tuning}.get(found.kind, _of_run)
    arguments = [_scenario(found, name), *own(found, name)]
    if isinstance(settings.get("data_dir"), str):
        arguments += ["--data-dir", settings["data_dir"]]
    if isinstance(settings.get("device"), str):
        arguments += ["--device", settings["device"]]
    arguments += ["--no-guard"] * (settings.get("no_guard") is True) + ["--meter"] * (settings.get("meter") is True)
    return arguments + ["--allow-outside"] * (settings.get("allow_outside") is True)


def _of_run(found: Found, name: str) -> list[str]:
    plan = ["--plan", f"{name}/{PLAN}"] if (found.path / PLAN).exists() else []
    return [*plan, "--out", f"{name}-again"]


def _of_comparison(found: Found, name: str) -> list[str]:
    settings = found.settings
    schemes, rates = _list(settings.get("schemes")), settings.get("rates")
    given = ["--schemes", ",".join(map(str, schemes))] if schemes else []
    if isinstance(settings.get("seeds"), int) and settings["seeds"] > 1:
        given += ["--seeds", str(settings["seeds"])]
    for scheme, rate in rates.items() if isinstance(rates, dict) else ():
        given += ["--rate", f"{scheme}={rate}"]
    return [*given, "--out", f"{name}-again"]


def _of_tuning(found: Found, name: str) -> list[str]:
    settings = found.settings
    given = []
    for option in ("budget", "trainings", "seed"):
        if settings.get(option) is not None:
            given += [f"--{option}", str(settings[option])]
    return [*given, "--folder", f"{name}-again", "--out", f"{name}-again.toml"]


def _scenario(found: Found, name: str) -> str:
    """Return the copy of the scenario in the folder, or its own path if it names files beside it."""
    copy = found.path / SCENARIO
    text = read_text(copy) if copy.exists() else ""
    told = found.settings.get("scenario")
    names_files = any(_NAMES_FILES.search(line.partition("#")[0]) for line in text.splitlines())
    return told if names_files and isinstance(told, str) else f"{name}/{SCENARIO}"


def _folder(found: Found, workspace: Workspace) -> str:
    name = workspace.name(found.path)
    return f"./{name}" if name.startswith("-") else name


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _joined(*words: str) -> str:
    return shlex.join(words)
