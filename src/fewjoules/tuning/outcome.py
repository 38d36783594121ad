"""What tuning reports: news after each pilot, and the outcome at the end."""

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
    """The outcome: options of the optimiser and of messages, the plan, the belief, and everything that led to it.

    ``plain_rate`` is the best step size of plain SGD with the batch that the training had before, and
    ``expected_regret_joules`` what knowing the law would save a training beside the plan.
    """

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
    expected_regret_joules: float
    notes: tuple[str, ...] = ()
