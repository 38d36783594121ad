"""Deadlines and batteries, as lower bounds on each device's sparsity.

A sparser message is shorter and cheaper, so for a given H a deadline sets a least sparsity of each device. A battery
allows battery / K joules per round. For a given mean power s, which fixes K, that also sets a least sparsity, which
rises with s.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.errors import InfeasiblePlanError
from fewjoules.planner.frontier import invert_message_bits
from fewjoules.planner.problem import ControlProblem

MAX_CLIMB = 5000
_SLACK = 1e-12  # relative; keeps rounding from breaking a constraint that the exact sparsity meets


@dataclass(frozen=True, slots=True)
class Box:
    """Least sparsity of each device, infinite where no sparsity meets the constraint, and the largest allowed."""

    lower: FloatArray
    upper: float

    @property
    def feasible(self) -> bool:
        """Whether every device has an allowed sparsity."""
        return bool(np.all(self.lower <= self.upper))

    @property
    def worst(self) -> int:
        """Number of the device with the largest least sparsity."""
        return int(np.argmax(self.lower))


def deadline_box(problem: ControlProblem, local_steps: int) -> Box:
    """Return the least sparsity with which each device ends a round of H local steps in time."""
    return Box(least_sparsity_in_time(problem, local_steps, problem.fleet.seconds_per_step), problem.sparsity[1])


def least_sparsity_in_time(problem: ControlProblem, local_steps: int, step_seconds: FloatArray | None) -> FloatArray:
    """Return the same for other seconds of a step; the server sends as little as it may."""
    if problem.round_seconds is None:
        return np.full(problem.devices, problem.sparsity[0])
    fleet = problem.fleet
    quickest = None if problem.server is None else problem.server.sparsity[1]
    problem.require_device_seconds(local_steps, problem.sparsity[1], quickest)
    rest = problem.round_costs.fixed_seconds(0, quickest)
    assert rest is not None
    assert fleet.seconds_per_bit is not None
    assert step_seconds is not None
    left = problem.round_seconds - local_steps * step_seconds - rest
    return _least_sparsity(problem, left, fleet.seconds_per_bit, fleet.codec_seconds_per_entry)


def battery_box(problem: ControlProblem, local_steps: int, mean_power: float, box: Box) -> Box:
    """Raise ``box`` until no device spends more than its battery in K(mean_power, H) rounds."""
    batteries = problem.fleet.battery_joules
    if batteries is None:
        return box
    power = mean_power + problem.server_power()
    rounds = float(problem.rounds.rounds(power, local_steps, problem.devices))
    left = batteries / rounds - problem.round_costs.joules_beside_sending(local_steps)
    least = _least_sparsity(problem, left, problem.fleet.joules_per_bit, problem.fleet.codec_joules_per_entry)
    return Box(np.maximum(box.lower, least), box.upper)


def least_consistent_power(
    raise_box: Callable[[float], Box], power_of: Callable[[Box], float], start: float
) -> tuple[float, bool]:
    """Return the least s >= start with power_of(raise_box(s)) <= s, and True; or a bound below every such s, and False.

    Both maps are monotone, so the iteration rises to the least fixed point, in floating point too, and never passes a
    consistent s. If it needs more than ``MAX_CLIMB`` steps, the two curves almost touch; that counts as no solution.
    """
    s = start
    for _ in range(MAX_CLIMB):
        box = raise_box(s)
        if not box.feasible:
            break
        power = power_of(box)
        if power <= s:
            return s, True
        s = power
    return s, False


def require_deadline(problem: ControlProblem) -> list[int]:
    """Return the H that can meet the deadline; if there are none, raise an error that names the slowest device."""
    feasible = [h for h in problem.step_choices.tolist() if deadline_box(problem, h).feasible]
    if not feasible:
        steps, high = int(problem.step_choices[0]), problem.sparsity[1]
        quickest = None if problem.server is None else problem.server.sparsity[1]
        seconds = problem.require_device_seconds(steps, high, quickest)
        device = int(np.argmax(seconds))
        raise InfeasiblePlanError(
            f"round_seconds = {problem.round_seconds:g} cannot be met: device {problem.fleet.device_name(device)} "
            f"needs at least {seconds[device]:.6g} seconds per round (H = {steps}, sparsity {high:g})"
        )
    return feasible


def battery_shortage(
    problem: ControlProblem, local_steps: int, box: Box, mean_power: float
) -> tuple[float, int, float]:
    """Return the device that exceeds its battery most, the joules it needs at least, and their ratio to the battery.

    The result is (ratio, device, joules). The joules are for the fewest rounds that the deadline's box allows. If even
    they fit the battery, the device is the one that runs out of sparsity at ``mean_power``, where the search for a
    consistent plan stopped.
    """
    batteries = problem.fleet.battery_joules
    assert batteries is not None
    need = problem.predicted_rounds(local_steps, box.lower) * problem.round_joules(local_steps, box.upper)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(need > 0.0, need / batteries, 0.0)
    device = int(np.argmax(ratio))
    if ratio[device] <= 1.0:
        device = battery_box(problem, local_steps, mean_power, box).worst
    return float(ratio[device]), device, float(need[device])


def _least_sparsity(
    problem: ControlProblem, budget: FloatArray, cost_per_bit: FloatArray, cost_per_entry: FloatArray | None
) -> FloatArray:
    """Return the least sparsity in the limits whose bits and entries cost at most ``budget``; infinite if none does."""
    low, high = problem.sparsity
    d, per_entry = float(problem.parameters), np.zeros_like(budget) if cost_per_entry is None else cost_per_entry
    law = problem.message_size
    most, least = (cost_per_bit * float(law.sparsity_bits(d, x)) + per_entry * d / x for x in (low, high))
    delta = np.where(budget >= most, low, np.inf)
    between = (budget >= least) & (budget < most)
    by_bits, by_entries = between & (cost_per_bit > 0.0), between & (cost_per_bit == 0.0)
    if by_bits.any():
        scaled = cost_per_bit[by_bits] * law.scale
        share = budget[by_bits] / (scaled * d) * (1.0 - _SLACK)
        kappa = law.entry_bits + per_entry[by_bits] / scaled
        delta[by_bits] = np.clip(np.exp(invert_message_bits(share, kappa, low)), low, high)
    delta[by_entries] = np.clip(per_entry[by_entries] * d / (budget[by_entries] * (1.0 - _SLACK)), low, high)
    return delta
