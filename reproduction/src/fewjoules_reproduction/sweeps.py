"""Tables of Fig. 1: costs and choices of each scheme as one parameter of the base point varies."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError, require_number
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.schemes import flexible
from fewjoules_reproduction.embedded import embedded_scenario
from fewjoules_reproduction.readings import CHOOSERS, READINGS, Reading
from fewjoules_reproduction.table import Cell, Table

GROUPS = 4
SPREAD = np.array([-0.03, -0.01, 0.01, 0.03])  # of the mean bandwidth, per level of heterogeneity
DEVICES = tuple(range(4, 61, 4))
LEVELS = tuple(range(15))
FIGURES = ("fig1a", "fig1b", "fig1c", "fig1d")
BIT_COSTS = tuple(np.geomspace(1e-13, 1e-7, 25).tolist())
STEP_COSTS = tuple(np.geomspace(1e-6, 1.0, 25).tolist())
MANY_DEVICES = (12, 32, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)


def base_problem(figure: str) -> ControlProblem:
    """The base point of ``fig1a`` to ``fig1d``, from the scenario file that ships with this package."""
    if figure not in FIGURES:
        raise InvalidInputError(f"the figure must be one of {', '.join(FIGURES)}, got {figure!r}")
    return embedded_scenario(f"{figure}.toml").problem()


def group_size(problem: ControlProblem) -> int:
    """Number of devices in each of the four groups, which are consecutive."""
    if problem.devices % GROUPS:
        raise InvalidInputError(f"the fleet must have a multiple of {GROUPS} devices, got {problem.devices}")
    return problem.devices // GROUPS


def with_devices(problem: ControlProblem, devices: int) -> ControlProblem:
    """The problem with a quarter of ``devices`` in each group."""
    if devices < GROUPS or devices % GROUPS:
        raise InvalidInputError(f"devices must be a positive multiple of {GROUPS}, got {devices}")
    costs = [
        np.repeat(column[:: group_size(problem)], devices // GROUPS)
        for column in (problem.fleet.joules_per_bit, problem.fleet.joules_per_step)
    ]
    return replace(problem, fleet=Fleet(joules_per_bit=costs[0], joules_per_step=costs[1]))


def with_heterogeneity(problem: ControlProblem, level: float) -> ControlProblem:
    """The problem, given with equal radios, with bandwidths spread to level L around the same mean."""
    require_number("level", level, low=0.0, high=33.0)
    widths = np.repeat(1.0 + level * SPREAD, group_size(problem))
    fleet = problem.fleet
    return replace(
        problem, fleet=Fleet(joules_per_bit=fleet.joules_per_bit / widths, joules_per_step=fleet.joules_per_step)
    )


def with_costs(problem: ControlProblem, *, bit: float | None = None, step: float | None = None) -> ControlProblem:
    """The problem with the costs of all devices scaled to the given means, in J/bit and J/step."""
    fleet = problem.fleet
    return replace(
        problem,
        fleet=Fleet(
            joules_per_bit=_scaled(fleet.joules_per_bit, bit), joules_per_step=_scaled(fleet.joules_per_step, step)
        ),
    )


def average_energy_by_devices(
    problem: ControlProblem, devices: Iterable[int] = DEVICES, readings: Sequence[Reading] = READINGS
) -> Table:
    """Table of Fig. 1(a): joules per device against the number of devices."""
    return Table.from_rows(
        {"devices": count} | row for count in devices for row in energy_rows(with_devices(problem, count), readings)
    )


def average_energy_by_heterogeneity(
    problem: ControlProblem, levels: Iterable[int] = LEVELS, readings: Sequence[Reading] = READINGS
) -> Table:
    """Table of Fig. 1(b): joules per device against the level of heterogeneity, from a fleet of equal radios."""
    return Table.from_rows(
        {"level": level} | row for level in levels for row in energy_rows(with_heterogeneity(problem, level), readings)
    )


def choices_by_radio_cost(
    problem: ControlProblem, joules_per_bit: Iterable[float] = BIT_COSTS, solvers: Iterable[str] = tuple(CHOOSERS)
) -> Table:
    """Table of Fig. 1(c): sparsity of each group and H against the mean energy of a bit."""
    return Table.from_rows(
        choice_row(with_costs(problem, bit=bit), solver) for bit in joules_per_bit for solver in solvers
    )


def choices_by_step_cost(
    problem: ControlProblem, joules_per_step: Iterable[float] = STEP_COSTS, solvers: Iterable[str] = tuple(CHOOSERS)
) -> Table:
    """Table of Fig. 1(d): sparsity of each group and H against the mean energy of a step."""
    return Table.from_rows(
        choice_row(with_costs(problem, step=step), solver) for step in joules_per_step for solver in solvers
    )


def mirrored_choices(problem: ControlProblem, by_radio_cost: Table) -> Table:
    """Choices at the points of Fig. 1(c) with a cheaper step instead of a more expensive bit."""
    bit, step = float(problem.fleet.joules_per_bit.mean()), float(problem.fleet.joules_per_step.mean())
    return Table.from_rows(
        choice_row(with_costs(problem, step=step * bit / float(row["joules_per_bit"])), str(row["solver"]))
        for row in by_radio_cost.rows()
    )


def cheapest_devices(problem: ControlProblem, low: int = 4, high: int = 1_000_000) -> int:
    """The multiple of 4 at which FlexibleSpar's joules per device are least; beyond it they rise."""
    left, right = low // GROUPS, high // GROUPS
    while right - left > 2:
        first = min(max(round((left * left * right) ** (1 / 3)), left + 1), right - 2)
        second = min(max(round((left * right * right) ** (1 / 3)), first + 1), right - 1)
        if _average_joules(problem, first) <= _average_joules(problem, second):
            right = second
        else:
            left = first
    return GROUPS * min(range(left, right + 1), key=lambda quarter: _average_joules(problem, quarter))


def energy_rows(problem: ControlProblem, readings: Sequence[Reading]) -> list[dict[str, Cell]]:
    """One row per reading, with the costs of its plan."""
    return [
        {"scheme": reading.scheme, "variant": reading.variant, **_plan_cells(problem, reading.plan(problem))}
        for reading in readings
    ]


def choice_row(problem: ControlProblem, solver: str) -> dict[str, Cell]:
    """One row with FlexibleSpar's choices for each group."""
    plan = CHOOSERS[solver](problem)
    fleet = problem.fleet
    groups = plan.sparsity[:: group_size(problem)]
    return {
        "joules_per_bit": float(fleet.joules_per_bit.mean()),
        "joules_per_step": float(fleet.joules_per_step.mean()),
        "solver": solver,
        **{f"sparsity_{number}": float(sparsity) for number, sparsity in enumerate(groups, start=1)},
        **_plan_cells(problem, plan),
    }


def _plan_cells(problem: ControlProblem, plan: Plan) -> dict[str, Cell]:
    without_drift = float(problem.rounds.rounds(0.0, plan.local_steps, problem.devices))
    return {
        "average_joules": plan.energy_joules / problem.devices,
        "average_radio_joules": plan.radio_joules / problem.devices,
        "rounds": plan.rounds,
        "second_term_share": without_drift / plan.rounds,
        "local_steps": plan.local_steps,
        "least_sparsity": float(plan.sparsity.min()),
        "largest_sparsity": float(plan.sparsity.max()),
    }


def _scaled(costs: FloatArray, mean: float | None) -> FloatArray:
    return costs if mean is None else costs * (require_number("mean cost", mean, low=0.0, above=True) / costs.mean())


def _average_joules(problem: ControlProblem, quarter: int) -> float:
    return flexible(with_devices(problem, GROUPS * quarter)).energy_joules / (GROUPS * quarter)
