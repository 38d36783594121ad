"""Plans under batteries: a one-dimensional branch and bound over the mean power, for one H.

A mean power s fixes K. K fixes the joules that each device may spend in a round, and so its least sparsity (its
box). Let F(s) be the least radio joules with mean power at most s within that box. The optimum is the least
K (F + fixed) over consistent s. For s in [a, b] and the multiplier mu of the optimum at a, weak duality gives

    F(s) >= sum_m p_m(K) - mu s,    p_m(K) = c h(x) + (mu / M) delta^q at the larger of the unbound optimum and the box,

where p_m never falls as K rises. For a device at its battery limit, c h = battery / K - (its other joules) is convex
in K, and so is delta. Bounding each by a line in K makes F + fixed >= L(K), a line, and K L(K) is least
at an end of the interval. docs/planner.md has the details.
"""

import heapq
import itertools
import math
from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.planner.constraints import Box, battery_box, least_consistent_power
from fewjoules.planner.frontier import Senders
from fewjoules.planner.objective import Objective
from fewjoules.planner.pooling import Pooling

TOLERANCE = 1e-9
_MAX_NODES = 2000
_MAX_ENTRIES = 20_000_000  # devices times nodes for one H; the search then stops and reports its gap


@dataclass(frozen=True, slots=True)
class BatteryOptimum:
    """The best plan within the batteries for one H, and a lower bound on the energy of all of them."""

    energy_joules: float
    lower_bound_joules: float
    sparsity: FloatArray
    nodes: int


@dataclass(frozen=True, slots=True)
class _Node:
    """A consistent mean power, the best plan there, and the numbers that bound the energy to its right."""

    mean_power: float
    rounds: float
    sparsity: FloatArray
    energy_joules: float
    line: float  # L at this node: joules of a round
    multiplier: float
    binding: "_Binding"
    least_joules: float  # joules of a round with every device at its largest sparsity


@dataclass(frozen=True, slots=True)
class _Binding:
    """Devices at their battery limit: how radio joules and sparsity change with K; each counts ``weight`` times."""

    radio_slope: float
    sparsity: FloatArray
    sparsity_slope: FloatArray
    weight: float

    def power_slope(self, exponent: float, width: float) -> float:
        """Return the slope of a line below sum(delta^q) over the next ``width`` rounds; delta is convex in K."""
        if exponent >= 1.0:
            slopes = exponent * self.sparsity ** (exponent - 1.0) * self.sparsity_slope
        else:
            ahead = self.sparsity + self.sparsity_slope * width
            slopes = (ahead**exponent - self.sparsity**exponent) / width
        return self.weight * float(np.sum(slopes))


@dataclass(frozen=True, slots=True)
class BatterySearch:
    """The search for one H; ``box`` holds the least sparsities under the deadline."""

    pooling: Pooling
    local_steps: int
    objective: Objective
    box: Box

    def minimise(self, incumbent: float) -> BatteryOptimum | float:
        """Return the best consistent plan and a lower bound; if there is no plan, a mean power that is too low for any.

        The search ends early once a plan of energy ``incumbent`` for another H is known to be better.
        """
        first, consistent = self._consistent(float(np.mean(self.box.lower**self._exponent)))
        if not consistent:
            return first
        node = best = self._node(first)
        nodes, order = 1, itertools.count()
        end = self.box.upper**self._exponent
        heap = [(self._floor(node, end), next(order), node, end)]
        allowed = min(_MAX_NODES, max(16, _MAX_ENTRIES // self.objective.devices))
        while heap and nodes < allowed:
            floor, _, node, end = heap[0]
            middle = math.sqrt(node.mean_power * end)
            enough = floor >= min(best.energy_joules, incumbent) * (1.0 - TOLERANCE)
            if enough or not node.mean_power < middle < end:
                break
            heapq.heapreplace(heap, (max(floor, self._floor(node, middle)), next(order), node, middle))
            power, consistent = self._consistent(middle)
            if consistent and power < end:
                node = self._node(power)
                nodes += 1
                best = min(best, node, key=lambda n: n.energy_joules)
                heapq.heappush(heap, (max(floor, self._floor(node, end)), next(order), node, end))
        bound = min(best.energy_joules, heap[0][0] if heap else math.inf)
        return BatteryOptimum(best.energy_joules, bound, best.sparsity, nodes)

    @property
    def _exponent(self) -> float:
        return self.pooling.problem.rounds.exponent

    def _battery_box(self, mean_power: float) -> Box:
        return self.pooling.pool(battery_box(self.pooling.problem, self.local_steps, mean_power, self.box))

    def _consistent(self, start: float) -> tuple[float, bool]:
        return least_consistent_power(self._battery_box, lambda box: float(np.mean(box.lower**self._exponent)), start)

    def _rounds(self, mean_power: float) -> float:
        return float(self.objective.rounds(np.array([mean_power]))[0, 0])

    def _node(self, mean_power: float) -> _Node:
        box = self._battery_box(mean_power)
        frontier = self.pooling.frontier(box)
        low, high = frontier.log_multiplier_range
        cheapest = frontier.points(low)
        if cheapest.mean_power[0] <= mean_power:
            log, multiplier = low, 0.0
        else:
            log = _slope_within(frontier, mean_power, low, high)
            multiplier = math.exp(log)
        point, sparsity = frontier.points(log), frontier.sparsity(log)
        fixed = float(self.objective.fixed_joules[0])
        rounds = self._rounds(mean_power)
        radio, touch = float(point.radio_joules[0]), float(point.mean_power[0])
        return _Node(
            mean_power=mean_power,
            rounds=rounds,
            sparsity=sparsity,
            energy_joules=self._rounds(touch) * (radio + fixed),
            line=radio - multiplier * (mean_power - touch) + fixed,
            multiplier=multiplier,
            binding=self._binding(mean_power, box, sparsity, rounds),
            least_joules=float(cheapest.radio_joules[0]) + fixed,
        )

    def _binding(self, mean_power: float, box: Box, sparsity: FloatArray, rounds: float) -> _Binding:
        """Return the devices at their battery limit; if all share a sparsity, only the one that sets it."""
        problem, fleet = self.pooling.problem, self.pooling.problem.fleet
        assert fleet.battery_joules is not None
        cost = problem.round_costs.scaled_joules_per_bit() * float(problem.parameters)
        held = np.flatnonzero((sparsity <= box.lower) & (box.lower > self.box.lower) & (cost > 0.0))
        weight, total_cost = 1.0, cost[held]
        if self.pooling.shared and held.size:
            own = battery_box(problem, self.local_steps, mean_power, self.box).lower
            held = np.atleast_1d(np.argmax(own))
            weight, total_cost = float(problem.devices), np.atleast_1d(cost.sum())
        per_round = fleet.battery_joules[held] / rounds
        kappa = np.broadcast_to(problem.round_costs.entry_bits(), cost.shape)[held]
        y = np.log(sparsity[held]) - 1.0 + kappa * math.log(2.0)
        # c h = battery / K - rest, and dh/dx = -y / (delta ln 2): see frontier.py
        log_slope = per_round / rounds * math.log(2.0) * sparsity[held] / (cost[held] * y)
        radio_slope = -float(np.sum(total_cost / cost[held] * per_round / rounds))
        return _Binding(radio_slope, sparsity[held], sparsity[held] * log_slope, weight)

    def _floor(self, node: _Node, end: float) -> float:
        """Return a lower bound of the energy over mean powers in [node.mean_power, end]."""
        last = self._rounds(end)
        width = last - node.rounds
        here = node.rounds * node.line
        if width <= 0.0:
            return here
        power_slope = node.binding.power_slope(self._exponent, width) * node.multiplier / self.objective.devices
        slope = node.binding.radio_slope + power_slope - node.multiplier * (end - node.mean_power) / width
        # p_m never falls, whatever the sum of the two lines says
        slope = max(slope, -node.multiplier * (end - node.mean_power) / width)
        line = node.line + slope * width
        if line < node.least_joules:
            width = (node.line - node.least_joules) / -slope if slope < 0.0 else 0.0
            line = node.least_joules
        return min(here, (node.rounds + width) * line)


def _slope_within(frontier: Senders, mean_power: float, low: float, high: float) -> float:
    """Return ln(mu) of the point with the largest mean power that is at most the given one."""
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
