"""What some work costs at several sizes, and the fit of these costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from fewjoules.metering.estimate import Estimate
from fewjoules.metering.fit import CostFit, fit_costs
from fewjoules.metering.protocol import Trials


@dataclass(frozen=True, slots=True)
class Point:
    """Trials of work of one size: ``terms`` are what its cost is fitted by, such as 1 and the batch size."""

    label: str
    terms: tuple[float, ...]
    trials: Trials


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured points and the fits to them; ``idle`` is the power that was measured at rest, in watts.

    ``joules`` has idle power taken off, ``gross_joules`` has it left in; both are None without a meter.
    """

    points: tuple[Point, ...]
    idle: Estimate | None
    seconds: CostFit
    joules: CostFit | None
    gross_joules: CostFit | None


def costs_of(points: Sequence[Point], idle: Estimate | None) -> Costs:
    """Fit the costs of all points; without idle power there are only seconds."""
    terms = [point.terms for point in points]
    seconds = fit_costs(terms, [point.trials.seconds_estimate() for point in points])
    if idle is None:
        return Costs(tuple(points), None, seconds, None, None)
    joules, gross = (
        fit_costs(terms, [point.trials.joules_estimate(taken_off) for point in points]) for taken_off in (idle, None)
    )
    return Costs(tuple(points), idle, seconds, joules, gross)
