"""The winner of the race as the measure of other plans.

Its pilot to the target tells the scale of the law. A pilot at another plan need not go that far. It goes to a level,
the loss that the winner had after a third of its steps; if it takes twice the winner's steps to the level, it is
expected to take twice the winner's steps to the target.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fewjoules.planner.plan import Plan
from fewjoules.tuning.pilot import PilotResult
from fewjoules.tuning.race import Arm

LEVEL_PART = 1.0 / 3.0  # of the steps to the target, after which the winner's loss is the level
_LONG_ENOUGH = 0.5  # times the steps of the winner to the level, from which on messages are typical
LEVEL_DEVIATION = 0.2  # of ln(steps to the target) told by the steps to the level


@dataclass(frozen=True)
class Reference:
    """The winner of the race, the plan of the race, its pilot there and its steps to the target."""

    winner: Arm
    plan: Plan
    pilot: PilotResult
    steps: float

    @property
    def level(self) -> float:
        """The loss to which pilots at other plans go."""
        return self.pilot.loss_after(max(LEVEL_PART * self.steps, self.pilot.steps[0]))

    def steps_to_target(self, steps_to_level: float) -> float:
        """Return the steps to the target of a pilot that took so many to the level."""
        own = self.pilot.steps_to_loss(self.level)
        assert own is not None  # the level is a loss of this pilot
        return steps_to_level / own * self.steps

    def rate_at(self, plan: Plan) -> float:
        """Return the winner's step size scaled to the H of another plan."""
        return self.winner.rate * (plan.local_steps / self.plan.local_steps) ** self.winner.optimiser.rate_power

    def beside(self, pilots: Iterable[PilotResult]) -> list[PilotResult]:
        """Return the pilots that differ from the winner's in the optimiser and its step size alone."""
        return [one for one in pilots if _setting(one) == _setting(self.pilot)]

    def telling(self, pilots: Iterable[PilotResult]) -> list[PilotResult]:
        """Return the pilots whose messages are like those of a training: of the winner's optimiser, and long enough.

        Messages grow while a training goes on, by a quarter in their first hundred steps, and differ by the optimiser.
        """
        longest: dict[str, PilotResult] = {}
        for one in pilots:
            if one.alive and one.spec.options.items() >= self.winner.optimiser.options.items():
                other = longest.setdefault(one.spec.training_key, one)
                longest[one.spec.training_key] = max(one, other, key=lambda pilot: pilot.rounds)
        least = min(_LONG_ENOUGH * LEVEL_PART * self.steps, self.pilot.local_steps_taken)
        return [one for one in longest.values() if one.local_steps_taken >= least]

    def pace_of(self, other: PilotResult, start_loss: float) -> float | None:
        """Return how many times the winner's steps another pilot at the same plan took to its loss; None if unknown.

        A pilot whose loss fell below all of the winner's is judged by its steps to the winner's least. ``start_loss``
        is that of the untrained model.
        """
        level, first, taken = other.final_loss(), self.pilot.losses[0], float(other.local_steps_taken)
        if level < min(self.pilot.losses):
            level = min(self.pilot.losses)
            taken = other.steps_to_loss(level) or taken
        if not first <= level < start_loss:
            own = self.pilot.steps_to_loss(level)
        else:
            own = self.pilot.steps[0] * _fall(start_loss, level, first) / _fall(start_loss, first, first)
        return None if own is None or own <= 0.0 or level >= start_loss else taken / own


def _fall(start: float, loss: float, least: float) -> float:
    """Return how far a loss has fallen: in its logarithm, unless losses down to the ``least`` are not above 0."""
    return math.log(start / loss) if least > 0.0 else start - loss


def _setting(pilot: PilotResult) -> tuple[object, ...]:
    """Return what a pilot has in common with all others of a race: the plan, the batch and the start."""
    spec = pilot.spec
    return spec.local_steps, spec.sparsity, spec.downlink_sparsity, spec.options.get("batch_size"), spec.start
