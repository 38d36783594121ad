"""What a node keeps between rounds, in one file for each client and run that is never half written.

The file holds the model that the node has, its residual and moments, and its last reply. It is replaced in one step
after the round is computed and before the reply leaves the node. A kill at any moment therefore leaves either the state
before the round or the state after it; in the second case the same request is answered with the same reply. A lock
keeps two messages that reach a node at the same time from computing the same round twice.
"""

import contextlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fewjoules.arrays import Floats
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.state import ClientState, LastUpload
from fewjoules.files import whole_file
from fewjoules.integrations.flower.identity import require_name
from fewjoules.integrations.flower.messages import Reply, reply_from_frame, to_frame

MEMORY_VERSION = 1
KEPT_RUNS = 4  # files of earlier runs that stay, for runs that are taken up again
_SUFFIX = ".memory"
_VECTORS = ("residual", "velocity", "squares")
_log = getLogger("flwr.fewjoules")


@dataclass(frozen=True, slots=True)
class Held:
    """The model after ``model_round`` rounds, the client's state, and its last reply with the digest of its request."""

    model_round: int
    weights: Floats
    buffers: Floats
    layout: list[dict[str, Any]] = field(default_factory=list)
    state: ClientState | None = None
    digest: str = ""
    reply: Reply | None = None


class NodeMemory:
    """The memory of one client in one run."""

    def __init__(self, folder: Path, client: str, run: str) -> None:
        """Look for the memory in ``folder``; names are checked, since they become part of the file's name."""
        self.folder, self.client, self.run = folder, require_name("a client-id", client), require_name("a run", run)
        self.path = folder / f"{client}@{run}{_SUFFIX}"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process runs a round of this client, and keep others waiting."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / f".{self.client}.lock").open("w") as lock:
            with contextlib.suppress(ImportError, OSError):  # systems and file systems without locks
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def load(self) -> Held | None:
        """Return what is held; None before the first round. A damaged file is set aside: it cannot be mended."""
        if not self.path.exists():
            return None
        try:
            return _held(self.path)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            aside = self.path.with_suffix(".damaged")
            self.path.replace(aside)
            _log.warning(
                "%s: the memory of client %s is damaged (%s); it was set aside as %s, and what it held back is lost",
                self.path,
                self.client,
                type(error).__name__,
                aside.name,
            )
            return None

    def save(self, held: Held) -> None:
        """Replace the memory; after a kill the file is either the old or the new one."""
        if not self.path.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._forget_old_runs()
        arrays, header = _arrays(held), _header(held)
        header["checksums"] = {name: _checksum(array) for name, array in arrays.items()}
        with whole_file(self.path) as stream:
            stream.write(save(arrays, {"fewjoules": json.dumps(header)}))

    def _forget_old_runs(self) -> None:
        own = sorted(self.folder.glob(f"{self.client}@*{_SUFFIX}"), key=lambda path: path.stat().st_mtime)
        for path in own[: max(0, len(own) - KEPT_RUNS)]:
            path.unlink(missing_ok=True)


def _arrays(held: Held) -> dict[str, Any]:
    arrays: dict[str, Any] = {"weights": held.weights, "buffers": held.buffers}
    state, last = held.state, None if held.state is None else held.state.last_upload
    arrays |= {name: getattr(state, name) for name in _VECTORS if getattr(state, name, None) is not None}
    if last is not None:
        arrays |= {"last positions": last.update.positions, "last values": last.update.values}
    if held.reply is not None:
        arrays["reply"] = np.frombuffer(to_frame(held.reply), dtype=np.uint8)
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _header(held: Held) -> dict[str, Any]:
    state, last = held.state, None if held.state is None else held.state.last_upload
    return {
        "version": MEMORY_VERSION,
        "model_round": held.model_round,
        "layout": held.layout,
        "digest": held.digest,
        "steps": None if state is None else state.steps,
        "last_round": None if last is None else last.round,
    }


def _held(path: Path) -> Held:
    with safe_open(path, framework="numpy") as file:
        header = json.loads((file.metadata() or {})["fewjoules"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    if header["version"] != MEMORY_VERSION:
        raise ValueError(f"version {header['version']}")
    if {name: _checksum(array) for name, array in arrays.items()} != header["checksums"]:
        raise ValueError("checksum")
    held = Held(header["model_round"], arrays["weights"], arrays["buffers"], header["layout"], None, header["digest"])
    if "reply" in arrays:
        held = replace(held, reply=reply_from_frame(arrays["reply"].tobytes()))
    if header["steps"] is None:
        return held
    last = None
    if header["last_round"] is not None:
        positions, values = arrays["last positions"], arrays["last values"]
        last = LastUpload(header["last_round"], SparseUpdate.trusted(held.weights.size, positions, values))
    vectors: dict[str, Any] = {name: arrays.get(name) for name in _VECTORS}
    return replace(held, state=ClientState(**vectors, steps=header["steps"], last_upload=last))


def _checksum(array: Any) -> int:
    return zlib.crc32(array.tobytes())
