"""The state of a run in one file: safetensors with the small things as JSON in its header, never half written."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fewjoules.engine.algorithm.round import TrainingState
from fewjoules.engine.simulator.loop import Totals, TrainingLoop
from fewjoules.errors import InvalidInputError, require_integer
from fewjoules.files import whole_file

CHECKPOINT_VERSION = 1
_FIRST_NAME = "fedjoule"  # the key of the header before the package was renamed
Identity = Mapping[str, Any]


def save_checkpoint(path: Path, loop: TrainingLoop, identity: Identity) -> None:
    """Write weights, memories, buffers, totals and the round; random streams and channel follow from seed and round."""
    state = loop.simulator.state
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _tensors(state).items()}
    header = {
        "version": CHECKPOINT_VERSION,
        "identity": identity,
        "round": state.round,
        "reason": loop.reason,
        "last_test": [value.hex() for value in loop.last_test],
        "totals": asdict(loop.totals),
        "checksums": {name: _checksum(tensor) for name, tensor in tensors.items()},
    }
    save_tensors(path, tensors, {"fewjoules": json.dumps(header)})


def load_checkpoint(path: Path, identity: Identity, fresh: TrainingState) -> tuple[TrainingState, dict[str, Any]]:
    """State, and what a loop needs beside it; a checkpoint of anything else is refused and the difference named.

    ``fresh`` is a state of the run that is resumed, for shapes and the device.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            header = json.loads(metadata.get("fewjoules") or metadata.get(_FIRST_NAME) or "{}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, ValueError) as error:
        raise InvalidInputError(
            f"{path}: must be a checkpoint of FewJoules, got a file that is not ({error})"
        ) from error
    _require_same(path, header, identity)
    _require_tensors(path, tensors, header, fresh)
    device = fresh.weights.device
    try:
        rest = {
            "totals": Totals(**header["totals"]),
            "last_test": tuple(float.fromhex(value) for value in header["last_test"]),
            "reason": header["reason"],
        }
        number = require_integer("round", header["round"], low=0, high=2**31)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{path}: the header of the checkpoint is not one that FewJoules wrote ({error})"
        ) from error
    state = TrainingState(
        round=number,
        weights=tensors["weights"].to(device),
        memories=tensors["memories"].to(device),
        buffers=tensors["buffers"].to(device),
        synced=tensors["synced"].numpy(),
        mean_update=tensors["mean_update"].numpy(),
    )
    return state, rest


def _tensors(state: TrainingState) -> dict[str, torch.Tensor]:
    return {
        "weights": state.weights,
        "memories": state.memories,
        "buffers": state.buffers,
        "synced": torch.from_numpy(state.synced),
        "mean_update": torch.from_numpy(state.mean_update),
    }


def _checksum(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.numpy().data.cast("B")) if tensor.numel() else 0


def _require_tensors(
    path: Path, tensors: Mapping[str, torch.Tensor], header: Mapping[str, Any], fresh: TrainingState
) -> None:
    checksums = header.get("checksums")
    for name, like in _tensors(fresh).items():
        found = tensors.get(name)
        if found is None or not isinstance(checksums, dict):
            raise InvalidInputError(f"{path}: the checkpoint must hold {name} with a checksum, got none")
        fits = found.shape == like.shape or (name == "mean_update" and found.shape == fresh.weights.shape)
        if not fits or found.dtype != like.dtype:
            raise InvalidInputError(
                f"{path}: {name} must be {like.dtype} of shape {tuple(like.shape)}, "
                f"got {found.dtype} of shape {tuple(found.shape)}"
            )
        if _checksum(found) != checksums.get(name):
            raise InvalidInputError(f"{path}: the checksum of {name} does not fit its bytes; the file is damaged")


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """A safetensors file that appears whole or not at all."""
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with whole_file(path) as stream:
        stream.write(save(ready, metadata))


def _require_same(path: Path, header: Any, identity: Identity) -> None:
    if not isinstance(header, dict):
        raise InvalidInputError(f"{path}: the header of the checkpoint must be a table, got {type(header).__name__}")
    if header.get("version") != CHECKPOINT_VERSION:
        raise InvalidInputError(
            f"{path}: the version of the checkpoint must be {CHECKPOINT_VERSION}, got {header.get('version')!r}"
        )
    if not isinstance(header.get("identity"), dict):
        raise InvalidInputError(f"{path}: the checkpoint must tell the identity of its run, got none")
    given = header["identity"]
    if f"{_FIRST_NAME} version" in given:
        given = {"fewjoules version": given[f"{_FIRST_NAME} version"]} | given
        del given[f"{_FIRST_NAME} version"]
    stored, here = _flat(given), _flat(json.loads(json.dumps(identity)))
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
