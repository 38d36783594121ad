"""Tuning from start to end: race optimisers at the plan of the prior law, learn the winner's law, plan again.

    1. Plan with the prior of the law and the costs of the fleet: H, sparsities and the kind of values.
    2. Race optimisers and step sizes there by successive halving (race.py); train the winner to the target.
    3. While a pilot at another plan is expected to save more than it costs (design.py), run it until it has the loss
       that the winner had after a third of its steps, and update the belief (belief.py).
    4. Plan with the law of the belief. Where the plan has moved, look for its step size again.

Nothing here trains: a ``Laboratory`` does, or a synthetic law in tests.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from fewjoules.convergence.rounds import RoundsModel
from fewjoules.errors import TargetOutOfReachError
from fewjoules.planner.plan import Plan
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.belief import Belief, Choice, Observation
from fewjoules.tuning.books import Books, Budget
from fewjoules.tuning.design import Decision, best_decision, most_useful_pilot
from fewjoules.tuning.pilot import OptionValue, PilotResult, PilotSpec
from fewjoules.tuning.race import SHORTEST_HEAT, Arm, Race

RUN_DEVIATION = 0.12  # of ln(steps to the target) between seeds of one training
LEVEL_DEVIATION = 0.2  # the same where steps to an earlier level stand for it
GUESS_DEVIATION = 0.4  # the same where the curve was extrapolated
LEVEL_PART = 1.0 / 3.0
MOVED = 1.5  # a plan whose H or mean sparsity differs by more than this factor has its step size looked for again
FIRST_GUESS = 15.0  # shortest heats in a training, as long as nothing better is known
LONG_ENOUGH = 6.0  # heats of a training, in which a heat of the race may be twice as long
LONGER_GUESS = 6.0  # first heats in a training where the shortest heat showed nothing
FINALISTS = 3  # optimisers of which the best arm may be trained to the target
CLOSE = 1.25  # a later finalist is trained if its curve promises less than so many times the steps of the best
RESERVE = 0.35  # of a training, that later finalists leave for pilots of the law
OVERDRAFT = 0.5  # of a training, by which the budget may be exceeded so that a pilot gets to the target
EXTENSIONS = 2  # times that a pilot to the target is followed, the second time further
PATIENCE = 3.0  # a pilot may take so many times the steps that were expected
RATE_PENALTY = 0.05  # a step size twice as large must be better by this much
DECISIONS = 24
MOST_LAW_PILOTS = 12
TELLING = 5  # evaluations that a curve needs before it is called hopeless
HOPELESS = 200.0  # a target that seems so many times further away than the longest pilot is out of reach


class Laboratory(Protocol):
    """Trains pilots on data of which a part is kept aside."""

    @property
    def clients(self) -> int:
        """Number of clients."""

    def start(self) -> tuple[float, float]:
        """Return loss and accuracy of the untrained model on the data kept aside."""

    def run(self, specs: Sequence[PilotSpec]) -> list[PilotResult]:
        """Train pilots, several at once where that is faster, and return their results in order."""


class Planning(Protocol):
    """Plans with a rounds law for one way to send values, and knows what a round costs."""

    def plan(self, law: RoundsModel, message: str, local_steps: int | None = None) -> Plan:
        """Return the certified plan, with any H or with this one."""

    def round_joules(self, message: str, local_steps: int, sparsity: Sequence[float], downlink: float | None) -> float:
        """Return the joules of all devices in a round."""

    def messages(self) -> Mapping[str, tuple[Mapping[str, OptionValue], float]]:
        """Return the ways to send values: options, and the factor on rounds that is expected of each."""

    def learn_sizes(self, results: Sequence[PilotResult]) -> None:
        """Fit the sizes of messages to those of pilots."""

    @property
    def downlink_weight(self) -> float:
        """Weight of the server's sparsity in the law."""


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
    """An arm of the race at its end: the best loss at each step size."""

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


@dataclass
class Tuner:
    """One tuning in progress."""

    laboratory: Laboratory
    planning: Planning
    aim: Aim
    rate: float
    budget: Budget = field(default_factory=Budget)
    trainings: int = 10
    prior_steps: float | None = None  # to the target, by a law that the scenario has
    seed: int = 0
    tell: Callable[[News], None] = lambda _news: None

    def __post_init__(self) -> None:
        """Start the books and the belief."""
        self.rng = np.random.default_rng(self.seed)
        self.belief = Belief.prior(self.rng)
        self.books = Books(self.laboratory.clients, self._round_joules)
        self.pilots: list[PilotResult] = []
        self.notes: list[str] = []
        self._doing = "starting"
        self._expected: float | None = None
        self.first_heat = SHORTEST_HEAT

    def tune(self) -> Tuned:
        """Find the recipe."""
        loss, accuracy = self.laboratory.start()
        self.message, reference = self._first_plan()
        self.reference = reference
        heat = reference.local_steps * math.ceil(SHORTEST_HEAT / reference.local_steps)
        race = Race(self._follow, self.aim, self.aim.of(loss, accuracy), heat=heat)
        self._race(race)
        winner, pilot = self._to_target(race)
        self._observe_reference(pilot)
        self.winner, self.reference_pilot = winner, pilot
        self.planning.learn_sizes([one for one in self.pilots if one.alive])
        if self.aim.steps_to_target(pilot) is not None:
            self._learn_law()
        plan, winner = self._final_plan()
        return self._outcome(race, plan, winner)

    def _first_plan(self) -> tuple[str, Plan]:
        """Return the kind of message and the plan that the prior of the law prefers."""
        law = self.belief.law()
        plans = {name: self.planning.plan(law, name) for name in self.planning.messages()}
        factors = {name: factor for name, (_, factor) in self.planning.messages().items()}
        best = min(plans, key=lambda name: factors[name] * plans[name].energy_joules)
        return best, plans[best]

    def _race(self, race: Race) -> None:
        """Race until few arms are left; every heat takes a part of the budget that is left."""
        self._doing = "finding the step size of plain SGD"
        race.run_plain(self.rate, self._affordable(race, race.heat, 0.25, 2, 4))
        if not race.ranked():
            raise TargetOutOfReachError(
                f"every pilot blew up, with step sizes down to {min(arm.rate for arm in race.results):.3g}; "
                "check the data and the loss, or give a smaller learning_rate"
            )
        self.plain_rate, self.first_heat = race.ranked()[0].rate, race.heat
        self._doing = "racing optimisers"
        longer = LONG_ENOUGH * race.heat <= self._expected_steps(race)
        race.run_others(self._affordable(race, (1 + longer) * race.heat, 0.5, 2, 4), longer=longer)
        race.try_rates(self._affordable(race, race.heat, 0.35, 1, 3))
        for optimisers in (3, 2):
            self._require_reachable(race)
            rest = self._expected_steps(race) - 2.0 * race.heat
            if race.is_over or rest < 0.0 or self._steps_left(race) < optimisers * race.heat + rest:
                break
            race.go_on(optimisers)

    def _affordable(self, race: Race, steps: int, part: float, least: int, most: int) -> int:
        """Return how many pilots of so many further steps fit into a part of the budget that is left."""
        left = self._steps_left(race)
        return most if math.isinf(left) else max(least, min(most, int(part * left / steps)))

    def _steps_left(self, race: Race) -> float:
        return self.budget.steps_left(self.books, self._expected_steps(race), self._joules_per_step())

    def _expected_steps(self, race: Race) -> float:
        """Return the steps to the target of the best arm; early curves are trusted within limits only."""
        known = [] if self.prior_steps is None else [self.prior_steps]
        best = [self.aim.expected_steps(race.results[arm]) for arm in race.ranked()[:2]]
        usual = FIRST_GUESS * SHORTEST_HEAT
        least = 0.0 if known else 0.5 * usual  # early curves promise too much
        first = LONGER_GUESS * self.first_heat if race.doubled else usual
        self._expected = max(min([*best, *known, max(first, usual)]), least)
        return self._expected

    def _joules_per_step(self) -> float:
        plan = self.reference
        joules = self.planning.round_joules(
            self.message, plan.local_steps, plan.sparsity.tolist(), plan.downlink_sparsity
        )
        return joules / plan.local_steps

    def _require_reachable(self, race: Race) -> None:
        """Say early that a target seems out of reach: the best curves would need far more steps than were taken."""
        arms = race.ranked()[:3]
        expected = min(self.aim.expected_steps(race.results[arm], errors=2.0) for arm in arms)
        told = min(len(race.results[arm].steps) for arm in arms) >= TELLING
        if told and expected > HOPELESS * race.heat:
            raise self._out_of_reach([race.results[arm] for arm in arms], expected)

    def _out_of_reach(self, results: Sequence[PilotResult], expected: float) -> TargetOutOfReachError:
        choose = max if self.aim.rises else min
        best = choose((self.aim.best(one) for one in results), default=math.nan)
        steps = max((one.local_steps_taken for one in results), default=0)
        further = "it has stopped getting better" if expected > 1e12 else f"at this pace it takes {expected:,.0f} steps"
        return TargetOutOfReachError(
            f"the target {self.aim.metric} {self.aim.target:g} seems out of reach: the best of {len(self.pilots)} "
            f"pilots has {best:.4g} on the data kept aside after {steps} local steps, and {further}; choose another "
            "target, model or learning_rate"
        )

    def _to_target(self, race: Race) -> tuple[Arm, PilotResult]:
        """Train the best arms to the target; return the first that gets there, and its pilot."""
        self._doing = "training the best optimisers to the target"
        best: tuple[Arm, PilotResult] | None = None
        arms = race.contenders()[:FINALISTS]
        for arm in arms:
            expected = self.aim.expected_steps(race.results[arm])
            limit = PATIENCE * max(self._expected_steps(race), race.heat)
            if best is not None:
                limit = self.aim.expected_steps(best[1])
                if expected > CLOSE * limit:
                    continue
            rest = min(expected, limit) - race.results[arm].local_steps_taken
            spare = OVERDRAFT * expected if best is None else -RESERVE * limit
            affordable = rest <= max(self._steps_left(race), 0.0) + spare
            if not affordable and not (best is None and self.budget.allows_a_training):
                best = best or (arm, race.results[arm])
                break
            result = self._followed_to_target(arm, limit, extended=best is None)
            race.results[arm] = result
            if self.aim.steps_to_target(result) is not None:
                if best is None or self.aim.expected_steps(result) < self.aim.expected_steps(best[1]):
                    best = arm, result
            elif not result.alive:
                self.notes.append(f"{arm.optimiser.name} with step size {arm.rate:g} blew up on its way to the target.")
        if best is None:
            raise self._out_of_reach([race.results[arm] for arm in arms], math.inf)
        if not best[1].reached:
            self.notes.append("The budget ended before a pilot reached the target, so the rounds are extrapolated.")
        return best

    def _followed_to_target(self, arm: Arm, limit: float, *, extended: bool) -> PilotResult:
        """Train an arm for up to ``limit`` steps, and ``extended`` while its curve promises the target not far off."""
        for _ in range(EXTENSIONS if extended else 1):
            (result,) = self._run([replace(self._spec(arm, math.ceil(limit)), to_target=True)])
            expected = self.aim.expected_steps(result)
            if result.reached or not result.alive or expected > HOPELESS * limit:
                break
            limit = min(1.5 * expected, PATIENCE * limit)
        return result

    def _observe_reference(self, pilot: PilotResult) -> None:
        steps = self.aim.steps_to_target(pilot)
        deviation = RUN_DEVIATION if steps is not None else GUESS_DEVIATION
        self.reference_steps = self.aim.expected_steps(pilot) if steps is None else steps
        if not math.isfinite(self.reference_steps):
            raise self._out_of_reach([pilot], math.inf)
        self._expected = self.reference_steps
        self.belief = self.belief.after(Observation(self._choice(self.reference), self.reference_steps, deviation))

    def _learn_law(self) -> None:
        """Run pilots at other plans while they are expected to save more than they cost."""
        self._doing = "learning the law of the best optimiser"
        for _ in range(MOST_LAW_PILOTS):
            plans, decisions = self._decisions()
            if len(decisions) < 2:
                return
            worth = most_useful_pilot(self.belief, decisions, LEVEL_DEVIATION, self.rng)
            plan, decision = plans[worth.decision], decisions[worth.decision]
            steps = LEVEL_PART * self.belief.predicted_steps(decision.choice)[0]
            price = steps / plan.local_steps * decision.round_joules
            best, _ = best_decision(self.belief, decisions)
            planned = self.belief.predicted_steps(decisions[best].choice)[0]
            left = self.budget.steps_left(self.books, planned, decision.round_joules / plan.local_steps)
            if worth.saves_joules * self.trainings <= price or steps > left:
                return
            self._observe_level(plan, self.winner, math.ceil(PATIENCE * steps))

    def _observe_level(self, plan: Plan, arm: Arm, limit: int) -> PilotResult | None:
        """Train a plan until it has the loss of the reference after a third of its steps, and update the belief."""
        level = self.reference_pilot.loss_after(max(LEVEL_PART * self.reference_steps, self.reference_pilot.steps[0]))
        rate = self._rate_at(plan, arm)
        for _ in range(2):
            spec = replace(self._spec(Arm(arm.optimiser, rate), limit, plan), level=level)
            (result,) = self._run([spec])
            taken = result.steps_to_loss(level)
            if result.alive or taken is not None:
                break
            rate /= 2.0
        base = self.reference_pilot.steps_to_loss(level)
        assert base is not None
        ratio = (limit if taken is None else taken) / base
        deviation = LEVEL_DEVIATION if taken is not None else 2.0 * LEVEL_DEVIATION
        self.belief = self.belief.after(Observation(self._choice(plan), ratio * self.reference_steps, deviation))
        return result if taken is not None else None

    def _decisions(self) -> tuple[list[Plan], list[Decision]]:
        """Return the plans that are best under particles of the belief, and under its mean."""
        laws = [self.belief.law(), *map(self.belief.law_of, self.belief.sampled(DECISIONS, self.rng))]
        found: dict[tuple[int, float], Plan] = {}
        for law in laws:
            plan = self.planning.plan(law, self.message)
            found.setdefault((plan.local_steps, round(2.0 * math.log(float(np.mean(plan.sparsity))))), plan)
        plans = list(found.values())
        return plans, [Decision(self._choice(plan), self._round_joules_of(plan)) for plan in plans]

    def _final_plan(self) -> tuple[Plan, Arm]:
        """Return the plan of the belief, and the arm with the step size for it."""
        plan = self.planning.plan(self.belief.law(), self.message)
        moved = max(
            _ratio(plan.local_steps, self.reference.local_steps),
            _ratio(float(np.mean(plan.sparsity)), float(np.mean(self.reference.sparsity))) ** 0.5,
        )
        if moved <= MOVED:
            return plan, self.winner
        self._doing = "looking for the step size of the plan"
        scaled = self._rate_at(plan, self.winner)
        level = self.reference_pilot.loss_after(max(LEVEL_PART * self.reference_steps, self.reference_pilot.steps[0]))
        expected = self.belief.predicted_steps(self._choice(plan))[0]
        steps = math.ceil(PATIENCE * LEVEL_PART * expected)
        left = self.budget.steps_left(self.books, expected, self._round_joules_of(plan) / plan.local_steps)
        arms = [Arm(self.winner.optimiser, factor * scaled) for factor in (1.0, 2.0, 0.5)]
        affordable = max(1, min(3, int(left / max(LEVEL_PART * expected, 1.0))))
        specs = [replace(self._spec(arm, steps, plan), level=level) for arm in arms[:affordable]]
        results = self._run(specs)
        taken = [math.inf if not one.alive else one.steps_to_loss(level) or math.inf for one in results]
        penalised = [
            steps * (1.0 + RATE_PENALTY * math.log2(arm.rate / scaled)) for steps, arm in zip(taken, arms, strict=False)
        ]
        best = int(np.argmin(penalised))
        base = self.reference_pilot.steps_to_loss(level)
        if not math.isfinite(taken[best]) or base is None:
            self.notes.append("No step size was good at the replanned H and sparsity; the plan of the race is kept.")
            return self._kept_plan(), self.winner
        steps_seen = taken[best] / base * self.reference_steps
        self.belief = self.belief.after(Observation(self._choice(plan), steps_seen, LEVEL_DEVIATION))
        again = self.planning.plan(self.belief.law(), self.message)
        kept = self._kept_plan()
        if kept.energy_joules <= again.energy_joules:
            return kept, self.winner
        return again, arms[best]

    def _rate_at(self, plan: Plan, arm: Arm) -> float:
        """Return the step size of an arm of the race for another H."""
        return arm.rate * (plan.local_steps / self.reference.local_steps) ** arm.optimiser.rate_power

    def _kept_plan(self) -> Plan:
        """Return the plan of the belief with the H of the race."""
        return self.planning.plan(self.belief.law(), self.message, self.reference.local_steps)

    def _outcome(self, race: Race, plan: Plan, winner: Arm) -> Tuned:
        _, decisions = self._decisions()
        plain = [arm for arm in race.results if arm.optimiser.name == "SGD" and math.isclose(arm.rate, self.rate)]
        plain_steps = self.aim.expected_steps(race.results[plain[0]]) if plain else math.inf
        contenders = tuple(
            Contender(
                name=arm.optimiser.name,
                learning_rate=arm.rate,
                steps=result.local_steps_taken,
                loss=result.final_loss(),
                metric=self.aim.best(result),
                expected_steps=self.aim.expected_steps(result),
            )
            for arm, result in sorted(race.results.items(), key=lambda pair: pair[1].final_loss())
        )
        options, _ = self.planning.messages()[self.message]
        return Tuned(
            optimiser=winner.optimiser.name,
            optimiser_options=winner.optimiser.options_for(plan.local_steps) | {"learning_rate": winner.rate},
            message=self.message,
            message_options=dict(options),
            plan=plan,
            belief=self.belief,
            pilots=tuple(self.pilots),
            contenders=contenders,
            plain_rate=self.plain_rate,
            client_steps=self.books.client_steps,
            joules=self.books.joules,
            plain_joules=plain_steps * self._joules_per_step() if math.isfinite(plain_steps) else None,
            expected_regret_joules=best_decision(self.belief, decisions)[1],
            notes=tuple(self.notes),
        )

    def _follow(self, arms: Sequence[Arm], steps: int) -> list[PilotResult]:
        return self._run([replace(self._spec(arm, steps), to_target=True) for arm in arms])

    def _spec(self, arm: Arm, steps: int, plan: Plan | None = None) -> PilotSpec:
        chosen = self.reference if plan is None else plan
        options, _ = self.planning.messages()[self.message]
        return PilotSpec(
            options=arm.optimiser.options_for(chosen.local_steps) | dict(options) | {"learning_rate": arm.rate},
            local_steps=chosen.local_steps,
            sparsity=tuple(chosen.sparsity.tolist()),
            downlink_sparsity=chosen.downlink_sparsity,
            steps=chosen.local_steps * math.ceil(steps / chosen.local_steps),
        )

    def _run(self, specs: Sequence[PilotSpec]) -> list[PilotResult]:
        results = self.laboratory.run(specs)
        for result in results:
            self.books.add(result)
            self.pilots.append(result)
            self.tell(
                News(
                    doing=self._doing,
                    pilots=len(self.pilots),
                    client_steps=self.books.client_steps,
                    joules=self.books.joules,
                    expected_steps=self._expected,
                    best=None,
                    result=result,
                )
            )
        return results

    def _round_joules(self, spec: PilotSpec) -> float:
        return self.planning.round_joules(self.message, spec.local_steps, spec.sparsity, spec.downlink_sparsity)

    def _round_joules_of(self, plan: Plan) -> float:
        return self.planning.round_joules(
            self.message, plan.local_steps, plan.sparsity.tolist(), plan.downlink_sparsity
        )

    def _choice(self, plan: Plan) -> Choice:
        values, counts = np.unique(np.round(plan.sparsity, 6), return_counts=True)
        server = plan.downlink_sparsity
        return Choice(
            local_steps=plan.local_steps,
            sparsity=tuple(values.tolist()),
            shares=tuple((counts / counts.sum()).tolist()),
            downlink_sparsity=1.0 if server is None else server,
            downlink_weight=0.0 if server is None else self.planning.downlink_weight,
        )


def _ratio(one: float, other: float) -> float:
    return max(one / other, other / one)
