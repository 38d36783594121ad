"""The first message to each device: the whole model, which no plan includes.

A plan charges what a device receives that has the model of an earlier round. One that has none receives all d weights
as float32 instead, once, which take the bits that the codec usually needs for them. With n of N devices in each round,
p = n/N, a device takes part in K rounds at least once with probability 1 - (1 - p)^K; the costs of such a problem are p
times those of a round in which the device takes part (partial.py).
"""

import numpy as np

from fewjoules.physics.message_fit import usual_bits
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem


def first_message_joules(problem: ControlProblem, plan: Plan) -> float:
    """Return by how many joules the first messages to all devices exceed those that a plan of the problem charges.

    0 where the downlink is not charged.
    """
    server, fleet, parameters = problem.server, problem.fleet, problem.parameters
    if server is None or fleet.downlink_joules_per_bit is None:
        return 0.0
    chosen = server.sparsity[0] if plan.downlink_sparsity is None else plan.downlink_sparsity
    received = server.received_sparsity(chosen)
    more_bits = usual_bits(parameters, "float32", 1.0) - float(server.message_size.bits(parameters, received))
    joules = float(np.sum(fleet.downlink_joules_per_bit)) * max(more_bits, 0.0)
    if fleet.codec_joules_per_entry is not None:
        joules += float(np.sum(fleet.codec_joules_per_entry)) * (parameters - parameters / received)
    part = server.participation
    return joules * (1.0 - (1.0 - part) ** max(plan.rounds, 1.0)) / part
