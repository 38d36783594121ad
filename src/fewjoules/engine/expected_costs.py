"""What a device is expected to spend in a round, before any is trained: the ledger's sums for usual messages."""

from dataclasses import replace

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.engine.accounts import Accounts
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.participation import Cohort
from fewjoules.engine.algorithm.round import RoundPlan, Uploads, kept_entries, plan_round
from fewjoules.errors import InvalidInputError
from fewjoules.physics.message_fit import usual_bits
from fewjoules.provenance import KINDS

_CHUNK = 1 << 16  # devices whose rows are in memory at a time


def expected_joules(accounts: Accounts, sizes: IntArray, buffer_bytes: int) -> FloatArray:
    """Return the joules of each device in the first round, on its average channel, shape (clients,).

    ``sizes`` holds the samples of each client; every message carries ``buffer_bytes`` of buffers.
    """
    fleet, options, parameters = accounts.fleet, accounts.options, accounts.parameters
    if fleet is None:
        raise InvalidInputError(f"sampling = {options.sampling!r} needs a fleet")
    average = Accounts(fleet, replace(options, channel="average"), parameters)
    kept, never = kept_entries(options, parameters), np.zeros(options.clients, dtype=np.int64)
    everyone = Cohort(np.arange(options.clients), np.ones(options.clients))
    plan = plan_round(options, kept, sizes, never, 1, cohort=everyone)
    return np.concatenate([_joules(average, plan.of(part), buffer_bytes) for part in plan.parts(_CHUNK)])


def _joules(accounts: Accounts, plan: RoundPlan, buffer_bytes: int) -> FloatArray:
    options, clients, parameters = accounts.options, plan.participants.size, accounts.parameters
    kind = COMPRESSORS[options.compressor].kind or options.values
    entries = np.full(clients, parameters) if COMPRESSORS[options.compressor].dense else plan.kept
    sent = _message_bytes(parameters, kind, entries) + buffer_bytes
    flags, unknown = np.ones(clients, dtype=bool), np.zeros(plan.batch_sizes.shape)
    uploads = Uploads(entries, sent, ~flags, unknown, unknown)
    received, received_entries = np.zeros(clients, dtype=np.int64), None
    if accounts.charges_downlink:
        received_entries = np.full(clients, max(1, round(parameters / options.downlink_sparsity)))
        received = _message_bytes(parameters, options.downlink_values, received_entries) + buffer_bytes
    rows = accounts.rows(plan, flags, uploads, received, received_entries)
    return np.asarray(sum(rows[f"{kind}_joules"] for kind in KINDS), dtype=np.float64)


def _message_bytes(parameters: int, kind: str, entries: IntArray) -> IntArray:
    """Return the usual bytes of messages with so many entries."""
    different, where = np.unique(entries, return_inverse=True)
    bits = [max(0.0, usual_bits(parameters, kind, parameters / count)) for count in different.tolist()]
    return np.ceil(np.array(bits) / 8.0).astype(np.int64)[where]
