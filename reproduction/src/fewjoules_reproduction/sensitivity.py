"""Sensitivity of Fig. 1 to the parameters that the paper does not give."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fewjoules.convergence.bound import FORMS
from fewjoules.convergence.rounds import BoundRounds, PaperRounds
from fewjoules.errors import InvalidInputError
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.schemes import flexible
from fewjoules_reproduction.readings import READINGS, Reading
from fewjoules_reproduction.sweeps import energy_rows, with_costs, with_devices
from fewjoules_reproduction.table import Cell, Table

FACTORS = tuple(10.0**power for power in range(-3, 4))
LARGEST_SPARSITIES = (100.0, 1_000.0, 10_000.0)
LARGEST_STEPS = (10, 50, 200)
LAST_DEVICES = (56, 60)


def sensitivity(
    problem: ControlProblem, factors: Sequence[float] = FACTORS, readings: Sequence[Reading] = READINGS
) -> Table:
    """Energy of each reading divided by FlexibleSpar's at the base point, with one parameter varied at a time.

    ``falls`` is 1 if the reading's joules per device still fall from 56 to 60 devices.
    """
    rows: list[dict[str, Cell]] = []
    for parameter, setting, changed in _changes(problem, factors):
        least = flexible(changed).energy_joules / changed.devices
        before, after = (energy_rows(with_devices(changed, count), readings) for count in LAST_DEVICES)
        for row, earlier, later in zip(energy_rows(changed, readings), before, after, strict=True):
            rows.append(
                {"parameter": parameter, "setting": setting}
                | row
                | {
                    "ratio": float(row["average_joules"]) / least,
                    "falls": int(later["average_joules"] < earlier["average_joules"]),  # type: ignore[operator]
                }
            )
    return Table.from_rows(rows)


def bound_like(rounds: PaperRounds, devices: int) -> BoundRounds:
    """Corollary 1 in its exact form, with constants that make its two terms those of ``rounds`` at ``devices``.

    Only two combinations of the constants matter: 32 b L (G J / sigma)^2 / eps = alpha and
    144 L (sigma J / eps)^2 / b = beta sqrt(M); all others are set to 1.
    """
    epsilon = 144.0 / 32.0 * rounds.alpha / (rounds.beta * np.sqrt(devices))
    return BoundRounds(
        smoothness=rounds.alpha * epsilon / 32.0,
        sigma=1.0,
        gradient_bound=1.0,
        initial_gap=1.0,
        batch=1.0,
        epsilon=epsilon,
    )


def _changes(problem: ControlProblem, factors: Sequence[float]) -> Iterator[tuple[str, str, ControlProblem]]:
    rounds = problem.rounds
    if not isinstance(rounds, PaperRounds):
        raise InvalidInputError(f"rounds must be of kind paper to vary alpha, got {type(rounds).__name__}")
    step, low = float(problem.fleet.joules_per_step.mean()), problem.sparsity[0]
    for factor in factors:
        yield "alpha", f"{factor:g}", replace(problem, rounds=replace(rounds, alpha=factor * rounds.alpha))
    for factor in factors:
        yield "step to bit cost", f"{factor:g}", with_costs(problem, step=factor * step)
    for sparsity in LARGEST_SPARSITIES:
        yield "largest sparsity", f"{sparsity:g}", problem.with_choices(sparsity=(low, sparsity))
    for steps in LARGEST_STEPS:
        yield "largest H", f"{steps}", problem.with_choices(local_steps=range(1, steps + 1))
    bound = bound_like(rounds, problem.devices)
    yield "rounds", "paper", problem
    for form in FORMS:
        yield "rounds", form, replace(problem, rounds=replace(bound, form=form))
