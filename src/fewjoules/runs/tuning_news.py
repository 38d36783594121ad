"""What is told while a tuning goes on: the news of its tuner, and what it believes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from fewjoules.convergence.rounds import PowerLawRounds
from fewjoules.planner.plan import Plan
from fewjoules.tuning.naming import optimiser_name
from fewjoules.tuning.outcome import News
from fewjoules.tuning.pilot import PilotResult
from fewjoules.tuning.tuner import Tuner


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What is known after a pilot: the best optimiser so far, its step size, and how many steps it may take.

    ``allowed_client_steps`` and ``allowed_joules`` are the budget of all pilots, None where there is none of the kind.
    ``spread`` is the standard deviation of ln(steps), None before the law has been observed; ``law`` and ``plan`` are
    those of the current belief, None as long as there is none.
    """

    news: News
    allowed_client_steps: float | None
    allowed_joules: float | None
    optimiser: str
    learning_rate: float
    expected_steps: float
    spread: float | None = None
    plan: Plan | None = None
    law: PowerLawRounds | None = None


class Teller:
    """Adds to the news of a tuner what it believes."""

    def __init__(self, tuner: Tuner, tell: Callable[[Progress], None]) -> None:
        """Begin with a plan to make."""
        self._tuner, self._tell = tuner, tell
        self._planned: tuple[int, Plan] | None = None  # number of observations, and the plan after them

    def __call__(self, news: News) -> None:
        """Tell the news together with the belief."""
        search = self._tuner.search
        best = self._best()
        steps, spread, plan, law = search.aim.expected_steps(best), None, None, None
        if search.belief.known:
            plan, law = self._plan(), search.belief.law()
            steps, spread = search.belief.predicted_steps(search.choice(plan))
        told = Progress(
            news=news,
            allowed_client_steps=self._allowed_client_steps(news),
            allowed_joules=search.budget.joules,
            optimiser=optimiser_name(best.spec.options),
            learning_rate=best.spec.learning_rate,
            expected_steps=steps,
            spread=spread,
            plan=plan,
            law=law,
        )
        self._tell(told)

    def _best(self) -> PilotResult:
        """Return the winner's pilot; before, the first at the target, or the best of those that went furthest."""
        search = self._tuner.search
        if search.reference is not None:
            return search.reference.pilot
        alive = [one for one in search.pilots if one.alive] or search.pilots
        if any(one.reached for one in alive):
            return min(alive, key=lambda one: search.aim.steps_to_target(one) or math.inf)
        furthest = max(one.local_steps_taken for one in alive)
        return min((one for one in alive if one.local_steps_taken == furthest), key=PilotResult.final_loss)

    def _plan(self) -> Plan:
        search = self._tuner.search
        seen = len(search.belief.observations)
        if self._planned is None or self._planned[0] != seen:
            self._planned = (seen, search.plan())
        return self._planned[1]

    def _allowed_client_steps(self, news: News) -> float | None:
        """Return what the budget allows in all; by default a multiple of the steps that a training seems to take."""
        budget = self._tuner.budget
        if budget.joules is not None or budget.client_steps is not None:
            return budget.client_steps
        steps = news.expected_steps
        return None if steps is None else budget.trainings * steps * self._tuner.laboratory.clients
