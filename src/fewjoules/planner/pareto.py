"""The default solver: globally optimal, with a certificate.

For fixed H the optimum lies on the frontier f(s) of least radio joules against mean power s, which is convex and
depends on neither H nor K. Its tangents bound it from below. Along a tangent l(s) = f_i - mu_i (s - s_i) the product
K(s, H) (l(s) + fixed(H)) is concave, since K is concave and increasing and l falls: on any interval it is
least at an end. So the intersections of neighbouring tangents give a lower bound of (27) over all s and all H at
once, and a few dozen tangents, shared by all H, close the gap. docs/planner.md has the proof.
"""

from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.planner.frontier import Points, Senders
from fewjoules.planner.objective import Objective

TOLERANCE = 1e-9
_MAX_SWEEPS = 400
_MAX_SECANT_STEPS = 12
_BATCH_ENTRIES = 1 << 15  # devices times tangents evaluated at once


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best point found for each H, and the proved lower bound for each H; arrays of shape (choices,)."""

    energy_joules: FloatArray
    lower_bound_joules: FloatArray
    log_multiplier: FloatArray
    tangents: int

    @property
    def best(self) -> int:
        """Index of the best H."""
        return int(np.argmin(self.energy_joules))


def minimise(
    frontier: Senders, objective: Objective, *, tolerance: float = TOLERANCE, every_choice: bool = False
) -> Optimum:
    """Add tangents until the best H, or with ``every_choice`` each H, is certified to ``tolerance``."""
    low, high = frontier.log_multiplier_range
    points = frontier.points([high, low] if low < high else [high])
    batch = max(1, _BATCH_ENTRIES // frontier.devices)
    for _ in range(_MAX_SWEEPS):
        least = objective.energy(points.mean_power, points.radio_joules).min(axis=0)
        target = least if every_choice else least.min()
        split, floor = lower_bounds(points, objective)
        shortfall = 1.0 - floor / np.where(target > 0.0, target, 1.0)
        logs = _next_tangents(points, objective, split, shortfall, 0.5 * tolerance, batch)
        if logs.size == 0:
            break
        points = _merge(points, frontier.points(logs))
    if not every_choice:
        points = _polish(frontier, objective, points, int(least.argmin()))
    return _optimum(points, objective)


def _optimum(points: Points, objective: Objective) -> Optimum:
    energy = objective.energy(points.mean_power, points.radio_joules)
    _, floor = lower_bounds(points, objective)
    least = energy.min(axis=0)
    return Optimum(
        energy_joules=least,
        lower_bound_joules=np.minimum(least, floor.min(axis=0, initial=np.inf)),
        log_multiplier=points.log_multiplier[energy.argmin(axis=0)],
        tangents=points.mean_power.size,
    )


def lower_bounds(points: Points, objective: Objective) -> tuple[FloatArray, FloatArray]:
    """Return where neighbouring tangents meet, and a lower bound of (27) between their points, shape (gaps, choices).

    A tangent bounds the whole frontier, so rounding errors in the meeting point do not invalidate the bound.
    """
    s, f, mu = points.mean_power, points.radio_joules, points.multiplier
    drop = mu[:-1] - mu[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        split = s[:-1] + (f[:-1] - f[1:] - mu[1:] * (s[1:] - s[:-1])) / drop
    split = np.clip(np.where(np.isfinite(split), split, s[:-1]), s[:-1], s[1:])
    left = f[:-1] - mu[:-1] * (split - s[:-1])
    right = f[1:] + mu[1:] * (s[1:] - split)
    line = np.maximum(np.minimum(left, right), 0.0)
    return split, objective.energy(split, line)


def _next_tangents(
    points: Points, objective: Objective, split: FloatArray, shortfall: FloatArray, tolerance: float, batch: int
) -> FloatArray:
    """Return slopes of new tangents for the gaps with the loosest bounds, each aimed at its H's stationary point."""
    if split.size == 0:
        return np.empty(0)
    worst = shortfall.argmax(axis=1)
    depth = shortfall[np.arange(split.size), worst]
    logs = points.log_multiplier
    open_gaps = np.flatnonzero((depth > tolerance) & (logs[:-1] - logs[1:] > 1e-13 * np.abs(logs[:-1])))
    chosen = open_gaps[np.argsort(-depth[open_gaps], kind="stable")[:batch]]
    proposed = np.empty(chosen.size)
    for i, gap in enumerate(chosen):
        line = points.radio_joules[gap] - points.multiplier[gap] * (split[gap] - points.mean_power[gap])
        aim = objective.log_stationary_multiplier(float(split[gap]), max(float(line), 0.0), int(worst[gap]))
        margin = 0.02 * (logs[gap] - logs[gap + 1])
        proposed[i] = np.clip(aim, logs[gap + 1] + margin, logs[gap] - margin)
    return proposed


def _polish(frontier: Senders, objective: Objective, points: Points, choice: int) -> Points:
    """Find the stationary slope of one H up to rounding by the secant method, and add its iterates as points."""
    start = int(objective.energy(points.mean_power, points.radio_joules)[:, choice].argmin())
    low, high = points.log_multiplier[-1], points.log_multiplier[0]
    log, power, radio = (float(x[start]) for x in (points.log_multiplier, points.mean_power, points.radio_joules))
    before: tuple[float, float] | None = None
    for _ in range(_MAX_SECANT_STEPS):
        residual = objective.log_stationary_multiplier(power, radio, choice) - log
        if not low < log + residual < high or abs(residual) <= 4e-16 * max(1.0, abs(log)):
            break
        if before is None or before[1] == residual:
            step = residual
        else:
            step = -residual * (log - before[0]) / (residual - before[1])
        before = (log, residual)
        log = float(np.clip(log + step, low, high))
        point = frontier.points(log)
        power, radio = float(point.mean_power[0]), float(point.radio_joules[0])
        points = _merge(points, point)
    return points


def _merge(old: Points, new: Points) -> Points:
    """Merge points by increasing mean power, that is by falling multiplier."""
    logs = np.concatenate([old.log_multiplier, new.log_multiplier])
    order = np.argsort(-logs, kind="stable")
    power = np.concatenate([old.mean_power, new.mean_power])[order]
    radio = np.concatenate([old.radio_joules, new.radio_joules])[order]
    return Points(logs[order], np.maximum.accumulate(power), radio)
