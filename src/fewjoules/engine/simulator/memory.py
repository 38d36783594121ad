"""Memory that a training takes at its peak, beyond what is in use before its first round: estimated from shapes alone.

It rather leaves something out than refuses a training that fits; docs/training.md says how near it comes.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from fewjoules.engine.algorithm.client import kept_vectors
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.participation import participants_per_round
from fewjoules.engine.algorithm.round import kept_entries
from fewjoules.engine.algorithm.rule import InnerRule
from fewjoules.engine.algorithm.server import OUTER_MOMENTS
from fewjoules.engine.guard import SNAPSHOT_ROUNDS
from fewjoules.engine.models.tree import leaves
from fewjoules.engine.simulator.cuda.kept import gpu_rows
from fewjoules.engine.simulator.evaluate import Evaluator
from fewjoules.engine.simulator.federation import first_of
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.engine.store.client_store import BFLOAT16, DTYPES
from fewjoules.ledger.schema import LEDGER, METRICS

HOST, GPU, DISK = "memory", "memory of the GPU", "disk"
_FLOAT, _ENTRY = 4, 12  # bytes; an entry of a message is a position and a value
_DRAW = 40  # bytes: number and weight of a sample of this round, and of the next while they are drawn
_STEP_COPIES = {
    "sgd": 2,
    "momentum": 3,
    "adamw": 12,
}  # of a client's weights while it takes a step, the weights included


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that something takes, where it takes them, and what would make it smaller."""

    what: str
    bytes: int
    helps: tuple[str, ...]
    where: str


def needs_of(
    simulator: Simulator, *, rows_in_memory: bool, saved: bool = False, evaluator: Evaluator | None = None
) -> list[Need]:
    """Return what the training will need, the largest first.

    ``rows_in_memory``: its tables stay in memory. ``saved``: it writes checkpoints, to the folder of its store.
    ``evaluator`` is the one of its test set, if it has any.
    """
    on_gpu = simulator.federation.samples.device.type == "cuda"
    found = [*_stored(simulator, on_gpu, saved), *_phases(simulator, evaluator, on_gpu)]
    found += [_server(simulator, on_gpu), _batches(simulator)]
    found += [_rows(simulator.options)] if rows_in_memory else []
    return sorted(found, key=lambda need: -need.bytes)


def expected_clients(options: TrainingOptions, rounds: int | None = None) -> int:
    """How many different clients are expected to take part in at least one of so many rounds, by default of all."""
    clients, each = options.clients, participants_per_round(options)
    number = options.rounds if rounds is None else rounds
    return round(clients * -math.expm1(number * math.log1p(-each / clients))) if each < clients else clients


def _stored(simulator: Simulator, on_gpu: bool, saved: bool) -> list[Need]:
    """What clients keep: on a GPU as far as it has room, then in memory up to the bound of the store, then on disk.

    A checkpoint has all of it once more, on disk, except the rows by which a round can be taken back.
    """
    kept = _states(simulator) + _snapshots(simulator)
    in_checkpoint = sum(need.bytes for need in kept)
    kept += _held(simulator) if saved else []
    total = sum(need.bytes for need in kept)
    if not total:
        return []
    rows = gpu_rows(simulator.store.row_bytes, simulator.options.clients, simulator.federation.samples.device)
    fits = min(total, rows * simulator.store.row_bytes) if on_gpu else 0
    bound = simulator.store.place.memory_bytes
    held = total - fits if bound is None else min(total - fits, bound)
    spilled = total - fits - held
    found = []
    for where, share, first in ((GPU, fits, ()), (HOST, held, ("a smaller memory_gib",))):
        for need in kept if share else ():
            found.append(replace(need, bytes=need.bytes * share // total, helps=(*first, *need.helps), where=where))
    helps = ("a folder on another disk" if saved else "another store_dir", *_words(kept))
    everyone = f"what {expected_clients(simulator.options):,} clients keep"
    if spilled:
        what = f"{everyone} beyond {in_gib(held)} GiB of memory"
        found.append(Need(what, spilled, ("a larger memory_gib", *helps), DISK))
    if saved:
        found.append(Need(f"{everyone}, in a checkpoint", in_checkpoint, helps, DISK))
    return found


def _words(needs: list[Need]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for need in needs for word in need.helps))


def in_gib(count: int) -> str:
    """Return bytes as GiB, with three digits."""
    return f"{count / 2**30:.3g}"


def _states(simulator: Simulator) -> list[Need]:
    """What clients keep from round to round."""
    options, clients = simulator.options, expected_clients(simulator.options)
    each = simulator.parameters.size * DTYPES[options.kept_values].itemsize
    rounds_up = () if options.kept_values == BFLOAT16 else ('kept_values = "bfloat16"',)
    helps = ("fewer clients", "a smaller participation", "a smaller model", *rounds_up)
    found = []
    moments = [name for name in kept_vectors(options) if name != "residual"]
    if moments:
        own = (*helps, 'momentum_state = "reset"')
        found.append(Need(f"the moments of {clients:,} clients", each * len(moments) * clients, own, HOST))
    if options.error_feedback:
        own = (*helps, "error_feedback = false")
        found.append(Need(f"the residuals of {clients:,} clients", each * clients, own, HOST))
    return found


def _snapshots(simulator: Simulator) -> list[Need]:
    """What the guard of a healthy run keeps at its end: rows of its last two snapshots that changed after them."""
    options = simulator.options
    last = (options.rounds - 1) // SNAPSHOT_ROUNDS * SNAPSHOT_ROUNDS
    replaced = _replaced(options, last, options.rounds) + _replaced(options, last - SNAPSHOT_ROUNDS, last)
    needed = 0 if options.guard is False else replaced * simulator.store.row_bytes
    return [Need(f"{replaced:,} earlier rows for the guard", needed, ("guard = false",), HOST)] if needed else []


def _held(simulator: Simulator) -> list[Need]:
    """The rows of a round as they were before it; where not all take part, the guard may have the same ones."""
    options = simulator.options
    everyone = participants_per_round(options) == options.clients and options.rounds > 1
    needed = options.clients * simulator.store.row_bytes if everyone else 0
    return [Need(f"{options.clients:,} rows as before a round", needed, ("a smaller model",), HOST)] if needed else []


def _replaced(options: TrainingOptions, kept: int, now: int) -> int:
    """How many clients are expected to have taken part by round ``kept``, and again by round ``now``."""
    if kept <= 0:
        return 0
    return round(expected_clients(options, kept) * expected_clients(options, now - kept) / options.clients)


def _server(simulator: Simulator, on_gpu: bool) -> Need:
    """Vectors of the server that are not there before the first round, and those of them in the guard's snapshots."""
    options = simulator.options
    guarded = options.guard is not False
    snapshots = min(2, (options.rounds - 1) // SNAPSHOT_ROUNDS) if guarded else 0
    lasting = 1 + options.compresses_downlink  # the weights and the residual, which the guard has from the start
    earlier = min(2, snapshots + 1) if guarded else 0
    last_change = 1  # which clients get in the next round
    vectors = last_change + _new_vectors(options) * (1 + snapshots) + lasting * earlier
    helps = ["a smaller model"]
    helps += ["averaging = 0"] if options.averaging > 0.0 else []
    helps += ["guard = false"] if guarded else []
    size = _FLOAT * vectors * simulator.parameters.size
    return Need("what the server keeps", size, tuple(helps), GPU if on_gpu else HOST)


def _phases(simulator: Simulator, evaluator: Evaluator | None, on_gpu: bool) -> list[Need]:
    """Return the largest need of what comes one after the other: clients, server, evaluation, the model at the end."""
    found = [_round(simulator, on_gpu), _server_step(simulator, on_gpu), _trained(simulator)]
    if evaluator is not None:
        helps = ("a smaller model", "smaller samples")
        what = f"an evaluation of {evaluator.batch:,} samples at a time"
        found.append(Need(what, evaluator.peak_bytes, helps, GPU if on_gpu else HOST))
    of_places = [[need for need in found if need.where == place] for place in (HOST, GPU)]
    return [max(needs, key=lambda need: need.bytes) for needs in of_places if needs]


def _server_step(simulator: Simulator, on_gpu: bool) -> Need:
    """What comes and goes while the server takes its step: the mean update, and new vectors beside the old ones."""
    options = simulator.options
    vectors = 3 + _new_vectors(options)  # mean, change and weights
    vectors += (options.outer in ("nesterov", "adam")) + (options.averaging > 0.0) + 2 * options.compresses_downlink
    size = _FLOAT * vectors * simulator.parameters.size
    return Need("a step of the server", size, ("a smaller model",), GPU if on_gpu else HOST)


def _new_vectors(options: TrainingOptions) -> int:
    """How many vectors the server keeps from the first round on: moments and the mean of recent models."""
    return len(OUTER_MOMENTS[options.outer]) + (options.averaging > 0.0)


def _trained(simulator: Simulator) -> Need:
    """The copy of the model that is handed out, with all that is not trained."""
    return Need("a copy of the model", simulator.parts.bytes, ("a smaller model",), HOST)


def _round(simulator: Simulator, on_gpu: bool) -> Need:
    """Clients that train at the same time, and the messages of those that are done, which grow while they shrink."""
    options, how, size = simulator.options, simulator.execution, simulator.parameters.size
    everyone = participants_per_round(options)
    running = min(everyone, how.chunk * (1 if on_gpu else simulator.workers.threads))
    sample = sum(array.numel() for array in leaves(first_of(simulator.federation.samples)[0]))
    activations = how.activations + sample * _largest_batch(simulator)
    training = _FLOAT * running * (_STEP_COPIES[InnerRule.of(options).kind] * size + activations)
    entries = size if COMPRESSORS[options.compressor].dense else float(np.mean(kept_entries(options, size)))
    message = 0 if on_gpu else _ENTRY * entries
    peak = max(training + message * (everyone - running), _FLOAT * running * size + message * everyone)
    helps = ["a smaller participation"]
    helps += ["smaller batches"] if activations > size else []
    helps += ["a higher sparsity"] if message * everyone > training else []
    return Need(f"a round of {everyone:,} clients", int(peak), tuple(helps), GPU if on_gpu else HOST)


def _batches(simulator: Simulator) -> Need:
    draws = simulator.options.local_steps * participants_per_round(simulator.options) * _largest_batch(simulator)
    return Need("the batches of two rounds", _DRAW * draws, ("smaller batches", "a smaller participation"), HOST)


def _largest_batch(simulator: Simulator) -> int:
    """Samples in the largest batch of the first round; later ones may be larger."""
    largest = int(simulator.sizes.max())
    return min(simulator.options.batch_size or largest, largest)


def _rows(options: TrainingOptions) -> Need:
    """Ledger and metrics; nothing where the number of rounds is only a limit."""
    aims = (options.target, options.energy_budget_joules, options.time_budget_seconds)
    rounds = options.rounds if all(aim is None for aim in aims) else 0
    each = LEDGER.dtype.itemsize * participants_per_round(options) + METRICS.dtype.itemsize
    return Need(f"the ledger of {rounds:,} rounds", rounds * each, ("fewer rounds", "a smaller participation"), HOST)
