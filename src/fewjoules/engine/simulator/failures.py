"""Uploads that a simulated network loses."""

import numpy as np

from fewjoules.arrays import Flags
from fewjoules.engine.algorithm.round import RoundPlan
from fewjoules.engine.algorithm.streams import stream


def delivered_uploads(plan: RoundPlan) -> Flags:
    """Return whether the upload of each participant arrives in this round."""
    options = plan.options
    lost = np.zeros(options.clients, dtype=bool)
    if options.failure_probability > 0.0:
        drawn = stream(options.seed, "failures", plan.number).random(options.clients)
        lost = drawn < options.failure_probability
    lost[sorted(options.failures.get(plan.number, ()))] = True
    return ~lost[plan.participants]
