"""The finals of the race: train its best arms to the target, and take the one that gets there in the fewest steps."""

import math

from fewjoules.tuning.heats import expected_steps, other_starts, steps_left
from fewjoules.tuning.pilot import PilotResult
from fewjoules.tuning.race import Arm, Race
from fewjoules.tuning.reach import HOPELESS, out_of_reach
from fewjoules.tuning.reference import Reference
from fewjoules.tuning.search import PATIENCE, Search
from fewjoules.tuning.steadiness import is_steady, settle

FINALISTS = 3  # optimisers of which the best arm may be trained to the target
CLOSE = 1.25  # a later finalist is trained if its curve promises less than so many times the steps of the best
RESERVE = 0.1  # of a training, that later finalists leave for pilots of the law
OVERDRAFT = 0.5  # of a training, by which the budget may be exceeded so that a pilot gets to the target
EXTENSIONS = 2  # times that a pilot to the target is followed, the second time further
MARGIN = 1.5  # a pilot is followed for so many times the steps that its curve promises
RUN_DEVIATION = 0.12  # of ln(steps to the target) between seeds of one training
GUESS_DEVIATION = 0.4  # the same where the curve was extrapolated


def train_to_target(search: Search, race: Race) -> Arm:
    """Train the best arms to the target; return the one that gets there in the fewest steps."""
    search.doing = "training the best optimisers to the target"
    settle(search, race, lambda: other_starts(search, race))
    finalists = race.contenders()[:FINALISTS]
    best: Arm | None = None
    for arm in finalists:
        limit = _most_steps(search, race, best)
        if best is not None and search.aim.expected_steps(race.results[arm]) > CLOSE * limit:
            continue
        if not _is_affordable(search, race, arm, limit, first=best is None):
            best = best or arm
            break
        if best is not None and not is_steady(search, arm, other_starts(search, race)):
            continue
        race.results[arm] = _followed_to_target(search, race.results[arm], arm, limit, extended=best is None)
        best = _better(search, race, best, arm)
    if best is None:
        raise out_of_reach(search, [race.results[arm] for arm in finalists], math.inf)
    if not race.results[best].reached:
        search.notes.append("The budget ended before a pilot reached the target, so the rounds are extrapolated.")
    return best


def observed_reference(search: Search, winner: Arm, pilot: PilotResult) -> Reference:
    """Let the winner's steps to the target, measured or extrapolated, tell the scale of the law."""
    measured = search.aim.steps_to_target(pilot)
    steps = search.aim.expected_steps(pilot)
    if not math.isfinite(steps):
        raise out_of_reach(search, [pilot], math.inf)
    search.expected_steps = steps
    search.observe(search.race_plan, steps, GUESS_DEVIATION if measured is None else RUN_DEVIATION)
    return Reference(winner, search.race_plan, pilot, steps)


def _most_steps(search: Search, race: Race, best: Arm | None) -> float:
    """Return the steps after which a finalist is given up: it has taken far too many, or more than the best one."""
    if best is None:
        return PATIENCE * max(expected_steps(search, race), race.heat)
    return search.aim.expected_steps(race.results[best])


def _is_affordable(search: Search, race: Race, arm: Arm, limit: float, *, first: bool) -> bool:
    """Whether the budget allows the rest of the way to the target; the first finalist may exceed it."""
    expected = search.aim.expected_steps(race.results[arm])
    rest = min(expected, limit) - race.results[arm].local_steps_taken
    overdraft = 0.0 if search.budget.is_fixed else OVERDRAFT * expected
    spare = overdraft if first else -RESERVE * limit
    within = rest <= max(steps_left(search, race), 0.0) + spare
    return within or (first and search.budget.allows_a_training)


def _followed_to_target(search: Search, result: PilotResult, arm: Arm, limit: float, *, extended: bool) -> PilotResult:
    """Follow a pilot for up to ``limit`` steps, and ``extended`` while its curve promises the target not far off."""
    for _ in range(EXTENSIONS if extended else 1):
        most = search.capped(limit, search.race_plan, taken=result.local_steps_taken)
        if result.reached or most <= result.local_steps_taken:
            break
        (result,) = search.run([search.spec(arm, most, to_target=True)])
        expected = search.aim.expected_steps(result)
        if result.reached or not result.alive or expected > HOPELESS * limit:
            break
        limit = min(MARGIN * expected, PATIENCE * limit)
    return result


def _better(search: Search, race: Race, best: Arm | None, arm: Arm) -> Arm | None:
    """Return the better of the best finalist and the one that was just trained, if any reached the target.

    If none has, but a budget in steps or joules is spent, it is the one that was just trained.
    """
    result = race.results[arm]
    steps = search.aim.steps_to_target(result)
    if steps is not None:
        return arm if best is None or steps < search.aim.expected_steps(race.results[best]) else best
    if not result.alive:
        search.notes.append(f"{arm.optimiser.name} with step size {arm.rate:g} blew up on its way to the target.")
    elif best is None and search.steps_within_budget(search.race_plan) < search.race_plan.local_steps:
        return arm
    return best
