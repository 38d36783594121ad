"""The state of a run in one safetensors file, with small values as JSON in its header; it is never half written."""

import hashlib
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fewjoules.engine.algorithm.saved import SavedTensor
from fewjoules.engine.coordinator import Coordinator
from fewjoules.engine.guard import Guard
from fewjoules.engine.loop import REASONS, TrainingLoop
from fewjoules.engine.models.layout import Layout
from fewjoules.engine.store.client_store import ClientTable
from fewjoules.engine.store.row_file import RowFile
from fewjoules.engine.totals import Totals
from fewjoules.errors import InvalidInputError, require_integer, require_number, shown
from fewjoules.files import require_regular, whole_file
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.runs.client_rows import StoredRows, rows_header, stored
from fewjoules.runs.data_facts import HELD, HELD_VALUES
from fewjoules.runs.saved_books import books_from, books_tensors, expected_books
from fewjoules.runs.saved_state import (
    AVERAGE,
    CLIENTS,
    GUARD,
    LAST_ROUND,
    Tensors,
    expected_in_guard,
    expected_tensors,
    guard_from,
    guard_tensors,
    guard_values,
    snapshots,
    state_from,
    state_tensors,
    under,
)
from fewjoules.runs.tensor_file import Checksums, checksum, write_tensors

CHECKPOINT_VERSION = 6
_KEY, _FIRST_KEY = "fewjoules", "fedjoule"  # header keys in the metadata: now, and before the package was renamed
_MANY = 2**62
_LONGEST_LIST = 10_000  # values of an identity that are stored as they are
_SEAL = "checksum"  # of the JSON under the key
_FIXED = "fixed."  # prefix of what the model has beside its weights and buffers, for an export
Identity = Mapping[str, Any]


def save_checkpoint(path: Path, loop: TrainingLoop, identity: Identity, rows: RowFile | None = None) -> RowFile | None:
    """Write server state, client states and totals; random streams need no state, as seed and round determine them.

    What clients keep goes to a file beside the checkpoint, which is returned: give it again with the next one, so that
    only what changed is written.
    """
    clients, guard = gathered_states(loop)
    tables = [clients, *(one.clients for one in (() if guard is None else snapshots(guard)))]
    with stored(path, tables, rows) as file:
        header = _header(loop, identity) | {"rows": rows_header(file)}

        def metadata(checksums: Checksums) -> dict[str, str]:
            text = json.dumps(header | {"checksums": checksums})
            return {_KEY: text, _SEAL: f"{zlib.crc32(text.encode()):010d}"}  # of one length whatever the checksum

        with whole_file(path) as stream:
            write_tensors(stream, _tensors(loop.simulator, clients, guard), metadata)
    return file


def gathered_states(loop: TrainingLoop) -> tuple[ClientTable, Guard | None]:
    """Return what clients keep, and the guard, with the clients of all ranks on the first one; every rank must call."""
    own, guard = loop.simulator.backend.save(), loop.guard
    kept = [] if guard is None else snapshots(guard)
    clients, *tables = loop.simulator.gathered([own, *(one.clients for one in kept)])
    whole = [replace(one, clients=table) for one, table in zip(kept, tables, strict=True)]
    return clients, None if guard is None else replace(guard, good=whole[0], latest=whole[-1])


def _header(loop: TrainingLoop, identity: Identity) -> dict[str, Any]:
    return {
        "version": CHECKPOINT_VERSION,
        "identity": identity,
        "round": loop.simulator.state.round,
        "reason": loop.reason,
        "last_test": [value.hex() for value in loop.last_test],
        **({"metrics": list(loop.own_metrics)} if loop.own_metrics else {}),
        "totals": asdict(loop.totals),
        "parts": {log.table.name: log.checksums for log in (loop.ledger, loop.metrics)},
        "model": _model_layout(loop.simulator),
        "returns": list(loop.simulator.state.returns),
        "guard": None if loop.guard is None else guard_values(loop.guard),
        "clock": None if loop.simulator.sampler.books is None else loop.simulator.sampler.books.clock.hex(),
    }


def load_checkpoint(path: Path, identity: Identity, simulator: Coordinator) -> dict[str, Any]:
    """Put the simulator into the saved state; return the other arguments of its loop, with two more.

    ``parts`` are the checksums of its logs, ``rows`` is the file that the next checkpoint should go on with.

    A checkpoint of another run is refused with the first difference; the simulator is then unchanged.
    """
    header, tensors = read_checkpoint(path)
    _require_same(path, header, identity)
    _require_tensors(path, tensors, header, simulator)
    kept = [under(prefix + CLIENTS, tensors) for prefix in ("", *GUARD)]
    rows = StoredRows(path, header.get("rows"), [own for own in kept if own], simulator)
    try:
        rest = {
            "totals": _totals(header["totals"]),
            "last_test": _last_test(header["last_test"], header.get("metrics", ()), simulator.metrics_table.own_names),
            "reason": header["reason"] if header["reason"] is None else REASONS[REASONS.index(header["reason"])],
            "parts": {name: dict(header["parts"][name]) for name in (LEDGER.name, METRICS.name)},
        }
        state = state_from(header, tensors, simulator)
        told = header["guard"]

        def own(kept: Tensors) -> ClientTable:
            return simulator.own_rows(rows.table(kept))

        rest["guard"] = None if told is None else guard_from(told, tensors, simulator, own)
        books = books_from(header["clock"], tensors, simulator)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise _foreign_header(path, error) from error
    simulator.state, simulator.sampler.books = state, books
    simulator.backend.restore(own(under(CLIENTS, tensors)))
    return rest | {"rows": rows.file}


def read_checkpoint(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Return the header and the tensors, mapped into memory; refuse a file whose header is damaged."""
    require_regular(path)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            text = metadata.get(_KEY) or metadata.get(_FIRST_KEY) or "{}"
            header = json.loads(text)
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{path}: must be a checkpoint of FewJoules, but cannot be read as one ({error})"
        ) from error
    if not isinstance(header, dict):
        raise InvalidInputError(f"{path}: the header of the checkpoint must be a table, got {type(header).__name__}")
    if header.get("version") != CHECKPOINT_VERSION:
        raise InvalidInputError(
            f"{path}: the version of the checkpoint must be {CHECKPOINT_VERSION}, got {shown(header.get('version'))}"
        )
    if metadata.get(_SEAL) != f"{zlib.crc32(text.encode()):010d}":
        raise InvalidInputError(f"{path}: the checksum of the header does not fit it; the file is damaged")
    return header, tensors


def exported_tensors(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Return the header of a checkpoint and the state of its model by name, from this file alone."""
    header, tensors = read_checkpoint(path)
    try:
        return header, _exported(path, header, tensors)
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise _foreign_header(path, error) from error


def _exported(path: Path, header: Mapping[str, Any], tensors: Tensors) -> Tensors:
    if not isinstance(header["identity"], dict):
        raise TypeError("identity is no table")
    str(header["identity"].get("architecture")).encode()  # an error of which is a ValueError
    require_integer("round", header["round"], low=0, high=LAST_ROUND)
    prefix = AVERAGE if AVERAGE + "weights" in tensors else ""  # as the run itself would hand the model out
    kinds = {kind: prefix + kind for kind in ("weights", "buffers")}
    wanted = [name for name in tensors if name in kinds.values() or name.startswith(_FIXED)]
    for name in wanted:
        _require_checksum(path, name, tensors, header["checksums"])
    told, state = header["model"], under(_FIXED, tensors)
    for kind, saved in kinds.items():
        shapes = {name: torch.empty(shape, device="meta") for name, shape in told[kind].items()}
        state |= Layout(shapes).views(tensors[saved])
    return state | {name: state[same] for name, same in told["tied"].items()}


def _foreign_header(path: Path, error: Exception) -> InvalidInputError:
    reason = str(error).split("\n")[0]
    return InvalidInputError(
        f"{path}: the header of the checkpoint is not one that FewJoules wrote ({shown(reason, 200)})"
    )


def _model_layout(simulator: Coordinator) -> dict[str, Any]:
    """Names and shapes of weights and buffers in order, and the names that stand for another one."""
    parts = simulator.parts
    return {"weights": parts.parameters.shapes, "buffers": parts.buffers.shapes, "tied": parts.tied}


def _last_test(told: Iterable[str], saved: Sequence[str], now: Sequence[str]) -> tuple[float, ...]:
    """Return loss, accuracy and metrics of the user's own, which must have the names that they had."""
    if tuple(saved) != tuple(now):
        raise InvalidInputError(
            f"a run goes on with the metrics that it had, {', '.join(map(str, saved)) or 'none'}, "
            f"got {', '.join(now) or 'none'}"
        )
    loss, accuracy, *own = map(float.fromhex, told)
    if own and len(own) != len(now):
        raise ValueError("last_test")
    return loss, accuracy, *own


def _totals(told: Mapping[str, Any]) -> Totals:
    """Return the totals; each must be at least 0, or NaN if it is unknown."""
    totals = Totals(**told)
    for name, value in asdict(totals).items():
        if isinstance(getattr(Totals(), name), int):
            require_integer(name, value, low=0, high=_MANY)
        elif not (isinstance(value, float) and math.isnan(value)):
            require_number(name, value, low=0.0)
    return totals


def _tensors(simulator: Coordinator, clients: ClientTable, guard: Guard | None) -> dict[str, SavedTensor]:
    needed = simulator.accounts.charges_downlink or simulator.backend.sends_changes
    fixed = {_FIXED + name: SavedTensor.of(tensor) for name, tensor in simulator.parts.fixed.items()}
    own = state_tensors(simulator.state, clients, broadcast=needed) | books_tensors(simulator)
    return own | fixed | ({} if guard is None else guard_tensors(guard))


def _require_tensors(path: Path, tensors: Tensors, header: Mapping[str, Any], simulator: Coordinator) -> None:
    """Refuse a checkpoint in which a tensor is missing, has the wrong type or shape, or is damaged."""
    checksums = header.get("checksums")
    expected = expected_tensors(tensors, simulator) | expected_in_guard(tensors, simulator) | expected_books(simulator)
    for name, (kind, shapes) in expected.items():
        found = tensors.get(name)
        if found is None or not isinstance(checksums, dict):
            raise InvalidInputError(f"{path}: the checkpoint lacks {name} or its checksum")
        if tuple(found.shape) not in shapes or found.dtype != kind:
            raise InvalidInputError(
                f"{path}: {name} must be {kind} of shape {' or '.join(map(str, shapes))}, "
                f"got {found.dtype} of shape {tuple(found.shape)}"
            )
    told = checksums if isinstance(checksums, dict) else {}
    for name in {**tensors, **told}:
        _require_checksum(path, name, tensors, told)
    for name in (name for name in expected if name.endswith((CLIENTS + "numbers", "knows"))):
        _require_clients(path, tensors[name], simulator.options.clients)


def _require_checksum(path: Path, name: str, tensors: Tensors, checksums: Checksums) -> None:
    found = tensors.get(name)
    if found is None or checksum(found) != checksums.get(name):
        raise InvalidInputError(f"{path}: the checksum of {name} does not fit its bytes; the file is damaged")


def _require_clients(path: Path, numbers: torch.Tensor, clients: int) -> None:
    found = numbers.tolist()
    if found != sorted(set(found)) or (found and not 0 <= found[0] <= found[-1] < clients):
        raise InvalidInputError(f"{path}: the clients must be different numbers from 0 to {clients - 1}, in order")


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file that appears whole or not at all."""
    ready: Tensors = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        storage = own.untyped_storage().data_ptr()
        ready[name] = own.clone() if storage in storages else own  # the format knows no shared memory
        storages.add(storage)
    with whole_file(path) as stream:
        stream.write(save(ready, metadata))


def _require_same(path: Path, header: Any, identity: Identity) -> None:
    if not isinstance(header.get("identity"), dict):
        raise InvalidInputError(f"{path}: the checkpoint lacks the identity of its run")
    require_same_identity(f"{path}: the checkpoint belongs to another run", header["identity"], identity)


def summarised(identity: Identity) -> dict[str, Any]:
    """Return an identity in which lists of very many values are replaced by their length and SHA-256.

    Each checkpoint holds the identity; that of a million devices would be larger than all that changed.
    """
    short: dict[str, Any] = {}
    for key, value in identity.items():
        if isinstance(value, Mapping):
            short[key] = summarised(value)
        elif isinstance(value, list) and len(value) > _LONGEST_LIST:
            digest = hashlib.sha256(json.dumps(value).encode()).hexdigest()
            short[key] = f"{len(value)} values with SHA-256 {digest}"
        else:
            short[key] = value
    return short


def require_same_identity(complaint: str, stored: Identity, here: Identity) -> None:
    """Refuse an identity that differs from the stored one, with the first fact that does."""
    before, now = _flat(stored), _flat(json.loads(json.dumps(here)))
    for key in [*now, *before]:
        was, found = before.get(key), now.get(key)
        if was == found or (key.endswith(HELD_VALUES) and None in (was, found)):
            continue
        helps = "; data_memory_gib says how much is held there" if key.endswith(HELD) else ""
        raise InvalidInputError(f"{complaint}: {key} was {shown(was)}, and is {shown(found)} now{helps}")


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        flat |= _flat(entry, f"{prefix}{key}.") if isinstance(entry, dict) else {prefix + key: entry}
    return flat
