"""What the messages of a training took, as observations for ``fit_message_size``."""

from collections.abc import Sequence

import numpy as np

from fewjoules.engine.algorithm.client import dense_bytes
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.downlink import Downlink
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.state import ServerState
from fewjoules.physics.message_fit import MessageObservation, least_observed_sparsity
from fewjoules.runs.training import Training


def observed_messages(training: Training) -> list[MessageObservation]:
    """Return the mean bits of the messages at each sparsity of the options, without the model's running statistics.

    Those of the last round are taken for all, as their messages hardly differ in length. Sparsities below
    ``least_observed_sparsity``, for which there is no law, are left out.
    """
    options, state = training.simulator.options, training.simulator.state
    rows = training.loop.ledger.rows()
    rows = rows[rows["entries"] > 0]
    chosen = np.asarray(options.sparsity)[rows["device"]]
    statistics_bytes = dense_bytes(state.buffers.cpu().numpy())
    kind = COMPRESSORS[options.compressor].kind or options.values
    observations = []
    for sparsity in np.unique(chosen):
        same = rows[chosen == sparsity]
        sent = state.weights.numel() / float(same["entries"].mean())
        if sent >= least_observed_sparsity(kind):
            bits = 8.0 * (float(same["payload_bytes"].mean()) - statistics_bytes)
            observations.append(MessageObservation(kind, sent, bits, float(same.size)))
    return observations


def observed_broadcast(state: ServerState, options: TrainingOptions) -> MessageObservation | None:
    """Return the bits of the server's last change, without the model's running statistics; None if no law covers it."""
    if not state.broadcast.numel():
        return None
    message = Downlink(state, options).last_change()
    sent = state.weights.numel() / max(message.update.count, 1)
    if not message.update.count or sent < least_observed_sparsity(message.values):
        return None
    return MessageObservation(message.values, sent, 8.0 * message.size_bytes)


def mean_broadcast(observed: Sequence[MessageObservation]) -> tuple[MessageObservation, ...]:
    """Return what messages of one kind took on average, as one observation; none if there were none."""
    if not observed:
        return ()
    entries = float(np.mean([1.0 / one.sparsity for one in observed]))
    bits = float(np.mean([one.bits for one in observed]))
    return (MessageObservation(observed[0].values, 1.0 / entries, bits, float(len(observed))),)
