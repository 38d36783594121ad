"""The named arrays of a model as two flat vectors, weights and buffers, and back."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.errors import InvalidInputError

WEIGHTS, BUFFERS, CONSTANT = "weights", "buffers", "constant"
RUNNING = ("running_mean", "running_var")  # the usual buffers: statistics that are averaged, not trained
Layout = list[dict[str, Any]]
Named = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class FlatModel:
    """Weights and buffers as float32 vectors; ``layout`` names their arrays in order, and holds all other arrays."""

    layout: Layout
    weights: Floats
    buffers: Floats

    @classmethod
    def of(cls, arrays: Named, buffers: frozenset[str] | None = None) -> "FlatModel":
        """Flatten named arrays; float32 arrays are weights unless they are named among the ``buffers``.

        Without names, the running statistics of normalisation layers are the buffers.
        """
        layout = [
            _entry(name, np.asarray(array), _role(name, np.asarray(array), buffers)) for name, array in arrays.items()
        ]
        vectors = {
            role: _joined([arrays[one["name"]] for one in layout if one["role"] == role]) for role in (WEIGHTS, BUFFERS)
        }
        if not vectors[WEIGHTS].size:
            raise InvalidInputError("a model must have at least one float32 array to train, got none")
        return cls(layout, vectors[WEIGHTS], vectors[BUFFERS])

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the named arrays."""
        vectors = {WEIGHTS: self.weights, BUFFERS: self.buffers}
        starts = dict.fromkeys(vectors, 0)
        arrays = {}
        for one in self.layout:
            role, shape = one["role"], tuple(one["shape"])
            if role == CONSTANT:
                arrays[one["name"]] = _constant(one)
                continue
            start, size = starts[role], int(np.prod(shape))
            arrays[one["name"]] = vectors[role][start : start + size].reshape(shape)
            starts[role] = start + size
        return arrays


def flat_like(layout: Layout, arrays: Named) -> tuple[Floats, Floats]:
    """Flatten arrays by a known layout: return weights and buffers, or name the array that does not fit."""
    vectors: dict[str, list[np.ndarray[Any, Any]]] = {WEIGHTS: [], BUFFERS: []}
    for one in layout:
        if one["role"] == CONSTANT:
            continue
        found = arrays.get(one["name"])
        if found is None or found.shape != tuple(one["shape"]):
            told = "nothing" if found is None else f"shape {found.shape}"
            raise InvalidInputError(f"array {one['name']!r} must have shape {tuple(one['shape'])}, got {told}")
        vectors[one["role"]].append(found)
    return _joined(vectors[WEIGHTS]), _joined(vectors[BUFFERS])


def _role(name: str, array: np.ndarray[Any, Any], buffers: frozenset[str] | None) -> str:
    if array.dtype != np.float32:
        if np.issubdtype(array.dtype, np.floating):
            raise InvalidInputError(f"array {name!r} must be float32, got {array.dtype}")
        return CONSTANT
    is_buffer = name.endswith(RUNNING) if buffers is None else name in buffers
    return BUFFERS if is_buffer else WEIGHTS


def _entry(name: str, array: np.ndarray[Any, Any], role: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "shape": list(array.shape), "role": role}
    if role == CONSTANT:
        entry |= {"dtype": array.dtype.str, "data": base64.b64encode(array.tobytes()).decode()}
    return entry


def _constant(entry: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    data = np.frombuffer(base64.b64decode(entry["data"]), dtype=np.dtype(entry["dtype"]))
    return data.reshape(tuple(entry["shape"])).copy()


def _joined(arrays: list[np.ndarray[Any, Any]]) -> Floats:
    if not arrays:
        return np.zeros(0, dtype=np.float32)
    return np.concatenate([np.asarray(array, dtype=np.float32).reshape(-1) for array in arrays])
