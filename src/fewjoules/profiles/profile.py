"""A profile file: [device] with keys of a [[device]] entry, and [sources] with the source of each of them."""

from dataclasses import dataclass
from typing import Any

from fewjoules.errors import InvalidInputError, shown
from fewjoules.files import parse_toml

MARKS = ("measured", "fitted", "assumed")
_TABLES = ("description", "device", "sources")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number comes from: measured there, fitted to measurements or derived from them, or assumed."""

    mark: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Costs of a kind of device. ``device`` is nested like a [[device]] entry; ``sources`` has dotted keys."""

    name: str
    description: str
    device: dict[str, Any]
    sources: dict[str, Source]

    @classmethod
    def from_text(cls, text: str, name: str) -> "Profile":
        """Read the text of a profile file; an error is one sentence that names the profile and the key."""
        try:
            return cls._from_tables(parse_toml(text), name)
        except InvalidInputError as error:
            raise InvalidInputError(f"profile {name!r}: {error}") from error
        except RecursionError as error:  # dotted keys nest without limit
            raise InvalidInputError(f"profile {name!r}: must be TOML whose tables are nested less deeply") from error

    @classmethod
    def _from_tables(cls, data: dict[str, Any], name: str) -> "Profile":
        device, given = _table(data, "device"), _table(data, "sources")
        for key in data:  # only of what is a profile: an error must not show other files
            if key not in _TABLES:
                raise InvalidInputError(f"{key} is not a known key; allowed are {', '.join(_TABLES)}")
        description = data.get("description", "")
        if not isinstance(description, str) or not description.isprintable():
            raise InvalidInputError(f"description must be one line of text, got {shown(description)}")
        sources, keys = _sources(given), keys_of(device)
        for key in keys:
            if key not in sources:
                raise InvalidInputError(f"[sources] must say where {key} comes from, but does not name it")
        for key in sources:
            if key not in keys:
                raise InvalidInputError(f"sources.{key} must name a key of [device], which has no {key}")
        return cls(name=name, description=description, device=device, sources=sources)

    def value(self, key: str) -> Any:
        """Return the value of a dotted key."""
        found: Any = self.device
        for part in key.split("."):
            found = found[part]
        return found


def keys_of(table: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted keys of all values of a table and the tables in it."""
    keys = []
    for key, value in table.items():
        keys += keys_of(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
    return keys


def _table(data: dict[str, Any], key: str) -> dict[str, Any]:
    table = data.get(key)
    if not isinstance(table, dict):
        raise InvalidInputError(f"needs a table [{key}], got {'nothing' if table is None else shown(table)}")
    return table


def _sources(table: dict[str, Any], prefix: str = "") -> dict[str, Source]:
    sources: dict[str, Source] = {}
    for key, entry in table.items():
        if isinstance(entry, dict) and entry.keys().isdisjoint({"mark", "source"}):
            sources |= _sources(entry, f"{prefix}{key}.")
        else:
            sources[prefix + key] = _source(prefix + key, entry)
    return sources


def _source(key: str, entry: Any) -> Source:
    if not isinstance(entry, dict) or entry.keys() != {"mark", "source"}:
        raise InvalidInputError(f"sources.{key} must be {{mark = ..., source = ...}}, got {shown(entry)}")
    if entry["mark"] not in MARKS:
        raise InvalidInputError(f"sources.{key}.mark must be one of {', '.join(MARKS)}, got {shown(entry['mark'])}")
    if not isinstance(entry["source"], str) or not entry["source"].strip() or not entry["source"].isprintable():
        raise InvalidInputError(f"sources.{key}.source must be one line of text, got {shown(entry['source'])}")
    return Source(entry["mark"], entry["source"])
