"""Tune a task: pilots in the simulator, a recipe and its plan, and what they cost and save."""

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fewjoules.arrays import IntArray
from fewjoules.convergence.rounds import PowerLawRounds
from fewjoules.engine.algorithm.options import overridden
from fewjoules.errors import InfeasiblePlanError, InvalidInputError, require_integer
from fewjoules.ledger.target import Target
from fewjoules.physics.message_size import MessageSize
from fewjoules.planner.downlink import Downlink
from fewjoules.planner.first_message import first_message_joules
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.recipe import OPTIMISER_OPTIONS, Recipe
from fewjoules.planner.schemes import FEWEST, flexible
from fewjoules.runs.laboratory import USUAL_RATE, JournaledPilots, TaskOrder, pilots_of
from fewjoules.runs.pilot_journal import PilotJournal
from fewjoules.runs.pilots import MORE_ASIDE, target_of
from fewjoules.runs.processes import processes_of
from fewjoules.runs.task import ScenarioTask, identity_of_task, prepare, require_training
from fewjoules.runs.tuning_news import Progress, Teller
from fewjoules.scenario import Scenario
from fewjoules.scenario.planned_fleet import needs_batch
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.arms import PLAIN
from fewjoules.tuning.batches import NoiseScale
from fewjoules.tuning.belief import PRIOR_A, PRIOR_C, PRIOR_Q, Choice
from fewjoules.tuning.books import Budget, saving, trainings_to_pay
from fewjoules.tuning.naming import optimiser_name
from fewjoules.tuning.outcome import Tuned
from fewjoules.tuning.pilot import Laboratory
from fewjoules.tuning.planning import EXACT, Batches, FleetPlanning, choice_of
from fewjoules.tuning.tuner import Tuner

SEED_OFFSET = 1000  # so that pilots have other weights, batches and parts of the data than the training
LARGEST_SEED = 2**63 - 1
MOST_PROCESSES = 64
PROCESSES_ON_GPU = 4
MOST_TRAININGS = 1_000_000
ANY_LAW = PowerLawRounds(tau=1.0, c=PRIOR_C, a=PRIOR_A, q=PRIOR_Q)  # stands where none is known yet


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """A finished tuning: its outcome, its aim, and what a recipe in a scenario needs beside.

    ``untuned_joules`` is what an untuned training takes, and ``untuned`` describes that training; both are None if it
    is unknown, and so is ``plain_law``, its rough law. ``keeps_local_steps``: the law prefers another H,
    but by too little to look for its step size, or none was good there. ``narrower_sparsity``: the recipe is planned
    within narrower limits of sparsity than the scenario. ``server`` is None where the downlink is not charged.
    ``first_message_joules`` is what the first message to each device, the whole model, adds to the plan.
    ``most_rounds`` are those that the scenario allows a training, None if it does not say.
    """

    tuned: Tuned
    aim: Aim
    seed: int
    clients: int
    message_size: MessageSize
    sparsity: tuple[float, float]
    narrower_sparsity: bool
    server: Downlink | None
    keeps_local_steps: bool
    untuned: str | None
    untuned_joules: float | None
    plain_law: PowerLawRounds | None = None
    first_message_joules: float = 0.0
    most_rounds: int | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What did not go as planned, and what would end trainings before the target."""
        return (*self.tuned.notes, *([] if self.too_few_rounds is None else [f"{self.too_few_rounds}."]))

    @property
    def too_few_rounds(self) -> str | None:
        """A sentence without its full stop where the scenario allows fewer rounds than are predicted; else None."""
        predicted = self.tuned.plan.rounds_to_train()
        if self.most_rounds is None or self.most_rounds >= predicted:
            return None
        return (
            f"with training.rounds = {self.most_rounds} a training ends before the target, which is predicted to take "
            f"{predicted} rounds; raise it or leave it out"
        )

    @property
    def recipe(self) -> Recipe:
        """The recipe with its plan."""
        return self.recipe_beside({})

    def recipe_beside(self, stated: Mapping[str, Any]) -> Recipe:
        """Return the recipe with other options of its optimiser that the pilots were trained with."""
        tuned = self.tuned
        own = {name: value for name, value in stated.items() if name in OPTIMISER_OPTIONS}
        bare = Recipe(tuned.optimiser, overridden(own, tuned.optimiser_options), tuned.message_options)
        return replace(bare, plan=replace(tuned.plan, scheme=FEWEST, recipe=bare), report=tuned)

    @property
    def saving_joules(self) -> float | None:
        """Joules that one training saves, 0 where it may be rounding; None if that is unknown."""
        return None if self.untuned_joules is None else saving(self.untuned_joules, self.tuned.plan.energy_joules)

    @property
    def trainings_to_pay(self) -> int | None:
        """Number of trainings after which the pilots have paid; None if they never do."""
        saved = self.saving_joules
        return None if saved is None else trainings_to_pay(self.tuned.joules, saved)

    def choice(self) -> Choice:
        """Return H and the sparsities of the plan."""
        return choice_of(self.tuned.plan, 0.0 if self.server is None else self.server.weight)

    def predicted_rounds(self) -> tuple[float, float, float]:
        """Return the rounds of the plan, and two standard deviations below and above."""
        rounds, (_, deviation) = self.tuned.plan.rounds, self.tuned.belief.predicted_steps(self.choice())
        return rounds, rounds * math.exp(-2.0 * deviation), rounds * math.exp(2.0 * deviation)


def aim_of(options: Mapping[str, Any]) -> Aim | None:
    """Return the target among the options of a training."""
    target = Target.of(options)
    return None if target is None else aim_at(target)


def aim_at(target: Target) -> Aim:
    """Return the aim of tuning for a target of trainings."""
    return Aim(target.name, target.value, None if target.direction is None else target.rises)


def require_aim(scenario: Scenario) -> Aim:
    """Return the target of [training]; refuse a scenario without one."""
    found = aim_of(require_training(scenario).model_dump())
    if found is None:
        raise InvalidInputError(
            f"{scenario.name}: training.target_accuracy (or target_loss, target_perplexity, target_metric) is "
            "missing; tuning needs to know how good the model must be"
        )
    return found


def usual_seed(scenario: Scenario) -> int:
    """Return the seed of pilots."""
    return (int(require_training(scenario).seed) + SEED_OFFSET) % (LARGEST_SEED + 1)


def usual_processes(device: torch.device) -> int:
    """Return how many pilots are trained at once: one on a processor, all of whose cores a training uses."""
    return 1 if device.type == "cpu" else PROCESSES_ON_GPU


def tune_scenario(
    scenario: Scenario,
    device: torch.device,
    data_dir: str | None = None,
    *,
    aim: Aim | None = None,
    budget: Budget | None = None,
    trainings: int = 10,
    seed: int | None = None,
    processes: int | None = None,
    journal: Path | None = None,
    tell: Callable[[Progress], None] | None = None,
    task: ScenarioTask | None = None,
    begin: Callable[[], None] = lambda: None,
) -> Tuning:
    """Find the recipe of a scenario; a ``journal`` keeps every finished pilot and brings back those it has.

    ``aim`` is the target, by default that of [training], and ``task`` the prepared scenario, if there is one already.
    ``begin`` is called before the first pilot.
    """
    wanted = require_aim(scenario) if aim is None else aim
    seed = usual_seed(scenario) if seed is None else require_integer("seed", seed, low=0, high=LARGEST_SEED)
    count = usual_processes(device) if processes is None else processes
    require_integer("processes", count, low=1, high=MOST_PROCESSES)
    law = scenario.rounds
    problem = (scenario if law is not None else replace(scenario, rounds=ANY_LAW)).problem()
    known = None if law is None or aim is not None else _plan_or_none(problem)
    task = prepare(scenario, device, data_dir) if task is None else task
    pilots = pilots_of(task, wanted, seed)
    kept = PilotJournal(journal, identity_of_task(task) | _identity(wanted, seed))
    order = TaskOrder.of(task, data_dir, wanted, seed)
    with contextlib.nullcontext() if count == 1 else processes_of(count) as executor:
        tuning = tune_task(
            JournaledPilots(pilots, kept, None if executor is None else (executor, order), begin),
            problem,
            wanted,
            task.training.learning_rate or USUAL_RATE,
            budget=budget,
            trainings=trainings,
            seed=seed,
            prior_steps=None if known is None else known.rounds * known.local_steps,
            batches=scenario_batches(scenario, task),
            tell=tell,
        )
    return replace(tuning, most_rounds=require_training(scenario).rounds)


def scenario_batches(scenario: Scenario, task: ScenarioTask) -> Batches | None:
    """Return the batches that may be chosen for a scenario; None where no device states what a sample costs."""
    training = require_training(scenario)
    if not needs_batch(scenario.fleet) or not isinstance(training.batch_size, int):
        return None
    planned = scenario if scenario.rounds is not None else replace(scenario, rounds=ANY_LAW)

    def problem_at(size: int) -> ControlProblem:
        return replace(planned, training=training.model_copy(update={"batch_size": size})).problem()

    return Batches(training.batch_size, largest_batch(task.federation.sizes), problem_at)


def largest_batch(sizes: IntArray) -> int:
    """Return the largest batch that every client has samples for while others are kept aside."""
    return int((1.0 - MORE_ASIDE) * int(sizes.min()))


def tune_task(
    laboratory: Laboratory,
    problem: ControlProblem,
    aim: Aim,
    rate: float,
    *,
    budget: Budget | None = None,
    trainings: int = 10,
    seed: int = 0,
    prior_steps: float | None = None,
    batches: Batches | None = None,
    tell: Callable[[Progress], None] | None = None,
) -> Tuning:
    """Find the recipe of a control problem, whose rounds model may be any; ``prior_steps`` are those of a known law.

    ``batches`` are those that may be chosen, None where a sample has no price.
    """
    require_integer("trainings", trainings, low=1, high=MOST_TRAININGS)
    planning = FleetPlanning(problem, batches=batches)
    tuner = Tuner(
        laboratory,
        planning,
        aim,
        rate,
        budget=Budget() if budget is None else budget,
        trainings=trainings,
        prior_steps=prior_steps,
        seed=seed,
    )
    if tell is not None:
        tuner.tell = Teller(tuner, tell)
    tuned = tuner.tune()
    free = tuner.search.plan()
    own = planning.at_downlink(str(tuned.message_options.get("downlink_values", EXACT)))
    planned = own.problem_of(problem.rounds, tuned.message)
    limits, before = ((one.sparsity, one.server and one.server.sparsity) for one in (planned, problem))
    pace = _pace_of_plain(tuner, laboratory.start()[0])
    joules = None if pace is None else pace * _raced_joules(tuner)
    return Tuning(
        tuned=tuned,
        aim=aim,
        seed=seed,
        clients=laboratory.clients,
        message_size=planned.message_size,
        sparsity=planned.sparsity,
        narrower_sparsity=limits != before,
        server=planned.server,
        keeps_local_steps=free.local_steps != tuned.plan.local_steps,
        untuned=None if joules is None else f"{PLAIN.name} at its best step size, by its pace in the race",
        untuned_joules=joules,
        plain_law=None if pace is None else _plain_law(tuner, pace),
        first_message_joules=first_message_joules(planned, tuned.plan),
    )


def _identity(aim: Aim, seed: int) -> dict[str, Any]:
    return {"target": target_of(aim).option, "seed of pilots": seed}


def _plan_or_none(problem: ControlProblem) -> Plan | None:
    try:
        return flexible(problem)
    except InfeasiblePlanError:
        return None


def _pace_of_plain(tuner: Tuner, start_loss: float) -> float | None:
    """Return how many times the winner's steps plain SGD takes: as measured, or by its loss; None if unknown."""
    search, reference = tuner.search, tuner.search.raced
    if reference is None:
        return None
    raced = reference.beside(search.pilots)
    plain = [one for one in raced if optimiser_name(one.spec.options) == PLAIN.name and one.alive]
    if not plain:
        return None
    reached = [steps for one in plain if (steps := search.aim.steps_to_target(one)) is not None]
    if reached:
        return min(reached) / reference.steps
    return reference.pace_of(min(plain, key=lambda one: (-one.local_steps_taken, one.final_loss())), start_loss)


def _raced_joules(tuner: Tuner) -> float:
    """Return the joules of the winner of the race to the target, at the plan of the race."""
    search, plan = tuner.search, tuner.search.race_plan
    assert search.raced is not None
    joules = search.race_planning.round_joules(
        search.message, plan.local_steps, plan.sparsity.tolist(), plan.downlink_sparsity
    )
    return search.raced.steps / plan.local_steps * joules


def _plain_law(tuner: Tuner, pace: float) -> PowerLawRounds:
    """Return the law of plain SGD with the usual batch: that of the recipe, with the tau of its pace in the race."""
    search, law = tuner.search, tuner.search.belief.law()
    assert search.raced is not None
    choice = search.choice(search.race_plan)
    delay = 1.0 + law.c * choice.local_steps**law.a * float(choice.powers(np.array([law.q]))[0])
    usual, raced = tuner.planning.batch_size, search.race_planning.batch_size
    slower = 1.0 if usual is None or raced is None else NoiseScale(usual, at=usual).delay(raced)
    return replace(law, tau=pace * search.raced.steps / delay / slower)
