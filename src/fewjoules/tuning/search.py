"""The state that the stages of a tuning share, and the one place where they run pilots."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fewjoules.planner.plan import Plan
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.belief import Belief, Choice, Observation
from fewjoules.tuning.books import Books, Budget
from fewjoules.tuning.outcome import News
from fewjoules.tuning.pilot import Laboratory, OptionValue, PilotResult, PilotSpec
from fewjoules.tuning.planning import Planning, choice_of
from fewjoules.tuning.race import Arm
from fewjoules.tuning.reference import Reference

PATIENCE = 3.0  # a pilot may take so many times the steps that were expected


@dataclass(kw_only=True)
class Search:
    """A tuning in progress: what it works with, what its pilots have shown and cost, and what it believes."""

    laboratory: Laboratory
    planning: Planning
    aim: Aim
    budget: Budget
    tell: Callable[[News], None]
    rng: np.random.Generator
    belief: Belief
    message: str  # kind of messages of all pilots
    race_plan: Plan  # H and sparsities of the race
    prior_steps: float | None = None  # to the target, by a law that the scenario has
    expected_steps: float | None = None  # to the target, by what the pilots have shown so far
    raced: Reference | None = None  # the winner of the race; None until it has been trained to the target
    reference: Reference | None = None  # the same with the batch that was chosen
    doing: str = "starting"
    pilots: list[PilotResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    books: Books = field(init=False)
    race_planning: Planning = field(init=False)  # with the batch of the race

    def __post_init__(self) -> None:
        """Start the books."""
        self.race_planning = self.planning
        self.books = Books(self.laboratory.clients, self._joules_of_pilot_round)

    def run(self, specs: Sequence[PilotSpec]) -> list[PilotResult]:
        """Train pilots, book those that were not trained before and tell of each."""
        results = self.laboratory.run(specs)
        known = {pilot.spec.key for pilot in self.pilots}
        for result in results:
            if result.spec.key not in known:
                self.books.add(result)
                self.pilots.append(result)
                self.tell(self._news(result))
        return results

    def spec(
        self,
        arm: Arm,
        steps: int,
        plan: Plan | None = None,
        *,
        to_target: bool = False,
        level: float | None = None,
        batch: int | None = None,
        start: int = 0,
    ) -> PilotSpec:
        """Return a pilot of an arm over whole rounds, at the plan of the race or another one, or with another batch."""
        chosen = self.race_plan if plan is None else plan
        message, _ = self.planning.messages()[self.message]
        return PilotSpec(
            options={**self.optimiser_options(arm, chosen.local_steps, batch), **message},
            local_steps=chosen.local_steps,
            sparsity=tuple(chosen.sparsity.tolist()),
            downlink_sparsity=chosen.downlink_sparsity,
            steps=chosen.local_steps * math.ceil(steps / chosen.local_steps),
            to_target=to_target,
            level=level,
            start=start,
        )

    def optimiser_options(self, arm: Arm, local_steps: int, batch: int | None = None) -> dict[str, OptionValue]:
        """Return the options of an arm with its step size, and with the batch where there is one to choose."""
        size = self.planning.batch_size if batch is None else batch
        chosen = {} if size is None else {"batch_size": size}
        return arm.optimiser.options_for(local_steps) | chosen | {"learning_rate": arm.rate}

    def plan(self, local_steps: int | None = None) -> Plan:
        """Return the plan of the law that is believed, with any H or with this one."""
        return self.planning.plan(self.belief.law(), self.message, local_steps)

    def choice(self, plan: Plan) -> Choice:
        """Return H and the sparsities of a plan as the belief takes them."""
        return choice_of(plan, self.planning.downlink_weight)

    def predicted_steps(self, plan: Plan) -> float:
        """Return the steps to the target that the belief predicts."""
        return self.belief.predicted_steps(self.choice(plan))[0]

    def observe(self, plan: Plan, steps: float, deviation: float) -> None:
        """Update the belief by the steps that a plan took, whose logarithm has this standard deviation."""
        self.belief = self.belief.after(Observation(self.choice(plan), steps, deviation))

    def round_joules(self, plan: Plan) -> float:
        """Return the joules of all devices in a round of a plan."""
        return self.planning.round_joules(
            self.message, plan.local_steps, plan.sparsity.tolist(), plan.downlink_sparsity
        )

    def steps_left(self, training_steps: float, plan: Plan) -> float:
        """Return how many more local steps at a plan the budget allows, if a training takes ``training_steps``."""
        return self.budget.steps_left(self.books, training_steps, self.round_joules(plan) / plan.local_steps)

    def steps_within_budget(self, plan: Plan) -> float:
        """Return how many more local steps at a plan a budget in steps or joules allows; infinite without one."""
        return max(self.steps_left(0.0, plan), 0.0) if self.budget.is_fixed else math.inf

    def pilots_within_budget(self, steps: float, plan: Plan) -> float:
        """Return how many more pilots of so many steps a budget in steps or joules allows; infinite without one."""
        return self.steps_within_budget(plan) / (plan.local_steps * math.ceil(steps / plan.local_steps))

    def capped(self, steps: float, plan: Plan, *, taken: int = 0, pilots: int = 1) -> int:
        """Return the steps of each of some pilots in whole rounds, or as many as a fixed budget allows.

        ``taken`` are booked already.
        """
        wanted, left = plan.local_steps * math.ceil(steps / plan.local_steps), self.steps_within_budget(plan) / pilots
        if wanted - taken <= left:
            return wanted
        return taken + plan.local_steps * int(left / plan.local_steps)

    def _news(self, result: PilotResult) -> News:
        return News(
            doing=self.doing,
            pilots=len(self.pilots),
            client_steps=self.books.client_steps,
            joules=self.books.joules,
            expected_steps=self.expected_steps,
            result=result,
        )

    def _joules_of_pilot_round(self, spec: PilotSpec) -> float:
        batch = spec.options.get("batch_size")
        planning = self.planning.at_batch(batch) if isinstance(batch, int) else self.planning
        return planning.round_joules(self.message, spec.local_steps, spec.sparsity, spec.downlink_sparsity)
