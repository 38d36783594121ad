"""Tuning from start to end: race optimisers at the plan of the prior law, learn the winner's law, plan again.

    1. Plan with the prior of the law and the costs of the fleet: H, sparsities, kinds of values (the server's too
       where receiving has a price), and the batch where a sample has one (first_plan.py).
    2. Race optimisers and step sizes there by successive halving (heats.py, race.py).
    3. Train the best arms to the target (finals.py). The winner's steps tell the scale of the law (reference.py).
    4. Try other batches where they promise fewer joules (batches.py).
    5. While a pilot at another plan is expected to save more than it costs (design.py), run it until it has the loss
       that the winner had after a third of its steps, and update the belief (learning.py, belief.py).
    6. Plan with the law of the belief. Another H must save more than the pilots cost that look for its step size
       (replanning.py).

Nothing here trains: a ``Laboratory`` does, or a synthetic law in tests.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fewjoules.planner.plan import Plan
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.batches import choose_batch, rate_factor
from fewjoules.tuning.belief import Belief
from fewjoules.tuning.books import Budget
from fewjoules.tuning.finals import observed_reference, train_to_target
from fewjoules.tuning.first_plan import first_plan
from fewjoules.tuning.heats import find_plain_rate, kept_for_training, race_optimisers
from fewjoules.tuning.learning import learn_law, regret_of
from fewjoules.tuning.outcome import Contender, News, Tuned
from fewjoules.tuning.pilot import Laboratory
from fewjoules.tuning.planning import Planning
from fewjoules.tuning.race import SHORTEST_HEAT, Arm, Race
from fewjoules.tuning.reach import require_room, require_untrained
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
        start_metric = self.aim.of(*self.laboratory.start())
        require_untrained(self.aim, start_metric)
        self.search = search = self._begun()
        race = _race_of(search, start_metric)
        require_room(search, race)
        plain_rate = find_plain_rate(search, race, self.rate * self._batch_factor())
        race_optimisers(search, race)
        winner = train_to_target(search, race)
        reference = observed_reference(search, winner, race.results[winner], start_metric)
        search.raced = search.reference = reference
        self.planning.learn_sizes(reference.telling(search.pilots))
        if self.aim.steps_to_target(reference.pilot) is not None:
            reference = search.reference = choose_batch(search, reference, self.trainings)
            learn_law(search, reference, self.trainings)
            self.planning.learn_sizes(reference.telling(search.pilots))
        plan, arm = replan(search, reference, self.trainings)
        return self._outcome(race, plain_rate, plan, arm)

    def _begun(self) -> Search:
        """Return the search at its start: the prior belief, and the plan that it prefers."""
        rng = np.random.default_rng(self.seed)
        belief = Belief.prior(rng)
        first = first_plan(self.planning, belief.law())
        return Search(
            laboratory=self.laboratory,
            planning=first.planning,
            aim=self.aim,
            budget=self.budget,
            tell=self.tell,
            rng=rng,
            belief=belief,
            message=first.message,
            race_plan=first.plan,
            prior_steps=None if self.prior_steps is None else first.delay * self.prior_steps,
        )

    def _batch_factor(self) -> float:
        """Return by how much step sizes of the race differ from those of the usual batch."""
        usual, batch = self.planning.batch_size, self.search.race_planning.batch_size
        return 1.0 if usual is None or batch is None else rate_factor(batch, usual)

    def _outcome(self, race: Race, plain_rate: float, plan: Plan, arm: Arm) -> Tuned:
        search = self.search
        options, _ = search.planning.messages()[search.message]
        return Tuned(
            optimiser=arm.optimiser.name,
            optimiser_options=search.optimiser_options(arm, plan.local_steps),
            message=search.message,
            message_options=dict(options),
            plan=plan,
            belief=search.belief,
            pilots=tuple(search.pilots),
            contenders=_contenders(race),
            plain_rate=plain_rate / self._batch_factor(),
            client_steps=search.books.client_steps,
            joules=search.books.joules,
            expected_regret_joules=regret_of(search, plan),
            notes=tuple(search.notes),
        )


def _race_of(search: Search, start_metric: float) -> Race:
    """Return a race at the first plan, with heats of whole rounds."""
    local_steps = search.race_plan.local_steps
    heat = local_steps * math.ceil(SHORTEST_HEAT / local_steps)
    return Race(
        lambda arms, steps: search.run([search.spec(arm, steps, to_target=True) for arm in arms]),
        search.aim,
        start_metric,
        search.laboratory.start()[0],
        heat=heat,
        left=lambda: search.steps_within_budget(search.race_plan),
        kept=kept_for_training(search, heat),
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
