"""Values of a node or of a run as a TOML file, which Flower's commands read without any trouble with quotes."""

import json
import re
from collections.abc import Mapping

from fewjoules.errors import InvalidInputError

Value = str | int | float | bool
KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def toml_text(name: str, values: Mapping[str, Value]) -> str:
    """Return one line for each value; ``name`` says in errors whose values they are."""
    return "".join(f"{_checked_key(name, key)} = {_literal(f'{name}[{key!r}]', values[key])}\n" for key in values)


def _checked_key(name: str, key: str) -> str:
    if not KEY.fullmatch(key):
        raise InvalidInputError(f"keys of {name} must consist of letters, digits, '-', '_' and '.', got {key!r}")
    return key


def _literal(name: str, value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise InvalidInputError(f"{name} must be a string, a number, true or false, got {value!r}")
