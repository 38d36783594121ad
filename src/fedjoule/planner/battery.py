"""Plans under batteries: a one-dimensional branch and bound over the mean power, for one H.

Let F(s) be the least radio joules with mean power at most s when every device stays within its battery over
K(s, H) rounds. The optimum is the least K(s, H) (F(s) + fixed) over consistent s. On [a, b] the batteries allow
no less sparsity than at a, so the tangent at a of the frontier with a's box bounds F there, and its product
with the concave K is least at an end of [a, b].
"""

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedjoule.arrays import FloatArray
from fedjoule.planner.constraints import Box, least_consistent_power
from fedjoule.planner.frontier import Frontier
from fedjoule.planner.objective import Objective

TOLERANCE = 1e-6
_MAX_NODES = 4000
_MAX_ENTRIES = 20_000_000  # devices times nodes for one H: beyond it the gap is reported as it stands


@dataclass(frozen=True, slots=True)
class BatterySearch:
    """The problem for one H: how the box rises with the supposed mean power, and frontiers for boxes."""

    objective: Objective
    exponent: float
    raise_box: Callable[[float], Box]
    frontier: Callable[[Box], Frontier]

    def minimise(self, start: float, incumbent: float) -> "BatteryOptimum | None":
        """The best consistent plan and a lower bound; None if no plan keeps within the batteries.

        ``start`` is a lower bound of the mean power; ``incumbent`` the energy of a plan for another H.
        """
        first = self._consistent(start)
        if first is None:
            return None
        node = self._node(first)
        best, nodes, order = node, 1, itertools.count()
        end = self.raise_box(first).upper ** self.exponent
        heap = [(self._floor(node, end), next(order), node, end)]
        allowed = min(_MAX_NODES, max(16, _MAX_ENTRIES // self.objective.devices))
        while heap and nodes < allowed:
            floor, _, node, end = heap[0]
            if floor >= min(best.energy_joules, incumbent) * (1.0 - TOLERANCE):
                break
            heapq.heappop(heap)
            middle = math.sqrt(node.mean_power * end)
            if not node.mean_power < middle < end:
                heapq.heappush(heap, (floor, next(order), node, end))
                break
            heapq.heappush(heap, (self._floor(node, middle), next(order), node, middle))
            consistent = self._consistent(middle)
            if consistent is not None and consistent < end:
                other = self._node(consistent)
                nodes += 1
                best = min(best, other, key=lambda n: n.energy_joules)
                heapq.heappush(heap, (self._floor(other, end), next(order), other, end))
        bound = min(best.energy_joules, heap[0][0] if heap else math.inf)
        return BatteryOptimum(best.energy_joules, bound, best.sparsity, nodes)

    def _consistent(self, start: float) -> float | None:
        return least_consistent_power(self.raise_box, self._power, start)

    def _power(self, box: Box) -> float:
        return float(np.mean(box.lower**self.exponent))

    def _node(self, mean_power: float) -> "_Node":
        frontier = self.frontier(self.raise_box(mean_power))
        low, high = frontier.log_multiplier_range
        cheapest = frontier.points(low)
        if cheapest.mean_power[0] <= mean_power:
            log, multiplier = low, 0.0  # all at their largest sparsity: nothing below this is to be had
        else:
            log = _slope_within(frontier, mean_power, low, high)
            multiplier = math.exp(log)
        point = frontier.points(log)
        s, radio = float(point.mean_power[0]), float(point.radio_joules[0])
        energy = float(self.objective.energy(point.mean_power, point.radio_joules)[0, 0])
        least = float(cheapest.radio_joules[0])
        return _Node(mean_power, frontier.sparsity(log), energy, s, radio, multiplier, least)

    def _floor(self, node: "_Node", end: float) -> float:
        """Lower bound of K(s) (F(s) + fixed) over s in [node.mean_power, end]."""
        if node.multiplier > 0.0:
            flat = node.touch + (node.radio_joules - node.least_radio_joules) / node.multiplier
            end = max(node.mean_power, min(end, flat))
        ends = np.array([node.mean_power, end])
        line = np.maximum(node.radio_joules - node.multiplier * (ends - node.touch), node.least_radio_joules)
        return float(self.objective.energy(ends, line).min())


@dataclass(frozen=True, slots=True)
class BatteryOptimum:
    """A plan within the batteries for one H; nothing within them costs less than the bound."""

    energy_joules: float
    lower_bound_joules: float
    sparsity: FloatArray
    nodes: int


@dataclass(frozen=True, slots=True)
class _Node:
    """A supposed mean power, the best sparsities consistent with it, and the tangent of its frontier."""

    mean_power: float
    sparsity: FloatArray
    energy_joules: float
    touch: float
    radio_joules: float
    multiplier: float
    least_radio_joules: float


def _slope_within(frontier: Frontier, mean_power: float, low: float, high: float) -> float:
    """ln(mu) of the point with the largest mean power that is at most the given one."""
    from scipy.optimize import brentq

    def excess(log: float) -> float:
        return math.log(float(frontier.points(log).mean_power[0]) / mean_power)

    if excess(high) >= 0.0:
        return high
    log = float(brentq(excess, low, high, xtol=1e-13))
    nudge = 1e-14
    while excess(log) > 0.0 and log < high:
        log, nudge = min(high, log + nudge), 4.0 * nudge
    return log
