"""Who a node is: its client-id, its state folder, and the costs that it reports, from its Flower node config."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError
from fewjoules.provenance import KINDS, MARKS, require_mark

STATE_VARIABLE = "FEWJOULES_STATE"
NodeConfig = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a node tells about itself before training; ``samples`` is 0 where it does not know.

    ``marks`` say where the joules of each kind come from (provenance.py); those of other kinds are assumed.
    """

    client: str
    samples: int
    costs: dict[str, float]
    marks: dict[str, str] = field(default_factory=dict)


def client_id(config: NodeConfig) -> str:
    """Return ``client-id`` of the node config; in Flower's simulation, its ``partition-id``."""
    found = config.get("client-id", config.get("partition-id"))
    if found is None:
        raise InvalidInputError("the node config must have client-id, as in --node-config 'client-id=\"pi-3\"'")
    return require_name("a client-id", str(found))


def require_name(what: str, name: str) -> str:
    """Return a name that can be part of a file's name, or refuse it."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", name):
        raise InvalidInputError(
            f"{what} must have 1 to 64 letters, digits, dots, hyphens or underscores, got {name[:80]!r}"
        )
    return name


def require_cost(name: str, value: Any) -> float:
    """Return a cost as a number, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
        raise InvalidInputError(f"{name} must be a finite number >= 0, got {str(value)[:80]}")
    return float(value)


def state_folder(config: NodeConfig) -> Path:
    """Return ``state-dir`` of the node config, else FEWJOULES_STATE, else a folder of the user."""
    given = config.get("state-dir") or os.environ.get(STATE_VARIABLE)
    return Path(str(given)) if given else Path.home() / ".local" / "state" / "fewjoules"


def introduction(config: NodeConfig, samples: int | None = None) -> Introduction:
    """Return what the node reports: costs from ``device-file``, a TOML file with one [[device]], or from its config."""
    told = samples if samples is not None else int(config.get("samples", 0))
    path = config.get("device-file")
    if path is not None:
        from fewjoules.scenario.scenario import read_device

        device = read_device(str(path))
        return Introduction(client_id(config), told, device.costs, device.marks)
    return Introduction(client_id(config), told, _costs(config), _marks(config))


def _costs(config: NodeConfig) -> dict[str, float]:
    from fewjoules.physics.fleet import COSTS

    found = {name: config[name.replace("_", "-")] for name in COSTS if name.replace("_", "-") in config}
    return {name: require_cost(f"{name.replace('_', '-')} of the node config", cost) for name, cost in found.items()}


def _marks(config: NodeConfig) -> dict[str, str]:
    given = config.get("provenance")
    return {} if given is None else dict.fromkeys(KINDS, MARKS[require_mark("provenance of the node config", given)])
