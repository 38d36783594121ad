"""What is trained in one results folder: the plan of a scheme, or a preset as its paper states it."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.engine.algorithm.options import MAX_ROUNDS, TrainingOptions
from fewjoules.engine.algorithm.presets import preset_options
from fewjoules.errors import InvalidInputError
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.choosing_points import cheapest_points_of
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.runs.task import ScenarioTask, options_for

# A preset replaces all of these, so that nothing of the scenario is mixed into the method of a paper.
METHOD_OPTIONS = (
    "preset",
    "inner",
    "momentum",
    "momentum_state",
    "adam_beta2",
    "adam_epsilon",
    "outer",
    "outer_momentum",
    "outer_rate",
    "outer_beta2",
    "outer_epsilon",
    "averaging",
    "error_feedback",
    "residual_decay",
    "compressor",
    "values",
    "levels",
    "downlink_sparsity",
    "downlink_values",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """A name, H and the sparsities, how options are made for a task, and the plan, if there is one.

    ``fleet`` returns the fleet with each device at the operating point that the entry trains at.
    """

    name: str
    local_steps: int
    sparsity: FloatArray
    options: Callable[[ScenarioTask], TrainingOptions]
    fleet: Callable[[Fleet], Fleet]
    plan: Plan | None = None

    def with_rate(self, learning_rate: float) -> "Entry":
        """Return the entry with a step size of its own."""
        return replace(self, options=lambda task: replace(self.options(task), learning_rate=learning_rate))


def planned_entry(plan: Plan) -> Entry:
    """Return the entry that trains a plan, named after its scheme."""
    return Entry(
        name=plan.scheme,
        local_steps=plan.local_steps,
        sparsity=plan.sparsity,
        options=lambda task: options_for(task, plan),
        fleet=plan.fleet_at_points,
        plan=plan,
    )


def preset_entry(name: str, problem: ControlProblem, plans: Sequence[Plan]) -> Entry:
    """Return the entry that trains a preset with the constants of its paper; H and sparsity are 1 where it has none.

    Without training.rounds it may take as many local steps as the longest of ``plans``.
    """
    method = preset_options(name)
    local_steps, sparsity = int(method.pop("local_steps", 1)), float(method.pop("sparsity", 1.0))
    everywhere = np.full(problem.devices, sparsity)
    points = cheapest_points_of(problem, local_steps)

    def options(task: ScenarioTask) -> TrainingOptions:
        training = task.training
        given = training.options(task.scenario.files)
        kept = {key: value for key, value in given.items() if key not in METHOD_OPTIONS}
        rounds = training.rounds or min(MAX_ROUNDS, math.ceil(_most_steps(task, plans) / local_steps))
        return TrainingOptions.of(
            local_steps=local_steps, sparsity=everywhere, rounds=rounds, **kept | method | {"preset": name}
        )

    return Entry(
        name=name,
        local_steps=local_steps,
        sparsity=everywhere,
        options=options,
        fleet=lambda fleet: fleet if points is None else fleet.at_points(points),
    )


def _most_steps(task: ScenarioTask, plans: Sequence[Plan]) -> int:
    if not plans:
        raise InvalidInputError(
            "training.rounds is missing: presets take as many local steps as the longest plan, and no plan is feasible"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a plan that may not be trained here
        return max(options.rounds * options.local_steps for options in (options_for(task, plan) for plan in plans))
