"""Tuning from start to end: race optimisers at the plan of the prior law, learn the winner's law, plan again.

    1. Plan with the prior of the law and the costs of the fleet: H, sparsities and the kind of values.
    2. Race optimisers and step sizes there by successive halving (heats.py, race.py).
    3. Train the best arms to the target (finals.py). The winner's steps tell the scale of the law (reference.py).
    4. While a pilot at another plan is expected to save more than it costs (design.py), run it until it has the loss
       that the winner had after a third of its steps, and update the belief (learning.py, belief.py).
    5. Plan with the law of the belief. Where the plan has moved, look for its step size again (replanning.py).

Nothing here trains: a ``Laboratory`` does, or a synthetic law in tests.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fewjoules.convergence.rounds import RoundsModel
from fewjoules.planner.plan import Plan
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.belief import Belief
from fewjoules.tuning.books import Budget
from fewjoules.tuning.design import best_decision
from fewjoules.tuning.finals import observed_reference, train_to_target
from fewjoules.tuning.heats import find_plain_rate, race_optimisers
from fewjoules.tuning.learning import decisions_of, learn_law
from fewjoules.tuning.outcome import Contender, News, Tuned
from fewjoules.tuning.pilot import Laboratory
from fewjoules.tuning.planning import Planning
from fewjoules.tuning.race import SHORTEST_HEAT, Arm, Race
from fewjoules.tuning.replanning import replan
from fewjoules.tuning.search import Search


@dataclass
class Tuner:
    """What a tuning is asked for; ``search`` is its state from the first plan on."""

    laboratory: Laboratory
    planning: Planning
    aim: Aim
    rate: float
    budget: Budget = field(default_factory=Budget)
    trainings: int = 10
    prior_steps: float | None = None  # to the target, by a law that the scenario has
    seed: int = 0
    tell: Callable[[News], None] = lambda _news: None
    search: Search = field(init=False, repr=False)

    def tune(self) -> Tuned:
        """Find the recipe."""
        loss, accuracy = self.laboratory.start()
        self.search = search = self._begun()
        race = _race_of(search, self.aim.of(loss, accuracy))
        plain_rate = find_plain_rate(search, race, self.rate)
        race_optimisers(search, race)
        winner = train_to_target(search, race)
        reference = search.reference = observed_reference(search, winner, race.results[winner])
        self.planning.learn_sizes([one for one in search.pilots if one.alive])
        if self.aim.steps_to_target(reference.pilot) is not None:
            learn_law(search, reference, self.trainings)
        plan, arm = replan(search, reference)
        return self._outcome(race, plain_rate, plan, arm)

    def _begun(self) -> Search:
        """Return the search at its start: the prior belief, and the plan that it prefers."""
        rng = np.random.default_rng(self.seed)
        belief = Belief.prior(rng)
        message, plan = _first_plan(self.planning, belief.law())
        return Search(
            laboratory=self.laboratory,
            planning=self.planning,
            aim=self.aim,
            budget=self.budget,
            tell=self.tell,
            rng=rng,
            belief=belief,
            message=message,
            race_plan=plan,
            prior_steps=self.prior_steps,
        )

    def _outcome(self, race: Race, plain_rate: float, plan: Plan, arm: Arm) -> Tuned:
        search = self.search
        _, decisions = decisions_of(search)
        options, _ = self.planning.messages()[search.message]
        return Tuned(
            optimiser=arm.optimiser.name,
            optimiser_options=arm.optimiser.options_for(plan.local_steps) | {"learning_rate": arm.rate},
            message=search.message,
            message_options=dict(options),
            plan=plan,
            belief=search.belief,
            pilots=tuple(search.pilots),
            contenders=_contenders(race),
            plain_rate=plain_rate,
            client_steps=search.books.client_steps,
            joules=search.books.joules,
            expected_regret_joules=best_decision(search.belief, decisions)[1],
            notes=tuple(search.notes),
        )


def _first_plan(planning: Planning, law: RoundsModel) -> tuple[str, Plan]:
    """Return the kind of messages and the plan that cost the fewest joules by a law."""
    delays = {name: delay for name, (_, delay) in planning.messages().items()}
    plans = {name: planning.plan(law, name) for name in delays}
    best = min(plans, key=lambda name: delays[name] * plans[name].energy_joules)
    return best, plans[best]


def _race_of(search: Search, start_metric: float) -> Race:
    """Return a race at the first plan, with heats of whole rounds."""
    local_steps = search.race_plan.local_steps
    return Race(
        lambda arms, steps: search.run([search.spec(arm, steps, to_target=True) for arm in arms]),
        search.aim,
        start_metric,
        heat=local_steps * math.ceil(SHORTEST_HEAT / local_steps),
    )


def _contenders(race: Race) -> tuple[Contender, ...]:
    """Return the arms of the race, the least loss first."""
    return tuple(
        Contender(
            name=arm.optimiser.name,
            learning_rate=arm.rate,
            steps=result.local_steps_taken,
            loss=result.final_loss(),
            metric=race.aim.best(result),
            expected_steps=race.aim.expected_steps(result),
        )
        for arm, result in sorted(race.results.items(), key=lambda pair: pair[1].final_loss())
    )
