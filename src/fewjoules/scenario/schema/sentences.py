"""Describe an error in a scenario file in one plain sentence."""

import difflib
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fewjoules.errors import InvalidInputError, shown
from fewjoules.scenario.schema.base import Table
from fewjoules.scenario.schema.tables import TABLES

_TAGS = (
    *("range", "list", "paper", "bound", "power-law", "constrained-int", "int", "literal['all']"),
    *("number", "line", "mark", "kinds"),
)
_TAGGED = ("rounds", "local_steps", "batch_size", "downlink_sparsity", "core_hertz", "core_volts", "provenance")

_MOST_KEYS = 20
_LIMITS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}

AnyTable = TypeVar("AnyTable", bound=Table)


def validate(schema: type[AnyTable], data: dict[str, Any]) -> AnyTable:
    """Return ``data`` as a table, or raise its first error as an ``InvalidInputError``."""
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        raise InvalidInputError(_sentence(error.errors(include_url=False), data)) from error


def require_fitting(schema: type[Table], data: dict[str, Any]) -> None:
    """Refuse ``data`` with keys or values that do not fit the table; any key may be missing."""
    try:
        schema.model_validate(data)
    except ValidationError as error:
        details = [one for one in error.errors(include_url=False) if one["type"] != "missing"]
        if details:
            raise InvalidInputError(_sentence(details, data)) from error


def _sentence(details: list[ErrorDetails], data: dict[str, Any]) -> str:
    """Describe the first error; an unknown key comes first, since it may explain a missing key."""
    first = next((one for one in details if one["type"] == "extra_forbidden"), details[0])
    where, kind = _where(first["loc"], data), first["type"]
    if kind == "extra_forbidden":
        keys = tuple(part for part in first["loc"][:-1] if isinstance(part, str))
        return f"{where} is not a known key; {_known_keys(str(first['loc'][-1]), list(TABLES[keys].model_fields))}"
    if kind == "missing":
        return f"{where} is missing" + (": at least one [[device]] is needed" if where == "device" else "")
    if kind.startswith("union_tag"):
        given = first["input"].get("kind") if isinstance(first["input"], dict) else first["input"]
        found = "is missing; it" if given is None else ""
        return f"{where}.kind {found} must be 'paper', 'bound' or 'power-law', got {_shown(given)}".replace("  ", " ")
    return f"{where} {_requirement(first, where)}, got {_shown(first['input'])}"


def _known_keys(key: str, known: list[str]) -> str:
    """All keys of a table, or of a long table those most like the unknown one."""
    if len(known) <= _MOST_KEYS:
        return f"allowed are {', '.join(known)}"
    nearest = difflib.get_close_matches(key, known, n=3, cutoff=0.0)
    return f"the nearest of {len(known)} keys are {', '.join(nearest)}; docs/scenario.md lists all"


def _requirement(detail: ErrorDetails, where: str) -> str:
    """Return the requirement of pydantic in the words of a TOML file."""
    kind = detail["type"]
    if kind in ("model_type", "dict_type"):
        choice = " or a list of whole numbers" if where.endswith("local_steps") else ""
        return f"must be a table{choice}"
    if where in ("training.batch_size", "recipe.optimiser.batch_size"):
        return "must be a whole number from 1 to 2147483647 or 'all'"
    if kind == "list_type" and where == "device":
        return "must be written [[device]], in double brackets"
    if where.startswith(("rounds.intervals.", "recipe.rounds.intervals.")) and kind in (
        "too_short",
        "too_long",
        "list_type",
    ):
        return "must be two numbers, [low, high]"
    if kind == "too_short":
        return "must have at least 1 entry"
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        limit = detail["ctx"][key]
        return f"must be {words} {limit:g}" if isinstance(limit, float) else f"must be {words} {limit}"
    return detail["msg"].replace("Input should", "must").replace("String should", "must").replace("Value error, ", "")


def _where(location: tuple[int | str, ...], data: dict[str, Any]) -> str:
    """Return the dotted key; a device is given by its name."""
    text = ""
    for i, part in enumerate(location):
        if i and location[i - 1] in _TAGGED and part in _TAGS:
            continue
        if i == 1 and location[0] == "device":
            device = data["device"][part]
            name = device.get("name", part) if isinstance(device, dict) else part
            text = f"device {name!r}:"
        elif isinstance(part, int):
            text += f"[{part}]"
        else:
            text += (" " if text.endswith(":") else "." if text else "") + part
    return text.rstrip(":")


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "nothing" if value is None else shown(value)
