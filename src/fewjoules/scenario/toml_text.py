"""Write tables as TOML text that parses to the same tables."""

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SHORT_TABLE = ("sparsity", "downlink_sparsity", "local_steps", "intervals")  # tables that read best in one line


def toml_text(tables: Mapping[str, Any]) -> str:
    """Return a document: plain values first, then a section for each table and for each table of a list."""
    lines = _section((), tables)
    return "\n".join(lines).strip() + "\n"


def _section(path: tuple[str, ...], table: Mapping[str, Any]) -> list[str]:
    """Return the values of a table without its header, and the sections of the tables in it."""
    inner = {key: value for key, value in table.items() if _is_section(key, value)}
    lines = key_lines({key: value for key, value in table.items() if key not in inner})
    for key, value in inner.items():
        name = ".".join(map(key_text, (*path, key)))
        for one in value if isinstance(value, list) else [value]:
            header = f"[[{name}]]" if isinstance(value, list) else f"[{name}]"
            lines += ["", header, *_section((*path, key), one)]
    return lines


def _is_section(key: str, value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(one, dict) for one in value)
    return isinstance(value, dict) and key not in _SHORT_TABLE


def key_lines(table: Mapping[str, Any]) -> list[str]:
    """Return a line for each key and its value."""
    return [f"{key_text(key)} = {value_text(value)}" for key, value in table.items()]


def key_text(key: str) -> str:
    """Return a key, quoted where it must be."""
    return key if _BARE.fullmatch(key) else value_text(key)


def value_text(value: Any) -> str:
    """Return a value as TOML, a number with every digit that tells it from its neighbours."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key_text(key)} = {value_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    return repr(value)
