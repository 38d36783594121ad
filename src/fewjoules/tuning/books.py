"""What tuning would have cost on the devices: every pilot's client-steps and joules, each step once."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fewjoules.errors import InvalidInputError, shown
from fewjoules.tuning.pilot import PilotResult, PilotSpec

USUAL_TRAININGS = 3.0  # tuning may take so many times the client-steps of the training that it plans
NEGLIGIBLE = 1e-3  # part of a training's joules: to save less is to save nothing
_BUDGET = re.compile(r"\s*([0-9.e+-]+)\s*((?:client-)?steps?|J|joules?)?\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Budget:
    """What pilots may cost: client-steps, or joules, or else a number of trainings like the planned one."""

    client_steps: float | None = None
    joules: float | None = None
    trainings: float = USUAL_TRAININGS

    @classmethod
    def parse(cls, text: Any) -> "Budget":
        """Read "5000", "5000 steps" or "80 J", in upper or lower case."""
        if text is None:
            return cls()
        match = _BUDGET.fullmatch(text) if isinstance(text, str) else None
        try:
            number = float(match[1]) if match else math.nan
        except ValueError:
            number = math.nan
        if match is None or not 0.0 < number < math.inf:
            raise InvalidInputError(
                f"the budget must be client-steps or joules above 0, such as '50000 steps' or '80 J', got {shown(text)}"
            )
        return cls(joules=number) if (match[2] or "").lower().startswith("j") else cls(client_steps=number)

    @property
    def is_fixed(self) -> bool:
        """Whether the budget is a number of client-steps or joules."""
        return self.client_steps is not None or self.joules is not None

    @property
    def allows_a_training(self) -> bool:
        """Whether a pilot to the target is always within the budget."""
        return not self.is_fixed and self.trainings >= 2.0

    def steps_left(self, books: "Books", training_steps: float, joules_per_step: float) -> float:
        """Return how many more local steps of all clients may be taken, if a training takes ``training_steps``."""
        if self.joules is not None:
            return (self.joules - books.joules) / joules_per_step if joules_per_step > 0.0 else math.inf
        allowed = self.trainings * training_steps * books.clients if self.client_steps is None else self.client_steps
        return (allowed - books.client_steps) / books.clients


@dataclass
class Books:
    """Sums over all pilots; a training that is followed further costs only the rounds that it adds."""

    clients: int
    round_joules: Callable[[PilotSpec], float]
    client_steps: int = 0
    joules: float = 0.0
    rounds_of: dict[str, int] = field(default_factory=dict)

    def add(self, result: PilotResult) -> None:
        """Book the rounds that a pilot adds to its training."""
        key = result.spec.training_key
        booked = self.rounds_of.get(key, 0)
        new = max(0, result.rounds - booked)
        self.rounds_of[key] = booked + new
        self.client_steps += new * result.spec.local_steps * self.clients
        self.joules += new * self.round_joules(result.spec)


def saving(before_joules: float, after_joules: float) -> float:
    """Return the joules that a training saves; 0 where the two are so near that the difference may be rounding."""
    saved = before_joules - after_joules
    return saved if abs(saved) > NEGLIGIBLE * before_joules else 0.0


def trainings_to_pay(joules: float, saved_joules: float) -> int | None:
    """Return after how many trainings that save so much each the joules are paid; None if never."""
    return max(1, math.ceil(joules / saved_joules)) if saved_joules > 0.0 else None
