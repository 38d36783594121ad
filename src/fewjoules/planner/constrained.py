"""Plans under deadlines, batteries and with operating points: one H at a time, by rising lower bound."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.errors import InfeasiblePlanError
from fewjoules.planner import battery, pareto
from fewjoules.planner.choosing_points import PointChoices, PointsFrontier, at_points, optimistic
from fewjoules.planner.constraints import battery_shortage, deadline_box, require_deadline
from fewjoules.planner.downlink import DownlinkFrontier
from fewjoules.planner.frontier import Senders
from fewjoules.planner.objective import Objective
from fewjoules.planner.pooling import Pooling, with_server
from fewjoules.planner.problem import ControlProblem

CONSTRAINT_SLACK = 1e-11  # plans keep 1e-12 to each constraint; the bound must hold for plans that keep none
_GRID, _REFINEMENTS, _REFINED_GAP = 5, 12, 1e-9
_MANY_DEVICES = 100_000  # the search for the server's sparsity then stops early
_SWITCHED_DEVICES = 64  # up to here each device is tried at each of its points
_THRESHOLDS = 64
Shortage = tuple[float, int, float]


@dataclass(frozen=True, slots=True)
class Solved:
    """The best plan for one H, and a lower bound on the energy of all of them."""

    energy_joules: float
    lower_bound_joules: float
    sparsity: FloatArray
    downlink_sparsity: float | None
    operating_points: IntArray | None
    work: int


@dataclass(frozen=True, slots=True)
class SolvedConstrained:
    """The best H, its plan, and the bound over all H."""

    local_steps: int
    plan: Solved
    lower_bound_joules: float
    work: int


def solve_constrained(pooling: Pooling) -> SolvedConstrained:
    """Visit H by rising unconstrained lower bound until no remaining H can win."""
    problem = optimistic(pooling.problem)
    choices = np.array(require_deadline(problem))
    relaxed = pareto.minimise(
        Pooling(problem, pooling.shared).frontier(), Objective.of(problem, choices), tolerance=1e-6, every_choice=True
    )
    floors = relaxed.lower_bound_joules
    best: tuple[int, Solved] | None = None
    bound, work = np.inf, 0
    shortages: list[tuple[float, int, float, int]] = []
    for i in np.argsort(floors, kind="stable"):
        if best is not None and floors[i] >= best[1].energy_joules:
            break
        incumbent = np.inf if best is None else best[1].energy_joules
        solved = solve_one(pooling, int(choices[i]), incumbent, float(floors[i]))
        if not isinstance(solved, Solved):
            shortages.append((*solved, int(choices[i])))
            continue
        bound, work = min(bound, solved.lower_bound_joules), work + solved.work
        if best is None or solved.energy_joules < best[1].energy_joules:
            best = int(choices[i]), solved
    if best is None:
        raise _battery_error(pooling.problem, *min(shortages))
    bound = min(bound, best[1].energy_joules) * (1.0 - CONSTRAINT_SLACK)
    return SolvedConstrained(best[0], best[1], bound, work)


def solve_one(pooling: Pooling, local_steps: int, incumbent: float, floor: float = 0.0) -> Solved | Shortage:
    """Return the optimum for one H under all constraints; or the battery shortage.

    ``floor`` is a known lower bound. The result is certified unless a battery binds, devices choose among many points,
    or the server's sparsity takes time or charge that a device needs.
    """
    if pooling.problem.fleet.operating_points is None:
        return _choose_downlink(pooling, local_steps, incumbent, floor)
    return _choose_points(pooling, local_steps, incumbent, floor)


def _choose_points(pooling: Pooling, local_steps: int, incumbent: float, floor: float) -> Solved | Shortage:
    problem = pooling.problem
    choices = PointChoices.of(problem, local_steps)
    if not choices.feasible:
        return np.inf, 0, np.inf

    def solved_at(chosen: IntArray) -> Solved | Shortage:
        fixed = Pooling(at_points(problem, chosen), pooling.shared)
        solved = _choose_downlink(fixed, local_steps, incumbent, floor)
        return replace(solved, operating_points=chosen) if isinstance(solved, Solved) else solved

    if not choices.coupled and not _server_takes_its_share(problem):
        return solved_at(choices.cheapest())
    if pooling.shared:
        return _least(map(solved_at, _shared_points(choices)), bound=floor)
    combinations = choices.combinations()
    if combinations is not None:
        return _least(map(solved_at, combinations), bound=floor if _server_takes_its_share(problem) else None)
    return _by_tangents(problem, local_steps, choices, solved_at)


def _by_tangents(
    problem: ControlProblem, local_steps: int, choices: PointChoices, solved_at: Callable[[IntArray], Solved | Shortage]
) -> Solved | Shortage:
    """Choose the points by tangents of the set of all choices, and then solve for the sparsities at those points."""
    frontier = PointsFrontier(problem, choices)
    optimum = pareto.minimise(with_server(problem, frontier), Objective.beside_steps(problem, local_steps))
    bound = float(optimum.lower_bound_joules[0])
    best = _least(
        [solved_at(chosen) for chosen in (frontier.chosen(float(optimum.log_multiplier[0])), choices.freest())],
        bound=bound,
    )
    improved = isinstance(best, Solved) and problem.devices <= _SWITCHED_DEVICES
    while improved and isinstance(best, Solved) and best.energy_joules > bound * (1.0 + _REFINED_GAP):
        assert best.operating_points is not None
        better = _least(map(solved_at, _neighbours(choices, best.operating_points)), bound=bound)
        improved = isinstance(better, Solved) and better.energy_joules < best.energy_joules
        best = better if improved else best
    return best


def _neighbours(choices: PointChoices, chosen: IntArray) -> Iterable[IntArray]:
    """Yield the choices that differ at one device."""
    for device, column in enumerate(choices.fixed_joules.T):
        for point in np.flatnonzero(np.isfinite(column)):
            if point != chosen[device]:
                other = chosen.copy()
                other[device] = point
                yield other


def _shared_points(choices: PointChoices) -> Iterable[IntArray]:
    """Yield, for each least sparsity that all may share, the cheapest points that allow it."""
    least = choices.lower.min(axis=0).max()
    limits = np.unique(choices.lower[np.isfinite(choices.lower) & (choices.lower >= least)])
    if limits.size > _THRESHOLDS:
        limits = limits[np.linspace(0, limits.size - 1, _THRESHOLDS).astype(np.int64)]
    for limit in limits:
        yield np.argmin(np.where(choices.lower <= limit, choices.fixed_joules, np.inf), axis=0)


def _least(found: Iterable[Solved | Shortage], bound: float | None) -> Solved | Shortage:
    """Return the plan of least energy; its bound is the least of all, or the one given."""
    every = list(found)
    plans = [one for one in every if isinstance(one, Solved)]
    if not plans:
        return min(one for one in every if not isinstance(one, Solved))
    best = min(plans, key=lambda plan: plan.energy_joules)
    known = min(plan.lower_bound_joules for plan in plans) if bound is None else min(bound, best.energy_joules)
    return replace(best, lower_bound_joules=known, work=sum(plan.work for plan in plans))


def _server_takes_its_share(problem: ControlProblem) -> bool:
    """Whether the server's chosen sparsity changes the time or charge that is left to the devices."""
    if problem.server is None or not problem.server.chosen:
        return False
    seconds, batteries = problem.fleet.downlink_seconds_per_bit, problem.fleet.battery_joules
    in_time = problem.round_seconds is not None and seconds is not None and bool(np.any(seconds > 0.0))
    return in_time or (batteries is not None and bool(np.isfinite(batteries).any()))


def _choose_downlink(pooling: Pooling, local_steps: int, incumbent: float, floor: float) -> Solved | Shortage:
    """Choose the server's sparsity too: with the devices' if nothing couples them, else by a search over it."""
    problem, server = pooling.problem, pooling.problem.server
    if server is None or not server.chosen or not _server_takes_its_share(problem):
        return _solve_given(pooling, local_steps, incumbent)
    free = _solve_given(Pooling(_without_batteries(problem), pooling.shared), local_steps, incumbent)
    if not isinstance(free, Solved):
        return free
    if _keeps_constraints(problem, local_steps, free):
        return free
    bound = max(free.lower_bound_joules, floor)

    def solved_at(log: float) -> Solved | Shortage:
        delta = math.exp(log)
        return _solve_given(Pooling(problem.with_downlink_at(delta), pooling.shared), local_steps, incumbent)

    assert free.downlink_sparsity is not None
    low, high = map(math.log, server.sparsity)
    logs = [*np.linspace(low, high, _GRID).tolist(), math.log(free.downlink_sparsity)]
    tried = {log: solved_at(log) for log in sorted(set(logs))}
    for _ in range(_REFINEMENTS if problem.devices < _MANY_DEVICES else 1):
        log = _next_trial(tried)
        if log is None:
            break
        tried[log] = solved_at(log)
    return _least(tried.values(), bound=bound)


def _next_trial(tried: dict[float, Solved | Shortage]) -> float | None:
    """Return the middle of the wider gap beside the best trial so far; None if it is narrow or nothing is feasible."""
    logs = sorted(tried)
    energies = [one.energy_joules if isinstance(one, Solved) else math.inf for one in map(tried.__getitem__, logs)]
    best = int(np.argmin(energies))
    if math.isinf(energies[best]):
        return None
    sides = [(logs[best] - logs[other], other) for other in (best - 1, best + 1) if 0 <= other < len(logs)]
    width, other = max((abs(gap), other) for gap, other in sides)
    return None if width < 1e-4 else 0.5 * (logs[best] + logs[other])


def _without_batteries(problem: ControlProblem) -> ControlProblem:
    if problem.fleet.battery_joules is None:
        return problem
    return replace(problem, fleet=problem.fleet.changed(battery_joules=None))


def _keeps_constraints(problem: ControlProblem, local_steps: int, plan: Solved) -> bool:
    chosen = problem.with_downlink_at(float(plan.downlink_sparsity or 1.0))
    if problem.round_seconds is not None:
        seconds = chosen.require_device_seconds(local_steps, plan.sparsity)
        if np.any(seconds > problem.round_seconds):
            return False
    return _within_batteries(chosen, local_steps, plan.sparsity)


def _solve_given(pooling: Pooling, local_steps: int, incumbent: float) -> Solved | Shortage:
    """Return the optimum for one H where the server's sparsity couples nothing; or the battery shortage."""
    problem = pooling.problem
    box = pooling.pool(deadline_box(problem, local_steps))
    if not box.feasible:
        return np.inf, 0, np.inf
    frontier, objective = pooling.frontier(box), Objective.of(problem, local_steps)
    optimum = pareto.minimise(frontier, objective)
    log = float(optimum.log_multiplier[0])
    sparsity, downlink = frontier.sparsity(log), downlink_sparsity(problem, frontier, log)
    energy, bound = float(optimum.energy_joules[0]), float(optimum.lower_bound_joules[0])
    if _within_batteries(problem, local_steps, sparsity):
        return Solved(energy, bound, sparsity, downlink, None, optimum.tangents)
    found = battery.BatterySearch(pooling, local_steps, objective, box).minimise(incumbent)
    if not isinstance(found, battery.BatteryOptimum):
        return battery_shortage(problem, local_steps, box, found)
    proved = max(bound, found.lower_bound_joules)
    return Solved(found.energy_joules, proved, found.sparsity, downlink, None, found.nodes)


def downlink_sparsity(problem: ControlProblem, frontier: Senders, log_multiplier: float) -> float | None:
    """Return the server's sparsity at a point of the frontier; None where the downlink is not planned."""
    if problem.server is None:
        return None
    if isinstance(frontier, DownlinkFrontier):
        return frontier.downlink_sparsity(log_multiplier)
    return problem.server.sparsity[0]


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
