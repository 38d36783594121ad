"""Every scheme as one small function from a control problem to a plan: the table of docs/planner.md."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from fewjoules.errors import InfeasiblePlanError, InvalidInputError
from fewjoules.planner import benders
from fewjoules.planner.plan import Plan, evaluate_plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.solve import SOLVERS, Answer, Solver, solve_pareto


class Scheme(Protocol):
    """What every scheme is."""

    def __call__(self, problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
        """Plan the problem the scheme's way."""


def flexible(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """FlexibleSpar: H planned, and a sparsity planned for each device."""
    return _planned("flexible", problem, solver)


def unified(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """UnifiedSpar: H planned, and one sparsity planned for all devices."""
    return _planned("unified", problem, solver, shared=True)


def synchronous(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """SynSgdSpar: H = 1 even if it is not in the limits, and a sparsity planned for each device."""
    return _planned("synchronous", problem.with_choices(local_steps=[1]), solver)


def fedavg(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """Local SGD: H planned, nothing sparsified."""
    return _planned("fedavg", problem.with_choices(sparsity=(1.0, 1.0)), solver)


def greedy(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """GreedySpar: least energy in the current round, that is the smallest H and the largest sparsity."""
    return _fixed("greedy", problem, solver, int(problem.step_choices[0]), problem.sparsity[1])


def dense(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """Distributed SGD: H = 1 and nothing sparsified, whatever the limits."""
    return _fixed("dense", problem, solver, 1, 1.0)


SCHEMES: Mapping[str, Scheme] = {
    scheme.__name__: scheme for scheme in (flexible, unified, greedy, synchronous, dense, fedavg)
}


def solve(problem: ControlProblem, *, solver: Solver = "pareto") -> Plan:
    """The plan of least energy: scheme ``flexible``."""
    return flexible(problem, solver=solver)


def _planned(name: str, problem: ControlProblem, solver: Solver, *, shared: bool = False) -> Plan:
    solvers: Mapping[str, Callable[..., Answer]] = {"pareto": solve_pareto, "benders": benders.solve}
    _require_solver(solver)
    answer = solvers[solver](problem, shared=shared)
    return evaluate_plan(
        problem,
        scheme=name,
        solver=solver,
        local_steps=answer.local_steps,
        sparsity=answer.sparsity,
        lower_bound_joules=answer.lower_bound_joules,
        effort=answer.effort,
    )


def _fixed(name: str, problem: ControlProblem, solver: Solver, local_steps: int, sparsity: float) -> Plan:
    """A plan with nothing to choose, and so nothing to prove."""
    _require_solver(solver)
    plan = evaluate_plan(
        problem,
        scheme=name,
        solver=solver,
        local_steps=local_steps,
        sparsity=np.full(problem.devices, sparsity),
        lower_bound_joules=None,
    )
    _require_constraints(problem, plan)
    return plan


def _require_solver(solver: str) -> None:
    if solver not in SOLVERS:
        raise InvalidInputError(f"solver must be one of {', '.join(SOLVERS)}, got {solver!r}")


def _require_constraints(problem: ControlProblem, plan: Plan) -> None:
    """Refuse a fixed choice that breaks a constraint."""
    fleet = problem.fleet
    choice = f"scheme {plan.scheme} (H = {plan.local_steps}, sparsity {plan.sparsity[0]:g})"
    if problem.round_seconds is not None:
        seconds = problem.require_device_seconds(plan.local_steps, plan.sparsity)
        slowest = int(np.argmax(seconds))
        if seconds[slowest] > problem.round_seconds:
            raise InfeasiblePlanError(
                f"round_seconds = {problem.round_seconds:g} cannot be met by {choice}: device "
                f"{fleet.device_name(slowest)} needs {seconds[slowest]:.6g} seconds a round"
            )
    if fleet.battery_joules is not None:
        spent = plan.rounds * problem.round_joules(plan.local_steps, plan.sparsity)
        worst = int(np.argmax(spent - fleet.battery_joules))
        if spent[worst] > fleet.battery_joules[worst]:
            raise InfeasiblePlanError(
                f"battery_joules = {fleet.battery_joules[worst]:g} cannot be met by {choice}: device "
                f"{fleet.device_name(worst)} needs {spent[worst]:.6g} joules for the whole training"
            )
