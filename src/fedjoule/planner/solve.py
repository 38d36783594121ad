"""Solve a control problem: choose the solver, and bring deadlines and batteries to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedjoule.arrays import FloatArray, IntArray
from fedjoule.errors import InfeasiblePlanError
from fedjoule.planner import battery, pareto
from fedjoule.planner.constraints import Box, battery_box, battery_shortage, deadline_box, require_deadline
from fedjoule.planner.frontier import Frontier
from fedjoule.planner.objective import Objective
from fedjoule.planner.problem import ControlProblem

Solver = Literal["pareto", "benders"]
SOLVERS: tuple[Solver, ...] = ("pareto", "benders")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a solver found: H, the sparsity of each device, and what it proved."""

    local_steps: int
    sparsity: FloatArray
    lower_bound_joules: float | None
    effort: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pooling:
    """Whether each device has its own sparsity, or all share one.

    One sparsity for all sees only the mean cost of a bit and the tightest of the boxes.
    """

    problem: ControlProblem
    shared: bool = False

    def frontier(self, box: Box | None = None) -> Frontier:
        """The frontier within the limits, or within a box."""
        problem, costs = self.problem, self.problem.fleet.joules_per_bit
        lower: FloatArray | float = problem.sparsity[0] if box is None else box.lower
        if self.shared:
            costs, lower = np.full_like(costs, costs.mean()), float(np.max(lower))
        return Frontier(
            costs,
            parameters=problem.parameters,
            value_bits=problem.value_bits,
            exponent=problem.rounds.exponent,
            lower=lower,
            upper=problem.sparsity[1],
        )

    def pool(self, box: Box) -> Box:
        """The box that the choice has to respect."""
        return Box(np.full_like(box.lower, box.lower.max()), box.upper) if self.shared else box


def solve_pareto(problem: ControlProblem, *, shared: bool = False) -> Answer:
    """The certified optimum."""
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
    """Least energy for each H, certified to 1e-6 each, infinite where no plan is feasible; shape (choices,)."""
    pooling = Pooling(problem, shared)
    if not problem.constrained:
        return pareto.minimise(
            pooling.frontier(), Objective.of(problem), tolerance=1e-6, every_choice=True
        ).energy_joules
    solved = (_solve_one(pooling, h, np.inf) for h in problem.step_choices.tolist())
    return np.array([np.inf if one is None else one.energy_joules for one in solved])


@dataclass(frozen=True, slots=True)
class _Solved:
    energy_joules: float
    lower_bound_joules: float
    sparsity: FloatArray
    work: int


def _solve_constrained(pooling: Pooling) -> Answer:
    """Visit H by rising unconstrained lower bound until no H left can win."""
    problem = pooling.problem
    choices = np.array(require_deadline(problem))
    objective = Objective.of(problem, choices)
    relaxed = pareto.minimise(pooling.frontier(), objective, tolerance=1e-6, every_choice=True)
    floors = relaxed.lower_bound_joules
    best: tuple[int, _Solved] | None = None
    bound, work = np.inf, 0
    for i in np.argsort(floors, kind="stable"):
        if best is not None and floors[i] >= best[1].energy_joules:
            break
        incumbent = np.inf if best is None else best[1].energy_joules
        solved = _solve_one(pooling, int(choices[i]), incumbent)
        if solved is None:
            continue
        bound, work = min(bound, solved.lower_bound_joules), work + solved.work
        if best is None or solved.energy_joules < best[1].energy_joules:
            best = int(choices[i]), solved
    if best is None:
        raise _battery_error(problem, choices)
    return Answer(best[0], best[1].sparsity, min(bound, best[1].energy_joules), {"tangents": work})


def _solve_one(pooling: Pooling, local_steps: int, incumbent: float) -> _Solved | None:
    """The optimum for one H under all constraints; exact unless a battery binds."""
    problem = pooling.problem
    box = pooling.pool(deadline_box(problem, local_steps))
    if not box.feasible:
        return None
    frontier, objective = pooling.frontier(box), Objective.of(problem, local_steps)
    optimum = pareto.minimise(frontier, objective)
    sparsity = frontier.sparsity(float(optimum.log_multiplier[0]))
    energy, bound = float(optimum.energy_joules[0]), float(optimum.lower_bound_joules[0])
    if _within_batteries(problem, local_steps, sparsity):
        return _Solved(energy, bound, sparsity, optimum.tangents)
    search = battery.BatterySearch(
        objective=objective,
        exponent=problem.rounds.exponent,
        raise_box=lambda s: pooling.pool(battery_box(problem, local_steps, s, box)),
        frontier=pooling.frontier,
    )
    found = search.minimise(float(np.mean(box.lower**problem.rounds.exponent)), incumbent)
    if found is None:
        return None
    return _Solved(found.energy_joules, max(bound, found.lower_bound_joules), found.sparsity, found.nodes)


def _within_batteries(problem: ControlProblem, local_steps: int, sparsity: FloatArray) -> bool:
    batteries = problem.fleet.battery_joules
    if batteries is None:
        return True
    rounds = problem.predicted_rounds(local_steps, sparsity)
    return bool(np.all(rounds * problem.round_joules(local_steps, sparsity) <= batteries))


def _battery_error(problem: ControlProblem, choices: IntArray) -> InfeasiblePlanError:
    """Names the device that is shortest at the H where the shortage is least."""
    shortages = [(*battery_shortage(problem, h), h) for h in choices.tolist()]
    ratio, device, joules, steps = min(shortages)
    batteries = problem.fleet.battery_joules
    assert batteries is not None
    name = problem.fleet.device_name(device)
    if ratio > 1.0:
        need = f"needs at least {joules:.6g} joules"
    else:
        need = "cannot keep within it while the other devices keep within theirs"
    return InfeasiblePlanError(
        f"battery_joules = {batteries[device]:g} cannot be met: device {name} {need} "
        f"for the whole training, even at sparsity {problem.sparsity[1]:g} (H = {steps})"
    )
