"""Objective (27) of [LI21] as a function of two numbers: mean power s and radio joules of a round."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.convergence.rounds import RoundsModel
from fewjoules.planner.problem import ControlProblem


@dataclass(frozen=True, slots=True)
class Objective:
    """E(s, radio, H) = K(s, H) (radio + fixed(H)); the last axis of every result runs over ``local_steps``."""

    model: RoundsModel
    devices: int
    local_steps: IntArray
    fixed_joules: FloatArray

    @classmethod
    def of(cls, problem: ControlProblem, local_steps: ArrayLike | None = None) -> "Objective":
        """Return the objective of a problem, for all its H or for the given ones."""
        steps = problem.step_choices if local_steps is None else np.atleast_1d(np.asarray(local_steps, dtype=np.int64))
        messages = float(np.sum(problem.fleet.message_joules))
        per_step = float(np.sum(problem.fleet.joules_per_step))
        return cls(problem.rounds, problem.devices, steps, messages + steps.astype(np.float64) * per_step)

    def rounds(self, mean_power: FloatArray) -> FloatArray:
        """Return K, shape (points, choices)."""
        return self.model.rounds(mean_power[:, None], self.local_steps, self.devices)

    def energy(self, mean_power: FloatArray, radio_joules: FloatArray) -> FloatArray:
        """Return the joules of the whole training, shape (points, choices)."""
        return self.rounds(mean_power) * (radio_joules[:, None] + self.fixed_joules)

    def log_stationary_multiplier(self, mean_power: float, radio_joules: float, choice: int) -> float:
        """Return ln of K' (radio + fixed) / K: the tangent's slope at which E is stationary along the frontier."""
        H = self.local_steps[choice]
        K = self.model.rounds(mean_power, H, self.devices)
        slope = self.model.slope(mean_power, H, self.devices)
        with np.errstate(divide="ignore"):
            return float(np.log(slope * (radio_joules + self.fixed_joules[choice]) / K))
