"""What a checkpoint holds of a run's states: of the server, its clients and the guard, as tensors and small values."""

from collections.abc import Mapping
from typing import Any

import torch

from fewjoules.engine.algorithm.client import kept_vectors
from fewjoules.engine.algorithm.saved import SavedTensor
from fewjoules.engine.algorithm.server import OUTER_MOMENTS
from fewjoules.engine.algorithm.state import ServerState
from fewjoules.engine.coordinator import Coordinator
from fewjoules.engine.guard import Guard, Level, Snapshot
from fewjoules.errors import InvalidInputError, require_integer

CLIENTS = "clients."  # prefix of client states
LAST_ROUND = 2**31
_OUTER = "outer."  # prefix of the outer optimiser's moments
_GUARD = ("guard.good.", "guard.latest.")  # prefixes of the guard's snapshots; the second only if it is another one
_MANY = 2**62
Tensors = dict[str, torch.Tensor]
Expected = dict[str, tuple[torch.dtype, list[tuple[int, ...]]]]


def state_tensors(state: ServerState, clients: Mapping[str, SavedTensor], *, broadcast: bool) -> dict[str, SavedTensor]:
    """Return the tensors of the server and of its clients by name; with ``broadcast``, also the last change."""
    server = {
        "weights": state.weights,
        "buffers": state.buffers,
        "accepted": torch.from_numpy(state.accepted),
        "synced": torch.from_numpy(state.synced),
        "broadcast": state.broadcast if broadcast else state.broadcast[:0],
        "residual": state.residual,
        "changed": state.changed,
        **{_OUTER + name: tensor for name, tensor in state.outer.items()},
    }
    named = {CLIENTS + name: tensor for name, tensor in clients.items()}
    return {name: SavedTensor.of(tensor) for name, tensor in server.items()} | named


def state_from(values: Mapping[str, Any], tensors: Tensors, simulator: Coordinator) -> ServerState:
    """Return the state of a server from its tensors, its round and the returns of the guard."""
    number = require_integer("round", values["round"], low=0, high=LAST_ROUND)
    device = simulator.state.weights.device
    return ServerState(
        round=number,
        weights=tensors["weights"].to(device),
        buffers=tensors["buffers"].to(device),
        accepted=tensors["accepted"].numpy(),
        synced=tensors["synced"].numpy(),
        broadcast=tensors["broadcast"].to(device),
        residual=tensors["residual"].to(device),
        changed=tensors["changed"].to(device),
        outer={name: tensor.to(device) for name, tensor in under(_OUTER, tensors).items()},
        returns=tuple(require_integer("returns", one, low=1, high=number) for one in values["returns"]),
    )


def guard_tensors(guard: Guard) -> dict[str, SavedTensor]:
    """Return the tensors of the guard's snapshots by name."""
    found: dict[str, SavedTensor] = {}
    for prefix, kept in zip(_GUARD, _snapshots(guard), strict=False):
        clients = {name: SavedTensor.of(tensor) for name, tensor in kept.clients.items()}
        own = state_tensors(kept.state, clients, broadcast=False)
        found |= {prefix + name: tensor for name, tensor in own.items()}
    return found


def guard_values(guard: Guard) -> dict[str, Any]:
    """Return the small values of a guard, losses with all their bits."""
    snapshots = [
        {"round": one.state.round, "returns": list(one.state.returns), "level": _level_values(one.level)}
        for one in _snapshots(guard)
    ]
    return {"kept_round": guard.kept_round, "level": _level_values(guard.level), "snapshots": snapshots}


def guard_from(values: Mapping[str, Any], tensors: Tensors, simulator: Coordinator) -> Guard:
    """Return the guard of which a checkpoint holds these values and tensors."""
    told = list(values["snapshots"])
    if not 1 <= len(told) <= len(_GUARD):
        raise InvalidInputError(f"the guard must have one or two snapshots, got {len(told)}")
    kept = []
    for prefix, one in zip(_GUARD, told, strict=False):
        own = under(prefix, tensors)
        kept.append(Snapshot(state_from(one, own, simulator), under(CLIENTS, own), _level(one["level"])))
    kept_round = require_integer("kept_round", values["kept_round"], low=0, high=LAST_ROUND)
    return Guard(kept[0], kept[-1], _level(values["level"]), kept_round)


def _snapshots(guard: Guard) -> list[Snapshot]:
    return [guard.good] if guard.good is guard.latest else [guard.good, guard.latest]


def _level_values(level: Level) -> list[Any]:
    return [level.first.hex(), level.now.hex(), level.samples]


def _level(values: Any) -> Level:
    first, now, samples = values
    return Level(float.fromhex(first), float.fromhex(now), require_integer("samples", samples, low=0, high=_MANY))


def expected_tensors(tensors: Tensors, simulator: Coordinator) -> Expected:
    """Return the type and the allowed shapes of every tensor that the run must have."""
    state, options = simulator.state, simulator.options
    size, everyone = state.weights.numel(), (options.clients,)
    numbers = tensors.get(CLIENTS + "numbers")
    present = 0 if numbers is None else numbers.numel()
    expected: Expected = {
        "weights": (torch.float32, [(size,)]),
        "buffers": (torch.float32, [tuple(state.buffers.shape)]),
        "accepted": (torch.int64, [everyone]),
        "synced": (torch.int64, [everyone]),
        "broadcast": (torch.float32, [(0,), (size,)]),
        "residual": (torch.float32, [tuple(state.residual.shape)]),
        "changed": (torch.int32, [tuple(state.changed.shape)]),
        CLIENTS + "numbers": (torch.int64, [(present,)]),
        CLIENTS + "steps": (torch.int64, [(present,)]),
    }
    vectors = kept_vectors(options) if present else ()
    expected |= {CLIENTS + name: (torch.float32, [(present, size)]) for name in vectors}
    moments = OUTER_MOMENTS[options.outer]
    begun = any(name.startswith(_OUTER) for name in tensors)
    return expected | {_OUTER + name: (torch.float32, [(size,)]) for name in (moments if begun else ())}


def expected_in_guard(tensors: Tensors, simulator: Coordinator) -> Expected:
    """Return the same for the snapshots of the guard that the checkpoint has."""
    found: Expected = {}
    for prefix in _GUARD:
        own = under(prefix, tensors)
        if own:
            expected = expected_tensors(own, simulator) | {"changed": (torch.int32, [(0,)])}
            found |= {prefix + name: wanted for name, wanted in expected.items()}
    return found


def under(prefix: str, tensors: Tensors) -> Tensors:
    """Return the tensors whose names have this prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
