"""Which field of the page an error is about."""

import re
from typing import Any

# what the planner calls a key, and the key
_PLANNER_WORDS = {
    "sparsity min": "limits.sparsity.min",
    "sparsity max": "limits.sparsity.max",
    "local_steps": "limits.local_steps",
    "round_seconds": "limits.round_seconds",
    "rounds times joules": "rounds",
    "the price of a bit": "prices.bit",
    "the price of a step": "prices.step",
    "the price of a tail": "prices.tail",
}
_DEVICE = re.compile(r"device (?P<quote>['\"])(?P<name>.*?)(?P=quote):? ?(?P<rest>.*)")
_KEY = re.compile(r"[a-z_]+(\.[a-z_]+|\[\d+\])*")


def field_of(sentence: str, name: str, tables: dict[str, Any]) -> str | None:
    """Return the dotted path of the key that an error names, such as ``device.0.count``; None if it names none."""
    text = sentence.removeprefix(f"{name}: ").removeprefix("downlink ")
    if "round_seconds = " in text and "cannot be met" in text:
        return "limits.round_seconds"
    device = _DEVICE.search(text)
    if device:
        return _device_field(device["name"], text[: device.start()] + device["rest"], tables)
    for words, key in _PLANNER_WORDS.items():
        if text.startswith(words):
            return key
    found = _KEY.match(text)
    if found and found[0].split(".")[0].split("[")[0] in (*tables, "limits", "rounds", "model", "recipe", "training"):
        return found[0]
    named = re.search(r"limits\.[a-z_]+(\.[a-z]+)?|round_seconds", text)
    return None if named is None else _PLANNER_WORDS.get(named[0], named[0])


def _device_field(name: str, rest: str, tables: dict[str, Any]) -> str | None:
    devices = tables.get("device")
    names = [one.get("name", f"device-{n}") for n, one in enumerate(devices or [], 1) if isinstance(one, dict)]
    if name not in names:
        return None
    place = f"device.{names.index(name)}"
    if "battery_joules = " in rest:
        return f"{place}.battery_joules"
    key = _KEY.match(rest)
    known = key is not None and ("_" in key[0] or "." in key[0] or key[0] in ("count", "name", "profile", "radio"))
    return f"{place}.{key[0]}" if key is not None and known else place
