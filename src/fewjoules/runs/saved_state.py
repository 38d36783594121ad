"""What a checkpoint holds of a run's states: of the server, its clients and the guard, as tensors and small values."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from fewjoules.engine.algorithm.last_rounds import LastRounds
from fewjoules.engine.algorithm.saved import SavedTensor
from fewjoules.engine.algorithm.server import OUTER_MOMENTS
from fewjoules.engine.algorithm.state import NEVER, Average, ServerState
from fewjoules.engine.coordinator import Coordinator
from fewjoules.engine.guard import Guard, Level, Snapshot
from fewjoules.engine.store.client_store import ClientTable
from fewjoules.errors import InvalidInputError, require_integer
from fewjoules.runs.client_rows import TABLE, table_tensors

CLIENTS = "clients."  # prefix of client states
LAST_ROUND = 2**31
_OUTER = "outer."  # prefix of the outer optimiser's moments
AVERAGE = "average."  # prefix of the mean of recent models
GUARD = ("guard.good.", "guard.latest.")  # prefixes of the guard's snapshots; the second only if it is another one
_MANY = 2**62
Tensors = dict[str, torch.Tensor]
Expected = dict[str, tuple[torch.dtype, list[tuple[int, ...]]]]


def state_tensors(state: ServerState, clients: ClientTable, *, broadcast: bool) -> dict[str, SavedTensor]:
    """Return the tensors of the server and of its clients by name; with ``broadcast``, also the last change.

    Of the server's record of each client, only the clients that it ``knows`` are saved.
    """
    accepted, synced = np.asarray(state.accepted), np.asarray(state.synced)
    knows = np.flatnonzero((accepted != NEVER) | (synced != NEVER))
    server = {
        "weights": state.weights,
        "buffers": state.buffers,
        "knows": torch.from_numpy(knows),
        "accepted": torch.from_numpy(accepted[knows]),
        "synced": torch.from_numpy(synced[knows]),
        "broadcast": state.broadcast if broadcast else state.broadcast[:0],
        "residual": state.residual,
        "changed": state.changed,
        **{_OUTER + name: tensor for name, tensor in state.outer.items()},
        **_average_tensors(state.average),
    }
    named = {CLIENTS + name: tensor for name, tensor in table_tensors(clients).items()}
    return {name: SavedTensor.of(tensor) for name, tensor in server.items()} | named


def state_from(values: Mapping[str, Any], tensors: Tensors, simulator: Coordinator) -> ServerState:
    """Return the state of a server from its tensors, its round and the returns of the guard."""
    number = require_integer("round", values["round"], low=0, high=LAST_ROUND)
    device = simulator.state.weights.device
    average = under(AVERAGE, tensors)
    record = {name: np.full(simulator.options.clients, NEVER, dtype=np.int64) for name in ("accepted", "synced")}
    for name, rounds in record.items():
        rounds[tensors["knows"].numpy()] = tensors[name].numpy()
    return ServerState(
        round=number,
        weights=tensors["weights"].to(device),
        buffers=tensors["buffers"].to(device),
        **{name: LastRounds(rounds) for name, rounds in record.items()},
        broadcast=tensors["broadcast"].to(device),
        residual=tensors["residual"].to(device),
        changed=tensors["changed"].to(device),
        outer={name: tensor.to(device) for name, tensor in under(_OUTER, tensors).items()},
        returns=tuple(require_integer("returns", one, low=1, high=number) for one in values["returns"]),
        average=_average_from(average, device) if average else None,
    )


def _average_tensors(average: Average | None) -> Tensors:
    if average is None:
        return {}
    own = {"weights": average.weights, "buffers": average.buffers, "models": torch.tensor([average.models])}
    return {AVERAGE + name: tensor for name, tensor in own.items()}


def _average_from(tensors: Tensors, device: torch.device) -> Average:
    models = require_integer("models of the mean", int(tensors["models"]), low=1, high=LAST_ROUND)
    return Average(tensors["weights"].to(device), tensors["buffers"].to(device), models)


def guard_tensors(guard: Guard) -> dict[str, SavedTensor]:
    """Return the tensors of the guard's snapshots by name."""
    found: dict[str, SavedTensor] = {}
    for prefix, kept in zip(GUARD, snapshots(guard), strict=False):
        own = state_tensors(kept.state, kept.clients, broadcast=False)
        found |= {prefix + name: tensor for name, tensor in own.items()}
    return found


def guard_values(guard: Guard) -> dict[str, Any]:
    """Return the small values of a guard, losses with all their bits."""
    kept = [
        {"round": one.state.round, "returns": list(one.state.returns), "level": _level_values(one.level)}
        for one in snapshots(guard)
    ]
    return {"kept_round": guard.kept_round, "level": _level_values(guard.level), "snapshots": kept}


def guard_from(
    values: Mapping[str, Any],
    tensors: Tensors,
    simulator: Coordinator,
    table_of: Callable[[Tensors], ClientTable],
) -> Guard:
    """Return the guard of which a checkpoint holds these values and tensors; ``table_of`` finds the clients' rows."""
    told = list(values["snapshots"])
    if not 1 <= len(told) <= len(GUARD):
        raise InvalidInputError(f"the guard must have one or two snapshots, got {len(told)}")
    kept = []
    for prefix, one in zip(GUARD, told, strict=False):
        own = under(prefix, tensors)
        kept.append(Snapshot(state_from(one, own, simulator), table_of(under(CLIENTS, own)), _level(one["level"])))
    kept_round = require_integer("kept_round", values["kept_round"], low=0, high=LAST_ROUND)
    return Guard(kept[0], kept[-1], _level(values["level"]), kept_round)


def snapshots(guard: Guard) -> list[Snapshot]:
    """Return the different snapshots of a guard, the earlier one first."""
    return [guard.good] if guard.good is guard.latest else [guard.good, guard.latest]


def _level_values(level: Level) -> list[Any]:
    return [level.first.hex(), level.now.hex(), level.samples]


def _level(values: Any) -> Level:
    first, now, samples = values
    return Level(float.fromhex(first), float.fromhex(now), require_integer("samples", samples, low=0, high=_MANY))


def expected_tensors(tensors: Tensors, simulator: Coordinator) -> Expected:
    """Return the type and the allowed shapes of every tensor that the run must have."""
    state, options = simulator.state, simulator.options
    size = state.weights.numel()
    known, present = (0 if one is None else one.numel() for one in map(tensors.get, ("knows", CLIENTS + "numbers")))
    expected: Expected = {
        "weights": (torch.float32, [(size,)]),
        "buffers": (torch.float32, [tuple(state.buffers.shape)]),
        **{name: (torch.int64, [(known,)]) for name in ("knows", "accepted", "synced")},
        "broadcast": (torch.float32, [(0,), (size,)]),
        "residual": (torch.float32, [tuple(state.residual.shape)]),
        "changed": (torch.int32, [tuple(state.changed.shape)]),
        **{CLIENTS + name: (torch.int64, [(present,)]) for name in TABLE},
    }
    if any(name.startswith(_OUTER) for name in tensors):
        expected |= {_OUTER + name: (torch.float32, [(size,)]) for name in OUTER_MOMENTS[options.outer]}
    if options.averaging and any(name.startswith(AVERAGE) for name in tensors):
        expected |= {AVERAGE + name: expected[name] for name in ("weights", "buffers")}
        expected[AVERAGE + "models"] = (torch.int64, [(1,)])
    return expected


def expected_in_guard(tensors: Tensors, simulator: Coordinator) -> Expected:
    """Return the same for the snapshots of the guard that the checkpoint has."""
    found: Expected = {}
    for prefix in GUARD:
        own = under(prefix, tensors)
        if own:
            expected = expected_tensors(own, simulator) | {"changed": (torch.int32, [(0,)])}
            found |= {prefix + name: wanted for name, wanted in expected.items()}
    return found


def under(prefix: str, tensors: Tensors) -> Tensors:
    """Return the tensors whose names have this prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
