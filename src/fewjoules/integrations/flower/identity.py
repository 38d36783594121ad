"""Who a node is: its client-id, its state folder, and the costs that it reports, from its Flower node config."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError

STATE_VARIABLE = "FEWJOULES_STATE"
NodeConfig = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a node tells about itself before training; ``samples`` is 0 where it does not know."""

    client: str
    samples: int
    costs: dict[str, float]


def client_id(config: NodeConfig) -> str:
    """Return ``client-id`` of the node config; in Flower's simulation, its ``partition-id``."""
    found = config.get("client-id", config.get("partition-id"))
    if found is None:
        raise InvalidInputError("the node config must have client-id, as in --node-config 'client-id=\"pi-3\"'")
    return str(found)


def state_folder(config: NodeConfig) -> Path:
    """Return ``state-dir`` of the node config, else FEWJOULES_STATE, else a folder of the user."""
    given = config.get("state-dir") or os.environ.get(STATE_VARIABLE)
    return Path(str(given)) if given else Path.home() / ".local" / "state" / "fewjoules"


def introduction(config: NodeConfig, samples: int | None = None) -> Introduction:
    """Return what the node reports: costs from ``device-file``, a TOML file with one [[device]], or from its config."""
    told = samples if samples is not None else int(config.get("samples", 0))
    return Introduction(client_id(config), told, _costs(config))


def _costs(config: NodeConfig) -> dict[str, float]:
    path = config.get("device-file")
    if path is not None:
        from fewjoules.scenario.scenario import device_costs

        return device_costs(str(path))
    from fewjoules.physics.fleet import COSTS

    found = {name: config[name.replace("_", "-")] for name in COSTS if name.replace("_", "-") in config}
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0.0:
            raise InvalidInputError(f"{name.replace('_', '-')} of the node config must be a number >= 0, got {value!r}")
    return {name: float(value) for name, value in found.items()}
