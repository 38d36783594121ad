"""Every scheme as one small function from a control problem to a plan: the table of docs/planner.md."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from fewjoules.errors import InfeasiblePlanError, InvalidInputError, shown
from fewjoules.planner import benders
from fewjoules.planner.choosing_points import at_points, cheapest_points_of
from fewjoules.planner.plan import Plan, evaluate_plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.solve import SOLVERS, Answer, Solver, solve_pareto


class Scheme(Protocol):
    """A function from a control problem to a plan."""

    def __call__(self, problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
        """Plan the problem with this scheme."""


def flexible(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """Plan the best H, and the best sparsity of each device (FlexibleSpar).

    Args:
        problem: Fleet, rounds law and limits.
        solver: "pareto" or "benders".
    """
    return _planned("flexible", problem, solver)


def unified(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """Plan the best H, and the best sparsity shared by all devices (UnifiedSpar).

    Args:
        problem: Fleet, rounds law and limits.
        solver: "pareto" or "benders".
    """
    return _planned("unified", problem, solver, shared=True)


def synchronous(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """Plan the best sparsity of each device at H = 1, even outside the limits (SynSgdSpar).

    Args:
        problem: Fleet, rounds law and limits.
        solver: "pareto" or "benders".
    """
    return _planned("synchronous", _checked(problem).with_choices(local_steps=[1]), solver)


def fedavg(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """Plan the best H without sparsification (local SGD).

    Args:
        problem: Fleet, rounds law and limits.
        solver: "pareto" or "benders".
    """
    return _planned("fedavg", _checked(problem).with_choices(sparsity=(1.0, 1.0)), solver)


def greedy(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """Plan the least energy of a single round: the smallest H and the largest sparsity (GreedySpar).

    Args:
        problem: Fleet, rounds law and limits.
        solver: "pareto" or "benders".
    """
    local_steps, sparsity = int(_checked(problem).step_choices[0]), problem.sparsity[1]
    return _fixed("greedy", problem, solver, local_steps, sparsity)


def dense(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """Plan distributed SGD: H = 1 without sparsification, even outside the limits.

    Args:
        problem: Fleet, rounds law and limits.
        solver: "pareto" or "benders".
    """
    return _fixed("dense", problem, solver, 1, 1.0)


SCHEMES: Mapping[str, Scheme] = {
    scheme.__name__: scheme for scheme in (flexible, unified, greedy, synchronous, dense, fedavg)
}
FEWEST = "fewest"  # flexible with a recipe of its own: see recipes.py
SCHEME_NAMES = (*SCHEMES, FEWEST)
PLANS_LOCAL_STEPS = ("flexible", "unified", "fedavg", FEWEST)
PLANS_SPARSITY = ("flexible", "unified", "synchronous", FEWEST)


def solve(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """Return the plan of least energy: the best H, and the best sparsity of each device (scheme ``flexible``).

    Args:
        problem: Fleet, rounds law and limits.
        solver: "pareto" proves the optimum; "benders" is the published algorithm of [LI21], which proves nothing.

    Returns:
        The plan; ``relative_gap`` says how much less any other plan could cost, at most 1e-9 without constraints.

    Raises:
        InfeasiblePlanError: No plan meets the deadline and the batteries; the message names the tightest one.

    Examples:
        >>> plan = fj.solve(problem)
        >>> plan.local_steps, plan.sparsity, plan.energy_joules, plan.relative_gap
    """
    return flexible(problem, solver=solver)


def _planned(name: str, problem: ControlProblem, solver: Solver, *, shared: bool = False) -> Plan:
    solvers: Mapping[str, Callable[..., Answer]] = {"pareto": solve_pareto, "benders": benders.solve}
    _require_solver(solver)
    answer = solvers[solver](_checked(problem), shared=shared)
    return evaluate_plan(
        problem,
        scheme=name,
        solver=solver,
        local_steps=answer.local_steps,
        sparsity=answer.sparsity,
        lower_bound_joules=answer.lower_bound_joules,
        downlink_sparsity=answer.downlink_sparsity,
        operating_points=answer.operating_points,
        effort=answer.effort,
    )


def _fixed(name: str, problem: ControlProblem, solver: Solver, local_steps: int, sparsity: float) -> Plan:
    """Make a plan with fixed H and sparsity, which proves nothing."""
    _require_solver(solver)
    points = cheapest_points_of(_checked(problem), local_steps)
    plan = evaluate_plan(
        problem,
        scheme=name,
        solver=solver,
        local_steps=local_steps,
        sparsity=np.full(problem.devices, sparsity),
        lower_bound_joules=None,
        downlink_sparsity=None if problem.server is None else sparsity,
        operating_points=points,
    )
    _require_constraints(problem if points is None else at_points(problem, points), plan)
    return plan


def _checked(problem: ControlProblem) -> ControlProblem:
    """Return the problem; refuse anything else."""
    if not isinstance(problem, ControlProblem):
        raise InvalidInputError(f"problem must be a fewjoules.ControlProblem, got {shown(problem)}")
    return problem


def _require_solver(solver: str) -> None:
    if solver not in SOLVERS:
        raise InvalidInputError(f"solver must be one of {', '.join(SOLVERS)}, got {solver!r}")


def _require_constraints(problem: ControlProblem, plan: Plan) -> None:
    """Refuse a fixed choice that breaks a constraint."""
    fleet = problem.fleet
    choice = f"scheme {plan.scheme} (H = {plan.local_steps}, sparsity {plan.sparsity[0]:g})"
    if problem.round_seconds is not None:
        seconds = problem.require_device_seconds(plan.local_steps, plan.sparsity, plan.downlink_sparsity)
        slowest = int(np.argmax(seconds))
        if seconds[slowest] > problem.round_seconds:
            raise InfeasiblePlanError(
                f"round_seconds = {problem.round_seconds:g} cannot be met by {choice}: device "
                f"{fleet.device_name(slowest)} needs {seconds[slowest]:.6g} seconds per round"
            )
    if fleet.battery_joules is not None:
        spent = plan.rounds * problem.round_joules(plan.local_steps, plan.sparsity, plan.downlink_sparsity)
        worst = int(np.argmax(spent - fleet.battery_joules))
        if spent[worst] > fleet.battery_joules[worst]:
            raise InfeasiblePlanError(
                f"battery_joules = {fleet.battery_joules[worst]:g} cannot be met by {choice}: device "
                f"{fleet.device_name(worst)} needs {spent[worst]:.6g} joules for the whole training"
            )
