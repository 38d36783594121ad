"""The batch size, where devices state what a sample costs.

A smaller batch makes a step cheaper, but takes more of them: S (1 + B / b), where B is the noise scale of the gradients
[MCCANDLISH18]. The prior of B is wide: about 0.4 of the usual batch, known within a factor of e. Tuning begins with
the batch that it prefers. Then pilots to the target try others while what they may save is expected to be worth their
price.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.tuning.belief import Belief
from fewjoules.tuning.finals import RUN_DEVIATION
from fewjoules.tuning.planning import Batches, Planning
from fewjoules.tuning.race import Arm
from fewjoules.tuning.reference import Reference
from fewjoules.tuning.search import Search

PRIOR_SCALE, PRIOR_DEVIATION = 0.4, 1.0  # of B / b at the usual batch, and of its logarithm
MOST_PILOTS = 3
FURTHEST = 4.0  # factor between the best batch so far and the next one that is tried
MARGIN = 1.5  # a pilot is followed for so many times the steps that are expected
UNREACHED = 1.3  # times the limit that a pilot is taken to need which did not reach the target
_GRID = np.linspace(-4.0, 4.0, 161)  # standard deviations


@dataclass(frozen=True)
class NoiseScale:
    """What is believed of B: a prior around the usual batch, and how the steps of other batches compare with ``at``."""

    usual: int
    at: int
    observed: tuple[tuple[int, float], ...] = ()

    @property
    def weights(self) -> FloatArray:
        """How much each value of B on the grid is believed."""
        logs = -0.5 * _GRID**2
        for other, ratio in self.observed:
            misfit = math.log(ratio) - np.log(self.delays(other))
            logs = logs - 0.5 * misfit**2 / (2.0 * RUN_DEVIATION**2)
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum())

    def delays(self, batch: int) -> FloatArray:
        """Return how many times the steps of the batch ``at`` another one takes under each value of B."""
        scales = PRIOR_SCALE * np.exp(PRIOR_DEVIATION * _GRID)
        return (1.0 + scales * self.usual / batch) / (1.0 + scales * self.usual / self.at)

    def delay(self, batch: int) -> float:
        """Return how many times the steps of the batch ``at`` another one is expected to take."""
        return float(self.weights @ self.delays(batch))

    def after(self, batch: int, ratio: float) -> "NoiseScale":
        """Return the belief after a pilot that took ``ratio`` times the steps of the batch ``at``."""
        return replace(self, observed=(*self.observed, (batch, ratio)))


def first_batches(batches: Batches | None) -> dict[int, float]:
    """Return the batches that pilots may begin with, and how many times the steps of the usual one each should take."""
    if batches is None:
        return {}
    scale = NoiseScale(batches.usual, at=batches.usual)
    return {size: scale.delay(size) for size in _near(batches, batches.usual)}


def rate_factor(batch: int, before: int) -> float:
    """Return by how much a step size changes with the batch: by its square root."""
    return math.sqrt(batch / before)


@dataclass(frozen=True)
class _Measured:
    """A batch whose steps to the target are known."""

    batch: int
    planning: Planning
    reference: Reference
    joules: float


def choose_batch(search: Search, reference: Reference, trainings: int) -> Reference:
    """Return the winner with the batch that costs the fewest joules to the target; the search plans with it."""
    batches, raced = search.planning.batches, search.planning.batch_size
    if batches is None or raced is None:
        return reference
    search.doing = "choosing the batch"
    best = first = _measured(search, raced, reference)
    scale, tried = NoiseScale(batches.usual, at=raced), {raced}
    for _ in range(MOST_PILOTS):
        near = [one for one in _near(batches, best.batch) if one not in tried]
        gains = {one: _gain(search, first, best, one, scale, trainings) for one in near}
        batch = max(gains, key=gains.__getitem__, default=raced)
        expected = first.reference.steps * scale.delay(batch)
        limit = _limit(search, best, batch, expected)
        if batch in tried or gains[batch] <= 0.0 or limit < expected:
            break
        found = _tried(search, best, batch, limit)
        tried.add(batch)
        scale = scale.after(batch, found.reference.steps / first.reference.steps)
        best = min(best, found, key=lambda one: one.joules)
    if best is not first:
        search.planning = best.planning
        search.belief = Belief(search.belief.theta)
        search.observe(reference.plan, best.reference.steps, RUN_DEVIATION)
        search.expected_steps = best.reference.steps
    return best.reference


def _near(batches: Batches, batch: int) -> list[int]:
    return [one for one in batches.sizes if 1.0 / FURTHEST <= one / batch <= FURTHEST]


def _measured(search: Search, batch: int, reference: Reference) -> _Measured:
    rounds = reference.steps / reference.plan.local_steps
    return _Measured(batch, search.planning.at_batch(batch), reference, rounds * _round_joules(search, batch))


def _round_joules(search: Search, batch: int) -> float:
    """Return the joules of a round at the plan of the race with another batch."""
    plan = search.race_plan
    planning = search.planning.at_batch(batch)
    return planning.round_joules(search.message, plan.local_steps, plan.sparsity.tolist(), plan.downlink_sparsity)


def _gain(search: Search, first: _Measured, best: _Measured, batch: int, scale: NoiseScale, trainings: int) -> float:
    """Return the joules that a pilot with another batch may save in all later trainings, less its own.

    It saves nothing under a noise scale that makes this batch dearer than the best one: then that one is kept.
    """
    joules = first.reference.steps * scale.delays(batch) * _step_joules(search, batch)
    return float(scale.weights @ (trainings * np.maximum(best.joules - joules, 0.0) - joules))


def _limit(search: Search, best: _Measured, batch: int, expected: float) -> int:
    """Return the steps after which a pilot is given up; 0 if the budget does not allow the expected ones."""
    left = search.budget.steps_left(search.books, best.reference.steps, _step_joules(search, batch))
    limit, local_steps = math.ceil(MARGIN * expected), search.race_plan.local_steps
    if expected > left:
        return 0
    return min(limit, local_steps * int(left / local_steps)) if search.budget.is_fixed else limit


def _step_joules(search: Search, batch: int) -> float:
    return _round_joules(search, batch) / search.race_plan.local_steps


def _tried(search: Search, best: _Measured, batch: int, limit: int) -> _Measured:
    """Train the winner with another batch to the target."""
    arm, plan = best.reference.winner, best.reference.plan
    other = Arm(arm.optimiser, arm.rate * rate_factor(batch, best.batch))
    (pilot,) = search.run([search.spec(other, limit, plan, to_target=True, batch=batch)])
    steps = search.aim.steps_to_target(pilot) if pilot.alive else None
    return _measured(search, batch, Reference(other, plan, pilot, UNREACHED * limit if steps is None else steps))
