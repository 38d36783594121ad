"""Made-up worlds for the tuner: every optimiser has its own rounds law, its best step size and an edge beyond it.

The loss falls by a power law in the steps, from the same start for all. How fast is told by the true steps to the
target: those of the law at the H and the sparsities of a pilot, longer by how far the step size is from the best one,
by the rounding of values, and by the noise of the seed. Evaluations scatter too. ``python -m tests.tuning.worlds``
prints how near the tuner comes to the best recipe of many worlds.
"""

import argparse
import contextlib
import math
import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

import fewjoules as fj
from fewjoules.errors import TargetOutOfReachError
from fewjoules.physics.message_fit import MessageObservation, usual_bits
from fewjoules.planner.problem import ControlProblem
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.arms import PLAIN, optimisers
from fewjoules.tuning.belief import DEVIATIONS, LEAST_Q, PRIOR_A, PRIOR_C, PRIOR_Q
from fewjoules.tuning.books import USUAL_TRAININGS, Budget
from fewjoules.tuning.outcome import Tuned
from fewjoules.tuning.pilot import PilotResult, PilotSpec
from fewjoules.tuning.planning import MESSAGES, FleetPlanning
from fewjoules.tuning.tuner import Tuner

PARAMETERS = 50_000
START_LOSS = 2.3
BLOWS_UP_AFTER = 30  # local steps beyond the edge
THIN_STEPS, THIN_RATE = 0.3, -0.6  # powers of how much too sparse messages are, in steps and in the best step size
LATER_STARTS = range(100, 116)  # initial weights of the trainings after a tuning
LOCAL_STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 65, 80, 100)
FLEETS = {
    "cheap bits": {"joules_per_bit": 1e-9, "joules_per_step": 1e-2},
    "dear bits": {"joules_per_bit": 1e-6, "joules_per_step": 1e-2},
    "dear messages": {"joules_per_bit": 1e-8, "joules_per_step": 1e-2, "message_joules": 1.0},
}
THIN = "thin messages"  # dear bits, and a law that does not know what very sparse messages tolerate


def name_of(options):
    """The optimiser of these options, without its step size."""
    if options["inner"] == "adamw":
        return "Adam"
    if options["outer"] == "nesterov":
        return f"Nesterov {options['outer_momentum']}"
    return "momentum" if options["inner"] == "momentum" else "SGD"


def kind_of(options):
    """The kind of messages of these options."""
    return "ternary" if options["compressor"] == "ternary" else options["values"]


RACED = {name_of(one.options): one for sparsity in (1.0, 100.0) for one in (PLAIN, *optimisers(1, sparsity))}


@dataclass(frozen=True)
class TrueOptimiser:
    """The law of an optimiser, and its step sizes: the best at H = 1 and how it falls with H, the edge as a factor."""

    law: fj.PowerLawRounds
    best_rate: float
    rate_by_steps: float
    edge: float
    sharpness: float  # of the loss of pace beside the best step size

    def rate_at(self, local_steps, thinness=1.0):
        return self.best_rate * local_steps**self.rate_by_steps * thinness**THIN_RATE

    def delay(self, rate, local_steps, luck=1.0, thinness=1.0):
        """The factor on steps by the step size; infinite beyond the edge, which ``luck`` moves."""
        away = rate / self.rate_at(local_steps, thinness)
        return math.inf if away > luck * self.edge else math.exp(self.sharpness * math.log(away) ** 2)


@dataclass(frozen=True, kw_only=True)
class World:
    """What is true: optimisers, kinds of messages, the curve, the noise, and what the fleet pays."""

    problem: ControlProblem
    optimisers: dict[str, TrueOptimiser]
    kind_delays: dict[str, float]
    size_factors: dict[str, float]
    exponent: float  # of the power law of the loss
    aim: Aim
    target_loss: float
    floor: float = 0.0
    seed_deviation: float = 0.08
    evaluation_deviation: float = 0.02
    edge_deviation: float = 0.35  # of the logarithm of the edge, by the initial weights
    thin_from: float = math.inf  # mean sparsity above which messages are too thin for usual step sizes
    seed: int = 0

    @classmethod
    def random(cls, seed, fleet=None):
        """Draw a world; ``fleet`` is one of ``FLEETS``, by default the next one in turn."""
        rng = np.random.default_rng([seed, 1])
        costs = FLEETS[fleet or list(FLEETS)[seed % len(FLEETS)]]
        devices = fj.Fleet(**{name: cost * np.exp(0.7 * rng.standard_normal(4)) for name, cost in costs.items()})
        plain_rate = 0.1 * math.exp(0.7 * rng.standard_normal())
        tau = 10.0 ** rng.uniform(2.3, 3.5)
        rate_by_steps = -rng.uniform(0.0, 0.6)
        known = {name: _true_optimiser(one, plain_rate, rate_by_steps, tau, rng) for name, one in RACED.items()}
        target_loss = START_LOSS * rng.uniform(0.15, 0.5)
        rises = bool(rng.integers(2))
        return cls(
            problem=ControlProblem(
                fleet=devices,
                rounds=fj.PowerLawRounds(tau=1.0, c=0.02, a=0.5, q=0.5),
                parameters=PARAMETERS,
                sparsity=(1.0, 1000.0),
                local_steps=LOCAL_STEPS,
            ),
            optimisers=known,
            kind_delays={kind: 1.0 + (one.delay - 1.0) * rng.uniform(0.0, 2.0) for kind, one in MESSAGES.items()},
            size_factors={kind: math.exp(0.05 * rng.standard_normal()) for kind in MESSAGES},
            exponent=rng.uniform(0.3, 0.8),
            aim=Aim("accuracy", accuracy_of(target_loss)) if rises else Aim("loss", target_loss),
            target_loss=target_loss,
            seed=seed,
        )

    def out_of_reach(self, floor=1.2):
        """The same world, but the loss stays above so many times the target for ever."""
        return replace(self, floor=floor * self.target_loss)

    def with_thin_messages(self):
        """The same world, but very sparse messages tolerate only small steps, which the law does not know."""
        return replace(self, thin_from=np.random.default_rng([self.seed, 3]).uniform(100.0, 400.0))

    def thinness(self, sparsity):
        """How many times sparser messages are than usual step sizes tolerate; at least 1."""
        return max(1.0, float(np.mean(sparsity)) / self.thin_from)

    @cached_property
    def true_planning(self):
        """Plans with the true sizes of messages."""
        usual = FleetPlanning(self.problem).sizes
        sizes = {}
        for kind, factor in self.size_factors.items():
            fixed, scale = factor * usual[kind].fixed_bits, factor * usual[kind].scale
            sizes[kind] = replace(usual[kind], fixed_bits=fixed, scale=scale)
        return FleetPlanning(self.problem, sizes=sizes)

    def true_problem(self, name, kind, delay=1.0):
        """The control problem with the true law and sizes."""
        law = self.optimisers[name].law
        return self.true_planning.problem_of(replace(law, tau=law.tau * self.kind_delays[kind] * delay), kind)

    def best_joules(self, name=None):
        """The joules of the best recipe of all, or of the best one of an optimiser."""
        names = self.optimisers if name is None else (name,)
        return min(self._least_joules(self.true_problem(one, kind)) for one in names for kind in MESSAGES)

    def _least_joules(self, problem):
        """The joules of the best plan; where thin messages delay, the best one under one of many caps of sparsity."""
        low, high = problem.sparsity
        caps = [high] if math.isinf(self.thin_from) else np.geomspace(max(low, 50.0), high, 24)
        plans = [fj.solve(replace(problem, sparsity=(low, float(cap)))) for cap in caps]
        return min(plan.energy_joules * self.thinness(plan.sparsity) ** THIN_STEPS for plan in plans)

    def joules_of(self, tuned):
        """The true joules of a recipe that was found."""
        name = name_of(tuned.optimiser_options)
        plan = tuned.plan
        costs = self.true_problem(name, tuned.message).costs(plan.local_steps, plan.sparsity, plan.downlink_sparsity)
        return float(costs.energy_joules) * self.thinness(plan.sparsity) ** THIN_STEPS * self.mean_delay(tuned)

    def mean_delay(self, tuned):
        """The factor on the steps of later trainings: the guard halves the step size of those that blow up."""
        name, plan = name_of(tuned.optimiser_options), tuned.plan
        steps = plan.local_steps * self.true_problem(name, tuned.message).predicted_rounds(
            plan.local_steps, plan.sparsity
        )
        delays, thinness = [], self.thinness(plan.sparsity)
        for start in LATER_STARTS:
            rate, lost, luck = tuned.optimiser_options["learning_rate"], 0.0, self.luck(start)
            while math.isinf(delay := self.optimisers[name].delay(rate, plan.local_steps, luck, thinness)):
                rate, lost = rate / 2.0, lost + BLOWS_UP_AFTER / steps
            delays.append(delay + lost)
        return float(np.mean(delays))

    def luck(self, start):
        """The factor on all edges by the initial weights of a start."""
        return math.exp(self.edge_deviation * np.random.default_rng([self.seed, 7, start]).standard_normal())

    def steps_to_target(self, spec):
        """The true steps of a pilot, the noise of its seed included; infinite beyond the edge."""
        name, kind = name_of(spec.options), kind_of(spec.options)
        thinness = self.thinness(spec.sparsity)
        delay = self.optimisers[name].delay(spec.learning_rate, spec.local_steps, self.luck(spec.start), thinness)
        rounds = self.true_problem(name, kind).predicted_rounds(spec.local_steps, np.array(spec.sparsity))
        noise = self.seed_deviation * self._rng(spec).standard_normal()
        return spec.local_steps * rounds * thinness**THIN_STEPS * delay * math.exp(noise)

    def loss_at(self, steps, steps_to_target):
        """The loss of a curve that is at the target after ``steps_to_target``, were there no floor."""
        pace = ((START_LOSS / self.target_loss) ** (1.0 / self.exponent) - 1.0) / steps_to_target
        return self.floor + (START_LOSS - self.floor) * (1.0 + pace * steps) ** -self.exponent

    def _rng(self, spec, steps=0):
        return np.random.default_rng([self.seed, zlib.crc32(spec.training_key.encode()), steps])

    def evaluated(self, spec, steps, steps_to_target):
        noise = self.evaluation_deviation * self._rng(spec, steps).standard_normal()
        return self.loss_at(steps, steps_to_target) * math.exp(noise)


def _true_optimiser(optimiser, plain_rate, rate_by_steps, tau, rng):
    steps = tau * math.exp(0.35 * rng.standard_normal())
    log_c, a, q = np.array([math.log(PRIOR_C), PRIOR_A, PRIOR_Q]) + np.array(DEVIATIONS) * rng.standard_normal(3)
    return TrueOptimiser(
        law=fj.PowerLawRounds(tau=steps, c=math.exp(log_c), a=float(a), q=max(float(q), LEAST_Q)),
        best_rate=optimiser.first_rate(plain_rate) * math.exp(0.5 * rng.standard_normal()),
        rate_by_steps=rate_by_steps + 0.07 * rng.standard_normal(),
        edge=rng.uniform(1.5, 8.0),
        sharpness=rng.uniform(0.3, 0.7),
    )


def accuracy_of(loss):
    """An accuracy that falls with the loss, 0.1 for the untrained model."""
    return min(max(1.0 - 0.9 * loss / START_LOSS, 0.0), 1.0)


@dataclass
class SyntheticLaboratory:
    """Trains nothing: reads curves off a world."""

    world: World
    specs: list[PilotSpec] = field(default_factory=list)

    @property
    def clients(self):
        return self.world.problem.devices

    def start(self):
        return START_LOSS, accuracy_of(START_LOSS)

    def run(self, specs):
        self.specs.extend(specs)
        return [self.train(spec) for spec in specs]

    def train(self, spec):
        """Evaluate like the simulator's pilots: about every 10 steps, 80 times at the most."""
        true_steps = self.world.steps_to_target(spec)
        every = max(1, round(max(10.0, spec.steps / 80) / spec.local_steps))
        rounds = [one for one in range(1, spec.rounds + 1) if one % every == 0 or one == spec.rounds]
        curve, reached, over, taken = [], False, False, 0
        for taken in rounds:
            steps = taken * spec.local_steps
            if math.isinf(true_steps) and steps >= BLOWS_UP_AFTER:
                return self._result(spec, taken, curve, reached=False, diverged=True)
            loss = self.world.evaluated(spec, steps, 1e9 if math.isinf(true_steps) else true_steps)
            metric = self.world.aim.of(loss, accuracy_of(loss))
            curve.append((steps, loss, metric))
            reached = reached or self.world.aim.reached(metric)
            over = (spec.to_target and reached) or (spec.level is not None and loss <= spec.level)
            if over:
                break
        return self._result(spec, taken, curve, reached=reached, diverged=False)

    def _result(self, spec, rounds, curve, *, reached, diverged):
        points = curve or [(spec.local_steps, START_LOSS, self.world.aim.of(*self.start()))]
        steps, losses, metrics = zip(*points, strict=True)
        return PilotResult(
            spec=spec,
            rounds=rounds,
            steps=steps,
            losses=losses,
            metrics=metrics,
            reached=reached,
            diverged=diverged,
            messages=() if diverged else self._messages(spec, rounds),
        )

    def _messages(self, spec, rounds):
        kind = kind_of(spec.options)
        factor = self.world.size_factors[kind]
        return tuple(
            MessageObservation(kind, delta, factor * usual_bits(PARAMETERS, kind, delta), float(rounds))
            for delta in sorted(set(spec.sparsity))
            if delta >= 2.0
        )


class Stalling(SyntheticLaboratory):
    """Trains one optimiser up to nine tenths of the way to the target, and no further."""

    def __init__(self, world, name):
        super().__init__(world)
        self.name = name

    def train(self, spec):
        result = super().train(spec)
        if name_of(spec.options) != self.name or result.diverged:
            return result
        aim, start = self.world.aim, self.world.aim.of(*self.start())
        curve = list(zip(result.steps, result.losses, result.metrics, strict=True))
        best = next((i for i, (_, _, value) in enumerate(curve) if aim.progress(value, start) >= 0.9), len(curve)) - 1
        stalled = [(steps, *curve[min(i, max(best, 0))][1:]) for i, (steps, _, _) in enumerate(curve)]
        stalled += [(steps, *stalled[-1][1:]) for steps in range(curve[-1][0] + 10, spec.steps + 1, 10)]
        return self._result(spec, math.ceil(stalled[-1][0] / spec.local_steps), stalled, reached=False, diverged=False)


@dataclass(frozen=True)
class Score:
    """How good a tuning was: its true joules and those of its parts against the best, and what it took."""

    ratio: float
    optimiser_ratio: float  # the best recipe of the chosen optimiser against the best of all
    rate_ratio: float  # the chosen step size against the best of this optimiser at this H
    plan_ratio: float  # the rest: H, sparsities and the kind of messages
    trainings: float  # client-steps of the pilots as a multiple of those of the planned training
    pilots: int
    longest_steps: float  # local steps of the longest pilot as a multiple of the planned training's
    why: str  # the best optimiser was not chosen
    tuned: Tuned


def tuner_of(world, *, budget=None, seed=0, laboratory=None, trainings=10):
    return Tuner(
        laboratory=laboratory or SyntheticLaboratory(world),
        planning=FleetPlanning(world.problem),
        aim=world.aim,
        rate=0.1,
        budget=budget or Budget(),
        trainings=trainings,
        seed=seed,
    )


def why_not_the_best(world, tuner, tuned):
    """Why the chosen optimiser costs over 10 % more than the best one could."""
    joules = {name: world.best_joules(name) for name in world.optimisers}
    best, chosen = min(joules, key=joules.__getitem__), name_of(tuned.optimiser_options)
    if joules[chosen] <= 1.1 * joules[best]:
        return "good optimiser"
    plan = tuner.search.race_plan
    tried = {best: [], chosen: []}
    for pilot in tuned.pilots:
        name = name_of(pilot.spec.options)
        if name in tried and pilot.spec.local_steps == plan.local_steps:
            rate, thinness = pilot.spec.learning_rate, world.thinness(plan.sparsity)
            tried[name].append(world.optimisers[name].delay(rate, plan.local_steps, thinness=thinness))
    if not tried[best]:
        return "best one never tried"
    if math.isinf(min(tried[best])):
        return "best one only blew up"
    problems = {name: world.true_problem(name, tuned.message) for name in tried}
    rounds = {name: one.predicted_rounds(plan.local_steps, plan.sparsity) for name, one in problems.items()}
    if rounds[best] > rounds[chosen]:
        return "best one slower at the plan of the race"
    slower = min(tried[best]) * rounds[best] > min(tried[chosen]) * rounds[chosen]
    return "best one tried at poor step sizes" if slower else "noise"


def score(world, **options):
    """Tune in a world and compare with the truth."""
    tuner = tuner_of(world, **options)
    tuned = tuner.tune()
    name = name_of(tuned.optimiser_options)
    best, best_of_name, joules = world.best_joules(), world.best_joules(name), world.joules_of(tuned)
    rate = world.mean_delay(tuned)
    steps = tuned.plan.rounds * tuned.plan.local_steps
    return Score(
        ratio=joules / best,
        optimiser_ratio=best_of_name / best,
        rate_ratio=rate,
        plan_ratio=joules / best_of_name / rate,
        trainings=tuned.client_steps / world.problem.devices / steps,
        pilots=len(tuned.pilots),
        longest_steps=max(one.local_steps_taken for one in tuned.pilots) / steps,
        why=why_not_the_best(world, tuner, tuned),
        tuned=tuned,
    )


def scores(seeds, *, fleet=None, budget_part=1.0, thin=False):
    """Tune in many worlds, with a part of the usual budget; worlds whose target was called out of reach are None."""
    found = []
    for seed in seeds:
        world = World.random(seed, fleet)
        try:
            found.append(
                score(
                    world.with_thin_messages() if thin else world,
                    budget=Budget(trainings=USUAL_TRAININGS * budget_part),
                )
            )
        except TargetOutOfReachError:
            found.append(None)
    return found


def _table(worlds, budget_part):
    columns = ("ratio", "optimiser_ratio", "rate_ratio", "plan_ratio", "trainings", "pilots")
    print(f"{'':16}{'worlds':>7}{'given up':>9}" + "".join(f"{name:>24}" for name in columns))
    found = {fleet: scores(range(worlds), fleet=fleet, budget_part=budget_part) for fleet in FLEETS}
    found[THIN] = scores(range(worlds), fleet="dear bits", budget_part=budget_part, thin=True)
    found["all"] = [one for part in found.values() for one in part]
    for fleet, part in found.items():
        told = [one for one in part if one is not None]
        cells = []
        for name in columns:
            low, middle, high = np.quantile([getattr(one, name) for one in told], [0.1, 0.5, 0.9])
            cells.append(f"{f'{low:.2f} {middle:.2f} {high:.2f}':>24}")
        print(f"{fleet:16}{len(part):>7}{len(part) - len(told):>9}" + "".join(cells))
    worst = sorted(
        (one.ratio, fleet, seed) for fleet in (*FLEETS, THIN) for seed, one in enumerate(found[fleet]) if one
    )[-5:]
    print("worst:", ", ".join(f"{ratio:.2f} ({fleet}, seed {seed})" for ratio, fleet, seed in worst))
    print("optimisers:", dict(Counter(one.why for one in found["all"] if one).most_common()))
    print("observations of the law:", dict(Counter(len(one.tuned.belief.observations) for one in found["all"] if one)))


def stalled(seed):
    """The optimiser that a world's tuning chooses, and the one where that one stalls; None where none is found."""
    world = World.random(seed)
    favourite = name_of(tuner_of(world).tune().optimiser_options)
    try:
        tuned = tuner_of(world, laboratory=Stalling(world, favourite)).tune()
    except TargetOutOfReachError:
        return favourite, None
    return favourite, name_of(tuned.optimiser_options)


def steps_out_of_reach(seed, floor):
    """The local steps of each client that a tuning takes where losses stay above so many times the target."""
    tuner = tuner_of(World.random(seed).out_of_reach(floor))
    with contextlib.suppress(TargetOutOfReachError):
        tuner.tune()
    return tuner.search.books.client_steps / tuner.search.books.clients


def _print_hopeless(worlds):
    found = sum(other is not None for _, other in map(stalled, range(worlds)))
    print(f"where the best optimiser stalls at nine tenths of the way, {found} of {worlds} worlds find another recipe")
    for floor in (1.05, 1.1, 1.2):
        steps = [steps_out_of_reach(seed, floor) for seed in range(worlds)]
        print(
            f"losses stay above {floor:g} times the target: {np.mean(steps):,.0f} steps in the mean of {worlds} worlds"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=20, help="worlds for each kind of fleet")
    parser.add_argument("--budget-part", type=float, default=1.0, help="part of the usual budget")
    parser.add_argument("--hopeless", action="store_true", help="what optimisers that do not get to the target cost")
    told = parser.parse_args()
    if told.hopeless:
        _print_hopeless(told.worlds)
        raise SystemExit
    print("10 %, 50 % and 90 % quantiles of joules against the best possible, and of what tuning took")
    _table(told.worlds, told.budget_part)
