"""The radio's tail: after each message it stays up for a while, and waking it again costs a promotion.

A round has a download, local steps and an upload. If the upload begins within the tail of the download, the radio is
still up: the first tail ends there, and only the upload's is paid in full. Otherwise the round pays two tails and two
promotions. Without a download it pays one of each. The wait for the next round is taken to be longer than the tail.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fewjoules.arrays import Flags, FloatArray, IntArray
from fewjoules.cores import CORES
from fewjoules.physics.fleet import Fleet
from fewjoules.physics.points import OperatingPoints

_CHUNK = 1 << 14  # devices whose costs stay in the second-level cache


def tail_joules(fleet: Fleet, devices: slice | np.ndarray, gap_seconds: FloatArray, download: bool) -> FloatArray:
    """Return the joules of tails and promotions of one round, with this gap between download and upload."""
    watts, seconds = fleet.tail_watts[devices], fleet.tail_seconds[devices]
    one = watts * seconds + fleet.promotion_joules[devices]
    if not download:
        return one
    return one + np.where(gap_seconds < seconds, watts * gap_seconds, one)


def outlasts(tail_seconds: FloatArray, step_seconds: FloatArray) -> FloatArray:
    """Return the number of local steps from which they outlast the tail; infinite where they take no time."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(tail_seconds > 0.0, tail_seconds / step_seconds, 0.0)


def planned_tail_joules(fleet: Fleet, step_seconds: FloatArray | None, local_steps: int, download: bool) -> FloatArray:
    """Return the joules of tails and promotions of each device in a round of H local steps, shape (devices,)."""
    one = fleet.tail_watts * fleet.tail_seconds + fleet.promotion_joules
    if not download or step_seconds is None:
        return one
    over: Flags = local_steps >= outlasts(fleet.tail_seconds, step_seconds)
    return one + np.where(over, one, fleet.tail_watts * (local_steps * step_seconds))


def cheapest_points(fleet: Fleet, points: OperatingPoints, local_steps: int, download: bool) -> IntArray:
    """Return the point of each device whose local steps and tails cost least in a round of H local steps."""
    joules = [
        local_steps * per_step + planned_tail_joules(fleet, seconds, local_steps, download)
        for per_step, seconds in zip(points.joules_per_step, points.seconds_per_step, strict=True)
    ]
    return np.argmin(joules, axis=0)


def total_least_joules(fleet: Fleet, points: OperatingPoints, local_steps: FloatArray, download: bool) -> FloatArray:
    """Return the joules of local steps and tails, each device at its cheapest point for H, summed for each H."""
    parts = [slice(i, i + _CHUNK) for i in range(0, len(fleet), _CHUNK)]

    def sums(part: slice) -> FloatArray:
        watts, seconds = fleet.tail_watts[part], fleet.tail_seconds[part]
        one = watts * seconds + fleet.promotion_joules[part]
        per_step, times = points.joules_per_step[:, part], points.seconds_per_step[:, part]
        limits = outlasts(seconds, times) if download else np.zeros_like(times)
        again = one if download else np.zeros_like(one)
        slopes = per_step + watts * times
        found = np.empty(local_steps.size)
        for i, steps in enumerate(local_steps):
            best = np.full(one.shape, np.inf)
            for slope, joules, limit in zip(slopes, per_step, limits, strict=True):
                np.minimum(best, np.where(steps >= limit, steps * joules + again, steps * slope), out=best)
            found[i] = np.sum(best + one)
        return found

    with ThreadPoolExecutor(CORES) as pool:
        return np.sum(list(pool.map(sums, parts)), axis=0)


def total_tail_joules(
    fleet: Fleet, step_seconds: FloatArray | None, local_steps: FloatArray, download: bool
) -> FloatArray:
    """Return the sum over all devices for each H, shape of ``local_steps``: one sort instead of a pass for each H."""
    one = fleet.tail_watts * fleet.tail_seconds + fleet.promotion_joules
    total = np.full(local_steps.shape, float(np.sum(one)))
    if not download or step_seconds is None or not np.any(one > 0.0):
        return total
    limits = outlasts(fleet.tail_seconds, step_seconds)
    order = np.argsort(limits, kind="stable")
    over = np.searchsorted(limits[order], local_steps, side="right")
    again = np.concatenate([[0.0], np.cumsum(one[order])])
    cut_short = np.concatenate([[0.0], np.cumsum((fleet.tail_watts * step_seconds)[order][::-1])])[::-1]
    return total + again[over] + local_steps * cut_short[over]
