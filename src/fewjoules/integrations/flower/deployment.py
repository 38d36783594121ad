"""The folder of a deployed run: who takes part, under which name nodes remember the run, and its results."""

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError
from fewjoules.files import read_text, whole_file
from fewjoules.integrations.flower.identity import Introduction

DEPLOYMENT, DEPLOYMENT_VERSION = "deployment.json", 2
DEPLOYMENT_VERSIONS = (1, 2)  # a deployment of version 1 does not say where joules come from


@dataclass(frozen=True, slots=True)
class Deployment:
    """Written before the first round and read after a restart, so that clients keep their numbers and memories.

    ``run`` names the run in the memories of the nodes; ``keys`` are the public keys of the nodes, in hexadecimal.
    """

    run: str
    clients: tuple[Introduction, ...]
    keys: dict[str, str]

    @classmethod
    def new(cls, clients: Sequence[Introduction], keys: dict[str, bytes]) -> "Deployment":
        """Return a deployment of these clients, numbered by their client-ids: numbers first, then names."""
        ordered = sorted(clients, key=lambda client: _natural(client.client))
        return cls(secrets.token_hex(16), tuple(ordered), {name: key.hex() for name, key in keys.items()})

    @property
    def names(self) -> list[str]:
        """The client-ids by number."""
        return [client.client for client in self.clients]

    def save(self, folder: Path) -> None:
        """Write the deployment to its folder."""
        with whole_file(folder / DEPLOYMENT) as stream:
            stream.write((json.dumps({"version": DEPLOYMENT_VERSION, **asdict(self)}, indent=1) + "\n").encode())

    @classmethod
    def load(cls, folder: Path) -> "Deployment | None":
        """Return the deployment that was begun in a folder; None if there is none."""
        path = folder / DEPLOYMENT
        if not path.exists():
            return None
        try:
            data: Any = json.loads(read_text(path))
            if data["version"] not in DEPLOYMENT_VERSIONS:
                allowed = " or ".join(map(str, DEPLOYMENT_VERSIONS))
                raise InvalidInputError(f"{path}: version must be {allowed}, got {data['version']!r}")
            clients = tuple(Introduction(**client) for client in data["clients"])
            return cls(str(data["run"]), clients, dict(data["keys"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(f"{path}: must be a deployment of FewJoules ({type(error).__name__})") from error


def _natural(name: str) -> tuple[Any, ...]:
    """Sort key in which client 2 comes before client 10."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part)
