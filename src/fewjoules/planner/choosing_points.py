"""Operating points under a deadline: each device chooses a setting of its processor beside its sparsity, for one H.

A faster point leaves more of the deadline to the message, so the device may send more. For a multiplier mu a device
minimises, over its points p and the sparsities that the deadline allows at p,

    fixed_p + c h(x) + (mu / M) exp(q x),    fixed_p = H joules_p + tail_p.

The sums over all devices are tangents of the set of all choices, so the bounds of pareto.py hold. That set is not
convex where a device changes its point: there a gap stays, of at most one device at each multiplier. With few devices
every combination of points is solved on its own, and the gap closes.
"""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.physics.tail import cheapest_points, planned_tail_joules
from fewjoules.planner.constraints import least_sparsity_in_time
from fewjoules.planner.frontier import Frontier, Points
from fewjoules.planner.problem import ControlProblem

MOST_COMBINATIONS = 256


def optimistic(problem: ControlProblem) -> ControlProblem:
    """Return the problem with the least joules and the least seconds of all points of each device, for lower bounds."""
    points = problem.fleet.operating_points
    if points is None:
        return problem
    there = np.isfinite(points.joules_per_step)
    fleet = problem.fleet.changed(
        joules_per_step=points.joules_per_step.min(axis=0),
        seconds_per_step=np.where(there, points.seconds_per_step, np.inf).min(axis=0),
        operating_points=None,
    )
    return replace(problem, fleet=fleet)


def cheapest_points_of(problem: ControlProblem, local_steps: int) -> IntArray | None:
    """Return the point of each device that costs least in a round of H local steps; None if there are no points."""
    fleet = problem.fleet
    if fleet.operating_points is None:
        return None
    return cheapest_points(fleet, fleet.operating_points, local_steps, problem.server is not None)


def at_points(problem: ControlProblem, chosen: IntArray) -> ControlProblem:
    """Return the problem with every device at its chosen point."""
    points = problem.fleet.operating_points
    assert points is not None
    return replace(problem, fleet=problem.fleet.changed(**points.at(chosen), operating_points=None))


@dataclass(frozen=True, slots=True)
class PointChoices:
    """Joules of steps and tails, and the least sparsity in time, of each point of each device: (points, devices)."""

    fixed_joules: FloatArray
    lower: FloatArray

    @classmethod
    def of(cls, problem: ControlProblem, local_steps: int) -> "PointChoices":
        """Evaluate every point for this H; points that are not there or too slow have infinite joules."""
        points = problem.fleet.operating_points
        assert points is not None
        fixed, lower = [], []
        for joules, seconds in zip(points.joules_per_step, points.seconds_per_step, strict=True):
            tails = planned_tail_joules(problem.fleet, seconds, local_steps, problem.server is not None)
            least = least_sparsity_in_time(problem, local_steps, seconds)
            fixed.append(np.where(np.isfinite(least), local_steps * joules + tails, np.inf))
            lower.append(np.where(np.isfinite(joules), least, np.inf))
        return cls(np.array(fixed), np.array(lower))

    @property
    def feasible(self) -> bool:
        """Whether every device has a point that is fast enough."""
        return bool(np.isfinite(self.fixed_joules).any(axis=0).all())

    @property
    def coupled(self) -> bool:
        """Whether a cheaper point costs a device freedom in its sparsity, so that the choice is not plain."""
        cheapest = np.argmin(self.fixed_joules, axis=0)
        columns = np.arange(self.lower.shape[1])
        return bool(np.any(self.lower[cheapest, columns] > self.lower.min(axis=0)))

    def cheapest(self) -> IntArray:
        """Return the point of each device with the least joules; of equals, the one with more freedom."""
        least = self.fixed_joules.min(axis=0)
        return np.argmin(np.where(self.fixed_joules == least, self.lower, np.inf), axis=0)

    def freest(self) -> IntArray:
        """Return the point of each device that allows the least sparsity; of equals, the cheapest."""
        least = self.lower.min(axis=0)
        return np.argmin(np.where(self.lower == least, self.fixed_joules, np.inf), axis=0)

    def combinations(self) -> list[IntArray] | None:
        """Return all choices of points, or None if there are too many."""
        options = [np.flatnonzero(np.isfinite(column)).tolist() for column in self.fixed_joules.T]
        if math.prod(map(len, options)) > MOST_COMBINATIONS:
            return None
        return [np.array(one) for one in itertools.product(*options)]


class PointsFrontier:
    """The frontier over points and sparsities for one H; ``radio_joules`` of its points include the chosen points'."""

    def __init__(self, problem: ControlProblem, choices: PointChoices) -> None:
        """Make one frontier for each point, with the least sparsities that the deadline leaves there."""
        low, high = problem.sparsity
        self._problem, self._choices, self._exponent = problem, choices, problem.rounds.exponent
        self._frontiers = [
            Frontier(
                problem.round_costs.scaled_joules_per_bit(),
                parameters=problem.parameters,
                entry_bits=problem.round_costs.entry_bits(),
                exponent=problem.rounds.exponent,
                lower=np.clip(lower, low, high),
                upper=high,
            )
            for lower in choices.lower
        ]

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self._problem.devices

    @property
    def log_multiplier_range(self) -> tuple[float, float]:
        """Return multipliers beyond which no device changes its point or its sparsity."""
        ranges = [frontier.log_multiplier_range for frontier in self._frontiers]
        low, high = min(one for one, _ in ranges), max(one for _, one in ranges)
        return low, max(high, self._last_change())

    def _last_change(self) -> float:
        """Return ln(mu) above which every device is at the point that allows the least sparsity.

        It is there once mu / M times the difference of the powers outweighs the difference of the joules.
        """
        fixed, lower = self._choices.fixed_joules, self._choices.lower
        joules = fixed + self._problem.round_costs.sending_joules(np.clip(lower, *self._problem.sparsity))
        freest = self._choices.freest()
        columns = np.arange(self.devices)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            rise = np.where(np.isfinite(lower), lower, 1.0) ** self._exponent - lower[freest, columns] ** self._exponent
            needed = (joules[freest, columns] - joules) / rise
        needed = needed[np.isfinite(needed) & (rise > 0.0) & (needed > 0.0)]
        return math.log(float(needed.max()) * self.devices) + 1e-6 if needed.size else -math.inf

    def points(self, log_multipliers: ArrayLike) -> Points:
        """Return the points where tangents of these slopes touch the set of all choices."""
        logs = np.atleast_1d(np.asarray(log_multipliers, dtype=np.float64))
        power, radio = np.array([self._sums(float(log)) for log in logs]).T
        return Points(logs, power / self.devices, radio)

    def sparsity(self, log_multiplier: float) -> FloatArray:
        """Return the sparsity of each device there."""
        return self._choice(log_multiplier)[1]

    def chosen(self, log_multiplier: float) -> IntArray:
        """Return the point of each device there."""
        return self._choice(log_multiplier)[0]

    def _choice(self, log_multiplier: float) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the point and sparsity of each device that minimise its part of the tangent, and its joules."""
        weight = math.exp(log_multiplier) / self.devices
        best = np.full(self.devices, np.inf)
        chosen = np.zeros(self.devices, dtype=np.int64)
        sparsity, joules = np.ones(self.devices), np.zeros(self.devices)
        for number, frontier in enumerate(self._frontiers):
            delta = frontier.sparsity(log_multiplier)
            spent = self._choices.fixed_joules[number] + self._problem.round_costs.sending_joules(delta)
            value = spent + weight * delta**self._exponent
            better = value < best
            best, chosen = np.where(better, value, best), np.where(better, number, chosen)
            sparsity, joules = np.where(better, delta, sparsity), np.where(better, spent, joules)
        return chosen, sparsity, joules

    def _sums(self, log_multiplier: float) -> tuple[float, float]:
        _, sparsity, joules = self._choice(log_multiplier)
        return float(np.sum(sparsity**self._exponent)), float(np.sum(joules))
