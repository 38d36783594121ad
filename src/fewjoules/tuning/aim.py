"""The target of a training as tuning sees it: how far a curve has come, and how far it has to go."""

import math
from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.tuning.pilot import PilotResult

_TAIL = 0.4  # of the steps, from where on a curve is straight enough for a line
_MOST_LOG_STEPS = 60.0  # keeps exp() finite
_MOST_LOG_PERPLEXITY = 700.0  # the same


@dataclass(frozen=True, slots=True)
class Aim:
    """A metric (accuracy, loss, perplexity or the user's own) and its target.

    ``upwards`` is the direction of a metric of the user's own; the others have one by nature.
    """

    metric: str
    target: float
    upwards: bool | None = None

    @property
    def rises(self) -> bool:
        """Whether more is better."""
        return self.metric == "accuracy" if self.upwards is None else self.upwards

    def reached(self, value: float) -> bool:
        """Whether a value is at the target or beyond."""
        return value >= self.target if self.rises else value <= self.target

    def of(self, loss: float, accuracy: float, own: float = math.nan) -> float:
        """Return the metric of a model; ``own`` is that of the user."""
        if self.upwards is not None:
            return own
        if self.metric == "accuracy":
            return accuracy
        return loss if self.metric == "loss" else math.exp(min(loss, _MOST_LOG_PERPLEXITY))

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

    def expected_steps(self, result: PilotResult, *, errors: float = 0.0) -> float:
        """Return the steps to the target: as measured, or by a line through the later part of the curve.

        The line is that of ln(accuracy / (1 - accuracy)), or of ln(loss), in ln(steps). A metric of the user's own is
        taken as an accuracy if it rises to a target between 0 and 1, as a loss if it falls to one above 0, else as it
        is. ``errors`` makes the line steeper by so many standard errors of its slope, or flatter if negative. A curve
        that has stopped getting better gives infinity.
        """
        reached = self.steps_to_target(result)
        if reached is not None:
            return reached
        tail = [
            (math.log(steps), self._straight(value))
            for steps, value in zip(result.steps, result.metrics, strict=True)
            if steps >= max(_TAIL * result.steps[-1], 1) and math.isfinite(value)
        ]
        if len(tail) < 2:
            return math.inf
        logs, values = np.array(tail).T
        slope, height = np.polyfit(logs - logs[-1], values, 1)
        target = self._straight(self.target)
        if errors:
            slope += errors * math.copysign(_slope_error(logs, values), target - values[-1])
        if slope * (target - values[-1]) <= 0.0:
            return math.inf
        return math.exp(min(logs[-1] + max((target - height) / slope, 0.0), _MOST_LOG_STEPS))

    def steps_at_first_pace(self, result: PilotResult, start: float) -> float:
        """Return the steps to the target if a pilot went on at its mean pace from the start to its best value.

        Training slows down, so this is the least that it may take. A pilot that is no better than untrained gives
        infinity.
        """
        best = self.best(result)
        first, last, target = (self._straight(value) for value in (start, best, self.target))
        part = (last - first) / (target - first) if math.isfinite(best) and target != first else 0.0
        return result.steps[result.metrics.index(best)] / part if part > 0.0 else math.inf

    def _straight(self, value: float) -> float:
        """Return the value on the scale on which curves are nearly straight in ln(steps)."""
        if self.upwards is not None and not (0.0 < self.target < 1.0 if self.upwards else self.target > 0.0):
            return value
        if self.rises:
            inside = min(max(value, 1e-6), 1.0 - 1e-6)
            return math.log(inside / (1.0 - inside))
        loss = math.log(max(value, 1.0)) if self.metric == "perplexity" and self.upwards is None else value
        return math.log(max(loss, 1e-12))


def _slope_error(logs: FloatArray, values: FloatArray) -> float:
    """Return the standard error of the slope of a line; infinite for two points."""
    if len(logs) < 3:
        return math.inf
    centred = logs - logs.mean()
    slope, height = np.polyfit(centred, values, 1)
    rest = values - height - slope * centred
    return float(np.sqrt(rest @ rest / (len(logs) - 2) / (centred @ centred)))
