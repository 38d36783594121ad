"""The state of a run in one file: safetensors with the small things as JSON in its header, never half written."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fedjoule.engine.loop import Totals, TrainingLoop
from fedjoule.engine.rounds import TrainingState
from fedjoule.errors import InvalidInputError
from fedjoule.ledger.files import PARTIAL_SUFFIX, sync_folder

CHECKPOINT_VERSION = 1
Identity = Mapping[str, Any]


def save_checkpoint(path: Path, loop: TrainingLoop, identity: Identity) -> None:
    """Write weights, memories, buffers, totals and the round; random streams and channel follow from seed and round."""
    state = loop.simulator.state
    tensors = {
        "weights": state.weights,
        "memories": state.memories,
        "buffers": state.buffers,
        "synced": torch.from_numpy(state.synced),
        "mean_update": torch.from_numpy(state.mean_update),
    }
    header = {
        "version": CHECKPOINT_VERSION,
        "round": state.round,
        "totals": asdict(loop.totals),
        "last_test": [value.hex() for value in loop.last_test],
        "identity": identity,
    }
    save_tensors(path, tensors, {"fedjoule": json.dumps(header)})


def load_checkpoint(path: Path, identity: Identity, device: torch.device) -> tuple[TrainingState, dict[str, Any]]:
    """State, totals and last evaluation; a checkpoint of anything else is refused and the difference named."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("fedjoule", "{}"))
            _require_same(path, header, identity)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"{path}: must be a checkpoint of FedJoule, got a file that is not ({error})"
        ) from error
    state = TrainingState(
        round=header["round"],
        weights=tensors["weights"].to(device),
        memories=tensors["memories"].to(device),
        buffers=tensors["buffers"].to(device),
        synced=tensors["synced"].numpy(),
        mean_update=tensors["mean_update"].numpy(),
    )
    last_test = tuple(float.fromhex(value) for value in header["last_test"])
    return state, {"totals": Totals(**header["totals"]), "last_test": last_test}


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """A safetensors file that appears whole or not at all."""
    partial = path.with_name(f".{path.name}{PARTIAL_SUFFIX}")
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, partial, metadata)
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(partial, path)
    except SafetensorError as error:  # how the library tells of a full disk
        partial.unlink(missing_ok=True)
        raise OSError(f"{path}: could not be written ({error})") from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _require_same(path: Path, header: Mapping[str, Any], identity: Identity) -> None:
    if header.get("version") != CHECKPOINT_VERSION:
        raise InvalidInputError(
            f"{path}: the version of the checkpoint must be {CHECKPOINT_VERSION}, got {header.get('version')!r}"
        )
    stored, here = _flat(header["identity"]), _flat(json.loads(json.dumps(identity)))
    for key in [*here, *stored]:
        if stored.get(key) != here.get(key):
            raise InvalidInputError(
                f"{path}: the checkpoint belongs to another run: {key} was {_shown(stored.get(key))}, "
                f"and is {_shown(here.get(key))} now"
            )


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        flat |= _flat(entry, f"{prefix}{key}.") if isinstance(entry, dict) else {prefix + key: entry}
    return flat


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
