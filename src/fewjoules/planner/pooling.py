"""Whether each device has its own sparsity, or all share one."""

from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.planner.constraints import Box
from fewjoules.planner.downlink import DownlinkFrontier
from fewjoules.planner.frontier import Frontier, Senders
from fewjoules.planner.problem import ControlProblem


@dataclass(frozen=True, slots=True)
class Pooling:
    """A problem whose devices may share one sparsity, which then has the mean cost and the tightest box."""

    problem: ControlProblem
    shared: bool = False

    def frontier(self, box: Box | None = None) -> Senders:
        """Return the frontier within the limits, or within a box, with the server's where its sparsity is chosen."""
        return with_server(self.problem, self._clients(box))

    def _clients(self, box: Box | None) -> Frontier:
        problem, round_costs = self.problem, self.problem.round_costs
        costs, beside = round_costs.scaled_joules_per_bit(), round_costs.codec_entry_bits()
        lower: FloatArray | float = problem.sparsity[0] if box is None else box.lower
        if self.shared:
            mean = costs.mean()
            beside = float(np.mean(costs * beside) / mean) if mean > 0.0 else 0.0
            costs, lower = np.full_like(costs, mean), float(np.max(lower))
        return Frontier(
            costs,
            parameters=problem.parameters,
            entry_bits=problem.message_size.entry_bits + beside,
            exponent=problem.rounds.exponent,
            lower=lower,
            upper=problem.sparsity[1],
        )

    def pool(self, box: Box) -> Box:
        """Return the box, with the tightest bound for every device if they share one sparsity."""
        return Box(np.full_like(box.lower, box.lower.max()), box.upper) if self.shared else box


def with_server(problem: ControlProblem, clients: Senders) -> Senders:
    """Return the frontier of the clients with the server's added, where its sparsity is chosen."""
    server, costs = problem.server, problem.fleet.downlink_joules_per_bit
    if server is None or costs is None or not server.chosen:
        return clients
    return DownlinkFrontier(
        clients,
        server,
        joules_per_bit=float(np.sum(costs)),
        joules_per_entry=problem.round_costs.joules_per_received_entry(),
        parameters=problem.parameters,
        exponent=problem.rounds.exponent,
    )
