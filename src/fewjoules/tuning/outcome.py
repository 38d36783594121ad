"""What tuning tells: news after each pilot, and the outcome at the end."""

from dataclasses import dataclass

from fewjoules.planner.plan import Plan
from fewjoules.tuning.belief import Belief
from fewjoules.tuning.pilot import OptionValue, PilotResult


@dataclass(frozen=True, kw_only=True)
class News:
    """What a progress display shows after each pilot."""

    doing: str
    pilots: int
    client_steps: int
    joules: float
    expected_steps: float | None
    best: str | None
    result: PilotResult | None = None


@dataclass(frozen=True, kw_only=True)
class Contender:
    """An arm of the race as its last pilot left it."""

    name: str
    learning_rate: float
    steps: int
    loss: float
    metric: float
    expected_steps: float


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The outcome: options of the optimiser and of messages, the plan, the belief, and everything that led to it."""

    optimiser: str
    optimiser_options: dict[str, OptionValue]
    message: str
    message_options: dict[str, OptionValue]
    plan: Plan
    belief: Belief
    pilots: tuple[PilotResult, ...]
    contenders: tuple[Contender, ...]
    plain_rate: float
    client_steps: int
    joules: float
    plain_joules: float | None
    expected_regret_joules: float
    notes: tuple[str, ...] = ()

    @property
    def saving_joules(self) -> float | None:
        """Joules that one training saves against the untuned one; None if that is unknown."""
        return None if self.plain_joules is None else self.plain_joules - self.plan.energy_joules

    @property
    def trainings_to_pay(self) -> float | None:
        """Number of trainings after which the pilots have paid; None if they never do."""
        saved = self.saving_joules
        return None if saved is None or saved <= 0.0 else self.joules / saved
