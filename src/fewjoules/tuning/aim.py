"""The target of a training as tuning sees it: how far a curve has come, and how far it has to go."""

import math
from dataclasses import dataclass

import numpy as np

from fewjoules.tuning.pilot import PilotResult


@dataclass(frozen=True, slots=True)
class Aim:
    """A metric (accuracy, loss or perplexity), its target, and whether it rises towards it."""

    metric: str
    target: float
    rises: bool

    def reached(self, value: float) -> bool:
        """Whether a value is at the target or beyond."""
        return value >= self.target if self.rises else value <= self.target

    def of(self, loss: float, accuracy: float) -> float:
        """Return the metric of a model."""
        if self.metric == "accuracy":
            return accuracy
        return loss if self.metric == "loss" else math.exp(min(loss, 700.0))

    def progress(self, value: float, start: float) -> float:
        """Return which part of the way from ``start`` to the target a value has come."""
        way = self.target - start
        return (value - start) / way if way else 1.0

    def best(self, result: PilotResult) -> float:
        """Return the best value of a pilot; the worst possible for one without any."""
        known = [value for value in result.metrics if math.isfinite(value)]
        worst = -math.inf if self.rises else math.inf
        return (max if self.rises else min)(known, default=worst)

    def steps_to_target(self, result: PilotResult) -> float | None:
        """Return the steps after which a pilot reached the target."""
        for steps, value in zip(result.steps, result.metrics, strict=True):
            if self.reached(value):
                return float(steps)
        return None

    def expected_steps(self, result: PilotResult) -> float:
        """Return the steps to the target: as measured, or by two rough extrapolations of the curve's second half.

        One takes the metric as a line in ln(steps), which training often exceeds, the other the distance to a perfect
        metric as a power of the steps; the answer is their geometric mean. A curve that has stopped gives infinity.
        """
        reached = self.steps_to_target(result)
        if reached is not None:
            return reached
        half = [
            (math.log(steps), value)
            for steps, value in zip(result.steps, result.metrics, strict=True)
            if steps >= max(0.4 * result.steps[-1], 1) and math.isfinite(value)
        ]
        if len(half) < 2:
            return math.inf
        logs, values = np.array(half).T
        perfect = 1.0 if self.metric == "accuracy" else 0.0 if self.metric == "loss" else 1.0
        return math.sqrt(
            _line(logs, values, self.target)
            * _line(logs, np.log(np.abs(perfect - values) + 1e-9), math.log(abs(perfect - self.target) + 1e-9))
        )


def _line(logs: np.ndarray, values: np.ndarray, target: float) -> float:
    """Return the steps at which a line through the values in ln(steps) meets the target, the last ones at the least."""
    slope, height = np.polyfit(logs, values, 1)
    if slope * (target - values[-1]) <= 0.0:
        return math.inf
    return math.exp(min(max((target - height) / slope, logs[-1]), 60.0))
