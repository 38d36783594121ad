"""Memory that a training takes at its peak, beyond what is in use before its first round: estimated from shapes alone.

Only what is certain is counted, so that a training that fits is not refused; docs/training.md says how near it comes.
"""

import math
from dataclasses import dataclass

import numpy as np

from fewjoules.engine.algorithm.client import kept_vectors
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import kept_entries, participants_per_round
from fewjoules.engine.algorithm.rule import InnerRule
from fewjoules.engine.guard import SNAPSHOT_ROUNDS
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.ledger.schema import LEDGER, METRICS

_FLOAT, _ENTRY = 4, 12  # bytes; an entry of a message is a position and a value
_DRAW = 40  # bytes: number and weight of a sample of this round, and of the next while they are drawn
_STEP_COPIES = {
    "sgd": 2,
    "momentum": 3,
    "adamw": 8,
}  # of a client's weights while it takes a step, the weights included


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that something takes, on the GPU or on the host, and what would make it smaller."""

    what: str
    bytes: int
    helps: tuple[str, ...]
    on_gpu: bool


def needs_of(simulator: Simulator, *, rows_in_memory: bool) -> list[Need]:
    """Return what the training will need, the largest first; ``rows_in_memory``: its tables stay in memory."""
    on_gpu = simulator.federation.samples.inputs.is_cuda
    found = [*_states(simulator, on_gpu), *_snapshots(simulator), _round(simulator, on_gpu), _batches(simulator)]
    found += [_rows(simulator.options)] if rows_in_memory else []
    return sorted(found, key=lambda need: -need.bytes)


def expected_clients(options: TrainingOptions) -> int:
    """How many different clients are expected to take part in at least one of the rounds."""
    clients, each = options.clients, participants_per_round(options)
    return round(clients * -math.expm1(options.rounds * math.log1p(-each / clients))) if each < clients else clients


def _states(simulator: Simulator, on_gpu: bool) -> list[Need]:
    """What clients keep from round to round; on the processor, what a round replaces exists twice at its end."""
    options, size = simulator.options, simulator.parameters.size
    clients, again = expected_clients(options), participants_per_round(options) if options.rounds > 1 else 0
    found = []
    moments = [name for name in kept_vectors(options) if name != "residual"]
    if moments:
        vectors = len(moments) * (clients + (0 if on_gpu else again))
        helps = ("fewer clients", "a smaller model", 'momentum_state = "reset"')
        found.append(Need(f"the moments of {clients:,} clients", _FLOAT * size * vectors, helps, on_gpu))
    if options.error_feedback:
        replaced = not on_gpu and (options.compressor != "top-k" or options.values != "float32")
        vectors = clients + (again if replaced else 0)
        helps = ("fewer clients", "a smaller model", "error_feedback = false")
        found.append(Need(f"the residuals of {clients:,} clients", _FLOAT * size * vectors, helps, on_gpu))
    return found


def _snapshots(simulator: Simulator) -> list[Need]:
    """What the guard keeps on the host, once the run is long enough for it: all that clients keep, twice."""
    options = simulator.options
    clients, vectors = expected_clients(options), len(kept_vectors(options))
    kept = 0 if options.guard is False else min(2, options.rounds // SNAPSHOT_ROUNDS)
    needed = kept * _FLOAT * simulator.parameters.size * vectors * clients
    return [Need(f"what the guard keeps of {clients:,} clients", needed, ("guard = false",), False)] if needed else []


def _round(simulator: Simulator, on_gpu: bool) -> Need:
    """Clients that train at the same time, and the messages of those that are done, which grow while they shrink."""
    options, how, size = simulator.options, simulator.execution, simulator.parameters.size
    everyone = participants_per_round(options)
    running = min(everyone, how.chunk * (1 if on_gpu else simulator.workers.threads))
    sample = math.prod(simulator.federation.samples.inputs.shape[1:])
    activations = how.activations + sample * _largest_batch(simulator)
    training = _FLOAT * running * (_STEP_COPIES[InnerRule.of(options).kind] * size + activations)
    entries = size if COMPRESSORS[options.compressor].dense else float(np.mean(kept_entries(options, size)))
    message = 0 if on_gpu else _ENTRY * entries
    peak = max(training + message * (everyone - running), _FLOAT * running * size + message * everyone)
    helps = ["a smaller participation"]
    helps += ["smaller batches"] if activations > size else []
    helps += ["a higher sparsity"] if message * everyone > training else []
    return Need(f"a round of {everyone:,} clients", int(peak), tuple(helps), on_gpu)


def _batches(simulator: Simulator) -> Need:
    draws = simulator.options.local_steps * participants_per_round(simulator.options) * _largest_batch(simulator)
    return Need("the batches of two rounds", _DRAW * draws, ("smaller batches", "a smaller participation"), False)


def _largest_batch(simulator: Simulator) -> int:
    """Samples in the largest batch of the first round; later ones may be larger."""
    largest = int(simulator.sizes.max())
    return min(simulator.options.batch_size or largest, largest)


def _rows(options: TrainingOptions) -> Need:
    """Ledger and metrics; nothing where the number of rounds is only a limit."""
    aims = (options.target, options.energy_budget_joules, options.time_budget_seconds)
    rounds = options.rounds if all(aim is None for aim in aims) else 0
    each = LEDGER.dtype.itemsize * participants_per_round(options) + METRICS.dtype.itemsize
    return Need(f"the ledger of {rounds:,} rounds", rounds * each, ("fewer rounds", "a smaller participation"), False)
