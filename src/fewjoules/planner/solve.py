"""Solve a control problem to a certified optimum, with deadlines and batteries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.errors import InfeasiblePlanError
from fewjoules.planner import battery, pareto
from fewjoules.planner.constraints import battery_shortage, deadline_box, require_deadline
from fewjoules.planner.objective import Objective
from fewjoules.planner.pooling import Pooling
from fewjoules.planner.problem import ControlProblem

Solver = Literal["pareto", "benders"]
SOLVERS: tuple[Solver, ...] = ("pareto", "benders")
_CONSTRAINT_SLACK = 1e-11  # plans keep 1e-12 to each constraint; the bound must hold for plans that keep none


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a solver: H, the sparsity of each device, and the proved lower bound."""

    local_steps: int
    sparsity: FloatArray
    lower_bound_joules: float | None
    effort: Mapping[str, int] = field(default_factory=dict)


def solve_pareto(problem: ControlProblem, *, shared: bool = False) -> Answer:
    """Return the certified optimum."""
    pooling = Pooling(problem, shared)
    if problem.constrained:
        return _solve_constrained(pooling)
    frontier = pooling.frontier()
    optimum = pareto.minimise(frontier, Objective.of(problem))
    best = optimum.best
    return Answer(
        local_steps=int(problem.step_choices[best]),
        sparsity=frontier.sparsity(float(optimum.log_multiplier[best])),
        lower_bound_joules=float(optimum.lower_bound_joules.min()),
        effort={"tangents": optimum.tangents},
    )


def energy_by_local_steps(problem: ControlProblem, *, shared: bool = False) -> FloatArray:
    """Return the least energy for each H, certified to 1e-6, infinite where no plan is feasible; shape (choices,)."""
    pooling = Pooling(problem, shared)
    if not problem.constrained:
        return pareto.minimise(
            pooling.frontier(), Objective.of(problem), tolerance=1e-6, every_choice=True
        ).energy_joules
    solved = (_solve_one(pooling, h, np.inf) for h in problem.step_choices.tolist())
    return np.array([one.energy_joules if isinstance(one, _Solved) else np.inf for one in solved])


@dataclass(frozen=True, slots=True)
class _Solved:
    energy_joules: float
    lower_bound_joules: float
    sparsity: FloatArray
    work: int


def _solve_constrained(pooling: Pooling) -> Answer:
    """Visit H by rising unconstrained lower bound until no remaining H can win."""
    problem = pooling.problem
    choices = np.array(require_deadline(problem))
    objective = Objective.of(problem, choices)
    relaxed = pareto.minimise(pooling.frontier(), objective, tolerance=1e-6, every_choice=True)
    floors = relaxed.lower_bound_joules
    best: tuple[int, _Solved] | None = None
    bound, work = np.inf, 0
    shortages: list[tuple[float, int, float, int]] = []
    for i in np.argsort(floors, kind="stable"):
        if best is not None and floors[i] >= best[1].energy_joules:
            break
        incumbent = np.inf if best is None else best[1].energy_joules
        solved = _solve_one(pooling, int(choices[i]), incumbent)
        if not isinstance(solved, _Solved):
            shortages.append((*solved, int(choices[i])))
            continue
        bound, work = min(bound, solved.lower_bound_joules), work + solved.work
        if best is None or solved.energy_joules < best[1].energy_joules:
            best = int(choices[i]), solved
    if best is None:
        raise _battery_error(problem, *min(shortages))
    bound = min(bound, best[1].energy_joules) * (1.0 - _CONSTRAINT_SLACK)
    return Answer(best[0], best[1].sparsity, bound, {"tangents": work})


def _solve_one(pooling: Pooling, local_steps: int, incumbent: float) -> _Solved | tuple[float, int, float]:
    """Return the optimum for one H under all constraints, exact unless a battery binds; or the battery shortage."""
    problem = pooling.problem
    box = pooling.pool(deadline_box(problem, local_steps))
    if not box.feasible:
        return np.inf, 0, np.inf
    frontier, objective = pooling.frontier(box), Objective.of(problem, local_steps)
    optimum = pareto.minimise(frontier, objective)
    sparsity = frontier.sparsity(float(optimum.log_multiplier[0]))
    energy, bound = float(optimum.energy_joules[0]), float(optimum.lower_bound_joules[0])
    if _within_batteries(problem, local_steps, sparsity):
        return _Solved(energy, bound, sparsity, optimum.tangents)
    found = battery.BatterySearch(pooling, local_steps, objective, box).minimise(incumbent)
    if not isinstance(found, battery.BatteryOptimum):
        return battery_shortage(problem, local_steps, box, found)
    return _Solved(found.energy_joules, max(bound, found.lower_bound_joules), found.sparsity, found.nodes)


def _within_batteries(problem: ControlProblem, local_steps: int, sparsity: FloatArray) -> bool:
    batteries = problem.fleet.battery_joules
    if batteries is None:
        return True
    rounds = problem.predicted_rounds(local_steps, sparsity)
    return bool(np.all(rounds * problem.round_joules(local_steps, sparsity) <= batteries))


def _battery_error(
    problem: ControlProblem, ratio: float, device: int, joules: float, local_steps: int
) -> InfeasiblePlanError:
    batteries = problem.fleet.battery_joules
    assert batteries is not None
    name, limit = problem.fleet.device_name(device), problem.sparsity[1]
    if ratio > 1.0:
        reason = f"device {name} needs at least {joules:.6g} joules for the whole training (H = {local_steps})"
    else:
        reason = f"no sparsity up to {limit:g} keeps device {name} within it for the whole training"
    return InfeasiblePlanError(f"battery_joules = {batteries[device]:g} cannot be met: {reason}")
