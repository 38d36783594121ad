"""The finals of the race: train its best arms to the target, and take the one that gets there in the fewest steps."""

import math
from collections.abc import Sequence

from fewjoules.tuning.extrapolation import extrapolated, note_of
from fewjoules.tuning.heats import expected_steps, other_starts, steps_left
from fewjoules.tuning.pilot import PilotResult
from fewjoules.tuning.race import Arm, Race
from fewjoules.tuning.reach import blown_up, out_of_reach
from fewjoules.tuning.reference import Reference
from fewjoules.tuning.search import PATIENCE, Search
from fewjoules.tuning.steadiness import is_steady, settle, steps_of_start

FINALISTS = 3  # optimisers of which the best arm may be trained to the target
CLOSE = 1.25  # a later finalist is trained if its curve promises less than so many times the steps of the best
RESERVE = 0.1  # of a training, that later finalists leave for pilots of the law
OVERDRAFT = 0.5  # of a training, by which the budget may be exceeded so that a pilot gets to the target
EXTENSIONS = 3  # times that a pilot to the target is followed, each time further
LATER_HEATS = 2.0  # that a later finalist is followed for at least, where the first was given up
LATER_MOST = 1.5  # times the steps of the first, after which a later one is given up, too
FAR = 6.0  # a curve that promises so many times the steps that it was followed for is given up
MARGIN = 1.5  # a pilot is followed for so many times the steps that its curve promises
RUN_DEVIATION = 0.12  # of ln(steps to the target) between seeds of one training


def train_to_target(search: Search, race: Race) -> Arm:
    """Train the best arms to the target; return the one that gets there in the fewest steps."""
    search.doing = "training the best optimisers to the target"
    race.kept = 0.0
    settle(search, race, lambda: other_starts(search, race))
    finalists = race.contenders()[:FINALISTS]
    best: Arm | None = None
    given_up: list[Arm] = []
    for arm in finalists:
        limit, furthest = _limits(search, race, best, given_up)
        if best is not None and not _may_win(search, race.results[arm], limit):
            continue
        if not _is_affordable(search, race, arm, limit, none_yet=best is None, first=best is None and not given_up):
            break
        if best is not None and not is_steady(search, arm, other_starts(search, race)):
            continue
        race.results[arm] = _followed_to_target(search, race.results[arm], arm, limit, furthest)
        best = _better(search, race, best, arm)
        if best is None and race.results[arm].alive:
            given_up.append(arm)
    return _most_promising(search, race, finalists, given_up) if best is None else best


def observed_reference(search: Search, winner: Arm, pilot: PilotResult, start_metric: float) -> Reference:
    """Let the winner's steps to the target, measured or extrapolated, tell the scale of the law."""
    measured = search.aim.steps_to_target(pilot)
    if measured is None:
        found = extrapolated(search, pilot, start_metric)
        search.notes.append(note_of(pilot, found))
        steps, deviation = found.steps, found.deviation
    else:
        steps, deviation = measured, RUN_DEVIATION
    search.expected_steps = steps
    search.observe(search.race_plan, steps, deviation)
    return Reference(winner, search.race_plan, pilot, steps)


def _limits(search: Search, race: Race, best: Arm | None, given_up: Sequence[Arm]) -> tuple[float, float]:
    """Return the steps after which a finalist's curve is looked at, and those after which it is given up at any rate.

    These are the steps of the best finalist. As long as there is none, the first goes on while its curve promises the
    target; where that one was given up, a later one goes a part of its way, and little further than it.
    """
    if best is not None:
        steps = search.aim.expected_steps(race.results[best])
        return steps, steps
    if given_up and search.budget.allows_a_training:
        first = race.results[given_up[0]].local_steps_taken
        limit = max(first / PATIENCE, LATER_HEATS * race.heat)
        return limit, max(LATER_MOST * first, limit)
    return PATIENCE * max(expected_steps(search, race), race.heat), math.inf


def _may_win(search: Search, result: PilotResult, limit: float) -> bool:
    """Whether a later finalist may get to the target before the best one, which took ``limit`` steps."""
    expected = search.aim.expected_steps(result)
    return expected < limit if result.reached else expected <= CLOSE * limit


def _is_affordable(search: Search, race: Race, arm: Arm, limit: float, *, none_yet: bool, first: bool) -> bool:
    """Whether the budget allows the rest of the way to the target.

    Until one has reached the target, finalists may exceed a budget in trainings: what those took that were given up
    shows that it was reckoned by too short a training. All that is left of another budget is for them, too. Later ones
    are first tried from other starts.
    """
    if none_yet and search.budget.is_fixed:
        return search.steps_within_budget(search.race_plan) >= search.race_plan.local_steps
    if none_yet and search.budget.allows_a_training:
        return True
    expected = search.aim.expected_steps(race.results[arm])
    rest = min(expected, limit) - race.results[arm].local_steps_taken
    rest += 0 if none_yet else other_starts(search, race) * steps_of_start(search.race_plan)
    spare = OVERDRAFT * expected if first else -RESERVE * limit
    return rest <= max(steps_left(search, race), 0.0) + spare


def _followed_to_target(search: Search, result: PilotResult, arm: Arm, limit: float, furthest: float) -> PilotResult:
    """Follow a pilot for ``limit`` steps, and up to ``furthest`` while its curve promises the target not far off."""
    for _ in range(EXTENSIONS):
        most = search.capped(limit, search.race_plan, taken=result.local_steps_taken)
        if result.reached or most <= result.local_steps_taken:
            break
        (result,) = search.run([search.spec(arm, most, to_target=True)])
        expected = search.aim.expected_steps(result)
        if result.reached or not result.alive or expected > FAR * limit:
            break
        limit = min(MARGIN * expected, PATIENCE * limit, furthest)
    return result


def _better(search: Search, race: Race, best: Arm | None, arm: Arm) -> Arm | None:
    """Return the better of the best finalist and the one that was just trained, if any reached the target."""
    result = race.results[arm]
    steps = search.aim.steps_to_target(result)
    if steps is not None:
        return arm if best is None or steps < search.aim.expected_steps(race.results[best]) else best
    if not result.alive:
        search.notes.append(f"{arm.optimiser.name} with step size {arm.rate:g} blew up on its way to the target.")
    return best


def _most_promising(search: Search, race: Race, finalists: Sequence[Arm], given_up: Sequence[Arm]) -> Arm:
    """Return the finalist whose curve tells the steps to the target where the budget ended before any got there."""
    alive = [arm for arm in finalists if race.results[arm].alive]
    if not alive:
        raise blown_up(search, race)
    expected = {arm: search.aim.expected_steps(race.results[arm]) for arm in alive}
    spent = search.steps_within_budget(search.race_plan) < search.race_plan.local_steps
    if given_up and not spent:
        raise out_of_reach(search, min(expected.values()))
    return min(given_up, key=expected.__getitem__) if given_up else alive[0]
