"""The paper's Algorithm 2: generalised Benders decomposition with inner convex approximation, as published.

It proves nothing: its cuts keep the sparsities of earlier iterations, so the master's value bounds the optimum from
above, not from below. ``REPAIRS`` names the errors that can be repaired one by one to show their effect; by default
none is. Use the solver of pareto.py to plan.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError, require_integer
from fewjoules.planner.choosing_points import at_points
from fewjoules.planner.frontier import Senders
from fewjoules.planner.objective import Objective
from fewjoules.planner.pareto import lower_bounds
from fewjoules.planner.pooling import Pooling
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.solve import Answer

OUTER_TOLERANCE = 1e-5  # epsilon, iota and xi of Algorithm 2
INNER_TOLERANCE = 1e-5
STEP_DECAY = 1e-5
MAX_INNER = 10_000

REPAIRS = {
    "step-size": "line 6 takes the current step size, not the first one",
    "valid-cuts": "the master's cuts are lower bounds: tangents for new H, the primal's value for visited ones",
    "least-upper-bound": "UBD is the least primal value so far, not the last one",
    "relative-tolerance": "the outer loop stops at a relative gap of 1e-5, whatever the units",
    "matching-answer": "the answer is the best (H, sparsity) pair visited, not the next H with the last sparsity",
}


def solve(
    problem: ControlProblem,
    *,
    shared: bool = False,
    start: int | None = None,
    step_size: float = 1.0,
    max_outer: int = 100,
    repairs: Collection[str] = (),
) -> Answer:
    """Run Algorithm 2 of [LI21] from H = ``start`` (the smallest by default), with the named ``repairs``."""
    for name in repairs:
        if name not in REPAIRS:
            raise InvalidInputError(f"repairs must be among {', '.join(REPAIRS)}, got {name!r}")
    if problem.constrained:
        raise InvalidInputError(
            "solver benders knows no round_seconds and no battery_joules (both must be absent), "
            "got a constrained problem; use solver pareto"
        )
    if not 0.0 < step_size <= 1.0:
        raise InvalidInputError(f"step_size must be above 0 and at most 1, got {step_size!r}")
    require_integer("max_outer", max_outer, low=1, high=1_000_000)
    problem = _at_cheapest_points(problem)
    choices = problem.step_choices.tolist()
    if start is not None and start not in choices:
        raise InvalidInputError(f"start must be one of local_steps {choices}, got {start!r}")
    known = problem if problem.server is None else replace(problem, downlink="free")
    state = _Algorithm2(known, Pooling(known, shared).frontier(), step_size, frozenset(repairs))
    answer = state.run(choices.index(start) if start is not None else 0, max_outer)
    return replace(answer, downlink_sparsity=_best_downlink(problem, answer))


def _at_cheapest_points(problem: ControlProblem) -> ControlProblem:
    points = problem.fleet.operating_points
    return problem if points is None else at_points(problem, points.cheapest())


def _best_downlink(problem: ControlProblem, answer: Answer) -> float | None:
    """Return the best sparsity of the server for the algorithm's choices: it knows no downlink itself."""
    from scipy.optimize import minimize_scalar

    if problem.server is None:
        return None
    low, high = problem.server.sparsity
    if low == high:
        return low

    def energy(log: float) -> float:
        return problem.costs(answer.local_steps, answer.sparsity, math.exp(log)).energy_joules

    best = minimize_scalar(energy, bounds=(math.log(low), math.log(high)), method="bounded")
    return float(np.clip(math.exp(best.x), low, high))


@dataclass(frozen=True, slots=True)
class _Visit:
    """A solved primal problem (28): its H, sparsities, and the two sums that make a cut."""

    choice: int
    sparsity: FloatArray
    mean_power: float
    radio_joules: float
    log_multiplier: float
    energy_joules: float
    inner_iterations: int


@dataclass(frozen=True, slots=True)
class _Algorithm2:
    problem: ControlProblem
    frontier: Senders
    step_size: float
    repairs: frozenset[str]

    def run(self, choice: int, max_outer: int) -> Answer:
        """Run the outer loop, lines 1 to 21."""
        objective = Objective.of(self.problem)
        visits: list[_Visit] = []
        for _ in range(max_outer):
            visits.append(self._primal(objective, choice))
            energies = [visit.energy_joules for visit in visits]
            upper = min(energies) if "least-upper-bound" in self.repairs else energies[-1]
            eta = self._master(objective, visits)
            choice = int(np.argmin(eta))
            scale = upper if "relative-tolerance" in self.repairs else 1.0
            if upper - eta[choice] <= OUTER_TOLERANCE * scale:
                break
        answer = visits[-1]
        if "matching-answer" in self.repairs:
            answer = min(visits, key=lambda visit: visit.energy_joules)
            choice = answer.choice
        return Answer(
            local_steps=int(objective.local_steps[choice]),
            sparsity=answer.sparsity,
            lower_bound_joules=None,
            effort={
                "outer_iterations": len(visits),
                "inner_iterations": sum(visit.inner_iterations for visit in visits),
            },
        )

    def _primal(self, objective: Objective, choice: int) -> _Visit:
        """Run the inner loop, lines 2 to 10: repeat the closed form (35) with K and the round's joules fixed."""
        delta = np.full(self.problem.devices, self.problem.sparsity[0])
        gamma = self.step_size
        iterations = 0
        while iterations < MAX_INNER:
            iterations += 1
            power, radio = self._sums(delta)
            log_multiplier = objective.log_stationary_multiplier(power, radio, choice)
            change = gamma * (self.frontier.sparsity(log_multiplier) - delta)
            delta = delta + change
            if "step-size" in self.repairs:
                gamma *= 1.0 - STEP_DECAY * gamma
            if float(change @ change) <= INNER_TOLERANCE:
                break
        power, radio = self._sums(delta)
        energy = objective.energy(np.array([power]), np.array([radio]))[0, choice]
        return _Visit(choice, delta, power, radio, log_multiplier, float(energy), iterations)

    def _master(self, objective: Objective, visits: list[_Visit]) -> FloatArray:
        """Return the value of problem (29) for each H, shape (choices,).

        The multiplier terms of its cuts vanish: a multiplier is positive only where its bound is active.
        """
        if "valid-cuts" not in self.repairs:
            power = np.array([visit.mean_power for visit in visits])
            radio = np.array([visit.radio_joules for visit in visits])
            return objective.energy(power, radio).max(axis=0)
        low, high = self.frontier.log_multiplier_range
        logs = np.clip([visit.log_multiplier for visit in visits], low, high)
        points = self.frontier.points(np.unique([low, high, *logs])[::-1])
        energy = objective.energy(points.mean_power, points.radio_joules)
        _, floor = lower_bounds(points, objective)
        eta = np.minimum(energy.min(axis=0), floor.min(axis=0, initial=np.inf))
        for visit in visits:
            eta[visit.choice] = visit.energy_joules
        return eta

    def _sums(self, delta: FloatArray) -> tuple[float, float]:
        """Return mean power and radio joules of a round without the fixed part."""
        power = float(np.mean(delta**self.problem.rounds.exponent))
        return power, float(np.sum(self.problem.round_costs.sending_joules(delta)))
