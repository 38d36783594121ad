"""Objective (27) of [LI21] as a function of two numbers: mean power s and radio joules of a round."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.convergence.rounds import RoundsModel
from fewjoules.planner.problem import ControlProblem


@dataclass(frozen=True, slots=True)
class Objective:
    """E(s, radio, H) = K(s, H) (radio + fixed(H)); the last axis of every result runs over ``local_steps``.

    ``extra_power`` is the server's part of the mean power where its sparsity is given.
    """

    model: RoundsModel
    devices: int
    local_steps: IntArray
    fixed_joules: FloatArray
    extra_power: float = 0.0

    @classmethod
    def of(cls, problem: ControlProblem, local_steps: ArrayLike | None = None) -> "Objective":
        """Return the objective of a problem, for all its H or for the given ones."""
        steps = problem.step_choices if local_steps is None else np.atleast_1d(np.asarray(local_steps, dtype=np.int64))
        return cls._with_server(problem, steps, problem.round_costs.fixed_joules(steps))

    @classmethod
    def beside_steps(cls, problem: ControlProblem, local_steps: int) -> "Objective":
        """Return the objective of one H with the joules of local steps and tails left out of the fixed ones."""
        return cls._with_server(
            problem, np.array([local_steps]), np.array([problem.round_costs.fixed_message_joules()])
        )

    @classmethod
    def _with_server(cls, problem: ControlProblem, steps: IntArray, fixed: FloatArray) -> "Objective":
        if problem.server is None or problem.server.chosen:
            return cls(problem.rounds, problem.devices, steps, fixed)
        return cls(
            problem.rounds,
            problem.devices,
            steps,
            fixed + problem.round_costs.broadcast_joules(),
            problem.server_power(),
        )

    def rounds(self, mean_power: FloatArray) -> FloatArray:
        """Return K, shape (points, choices)."""
        return self.model.rounds(mean_power[:, None] + self.extra_power, self.local_steps, self.devices)

    def energy(self, mean_power: FloatArray, radio_joules: FloatArray) -> FloatArray:
        """Return the joules of the whole training, shape (points, choices)."""
        return self.rounds(mean_power) * (radio_joules[:, None] + self.fixed_joules)

    def log_stationary_multiplier(self, mean_power: float, radio_joules: float, choice: int) -> float:
        """Return ln of K' (radio + fixed) / K: the tangent's slope at which E is stationary along the frontier."""
        H = self.local_steps[choice]
        K = self.model.rounds(mean_power + self.extra_power, H, self.devices)
        slope = self.model.slope(mean_power + self.extra_power, H, self.devices)
        with np.errstate(divide="ignore"):
            return float(np.log(slope * (radio_joules + self.fixed_joules[choice]) / K))
