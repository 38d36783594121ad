"""What the messages of a training took, as observations for ``fit_message_size``."""

import numpy as np

from fewjoules.engine.algorithm.client import dense_bytes
from fewjoules.engine.algorithm.compressors import COMPRESSORS
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
