"""Placeholder."""

from typing import Any

PRESETS: dict[str, Any] = {"ft-lsgd-db": {}}


def preset_options(name: str) -> dict[str, Any]:
    return dict(PRESETS[name])
