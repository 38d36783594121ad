"""The certified solver: every H at once without constraints, one H after the other under them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.planner import pareto
from fewjoules.planner.choosing_points import cheapest_points_of
from fewjoules.planner.constrained import Solved, downlink_sparsity, solve_constrained, solve_one
from fewjoules.planner.objective import Objective
from fewjoules.planner.pooling import Pooling
from fewjoules.planner.problem import ControlProblem

Solver = Literal["pareto", "benders"]
SOLVERS: tuple[Solver, ...] = ("pareto", "benders")


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a solver: H, the sparsity of each device and of the server, operating points, and the proved bound."""

    local_steps: int
    sparsity: FloatArray
    lower_bound_joules: float | None
    effort: Mapping[str, int] = field(default_factory=dict)
    downlink_sparsity: float | None = None
    operating_points: IntArray | None = None


def solve_pareto(problem: ControlProblem, *, shared: bool = False) -> Answer:
    """Return the certified optimum."""
    if problem.constrained:
        found = solve_constrained(Pooling(problem, shared))
        return Answer(
            found.local_steps,
            found.plan.sparsity,
            found.lower_bound_joules,
            {"tangents": found.work},
            found.plan.downlink_sparsity,
            found.plan.operating_points,
        )
    frontier = Pooling(problem, shared).frontier()
    optimum = pareto.minimise(frontier, Objective.of(problem))
    best = optimum.best
    log, local_steps = float(optimum.log_multiplier[best]), int(problem.step_choices[best])
    return Answer(
        local_steps=local_steps,
        sparsity=frontier.sparsity(log),
        lower_bound_joules=float(optimum.lower_bound_joules.min()),
        effort={"tangents": optimum.tangents},
        downlink_sparsity=downlink_sparsity(problem, frontier, log),
        operating_points=cheapest_points_of(problem, local_steps),
    )


def energy_by_local_steps(problem: ControlProblem, *, shared: bool = False) -> FloatArray:
    """Return the least energy for each H, certified to 1e-6, infinite where no plan is feasible; shape (choices,)."""
    if problem.constrained:
        solved = (solve_one(Pooling(problem, shared), h, np.inf) for h in problem.step_choices.tolist())
        return np.array([one.energy_joules if isinstance(one, Solved) else np.inf for one in solved])
    frontier = Pooling(problem, shared).frontier()
    return pareto.minimise(frontier, Objective.of(problem), tolerance=1e-6, every_choice=True).energy_joules
