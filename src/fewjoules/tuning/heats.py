"""The heats of the race: which are held, and how many pilots each may have by the budget that is left.

By default the budget is a number of trainings, so it depends on the steps that a training seems to take. Early curves
promise too much, and these steps are kept within limits.
"""

import math

from fewjoules.tuning.race import SHORTEST_HEAT, Race
from fewjoules.tuning.reach import FIRST_PILOTS, blown_up, require_reachable
from fewjoules.tuning.search import Search
from fewjoules.tuning.steadiness import settle, steps_of_start

FIRST_GUESS = 15.0  # shortest heats in a training, as long as nothing better is known
LONGER_GUESS = 6.0  # longer heats in a training, where the shortest one showed nothing
LEAST_PART = 0.5  # of the first guess, below which no early curve is believed
PLAIN_PART = 0.25  # of the budget that is left, for the first step sizes of plain SGD
OTHERS_PART = 0.5  # the same for the first heat of the other optimisers
NEIGHBOURS_PART = 0.35  # the same for the neighbours of their step sizes
STARTS_PART = 0.2  # the same for pilots of the best arm from other starts
LONG_ENOUGH = 6.0  # heats of a training, in which the first heat of the others may be twice as long
TRAINING_PART = 0.3  # of a budget in steps or joules, that the race leaves for the way to the target
LATER_HEATS = (3, 2)  # optimisers in each of the last heats


def find_plain_rate(search: Search, race: Race, rate: float) -> float:
    """Return the best step size of plain SGD; its heats tell how long a heat must be."""
    search.doing = "finding the step size of plain SGD"
    race.run_plain(rate, _pilots(search, race, race.heat, PLAIN_PART, 2, 4))
    if not race.ranked():
        raise blown_up(search, race)
    return race.ranked()[0].rate


def race_optimisers(search: Search, race: Race) -> None:
    """Race the other optimisers against plain SGD until few arms are left."""
    search.doing = "racing optimisers"
    longer = LONG_ENOUGH * race.heat <= expected_steps(search, race)
    race.run_others(_pilots(search, race, (1 + longer) * race.heat, OTHERS_PART, 2, 4), longer=longer)
    if not search.budget.allows_a_training or steps_left(search, race) >= race.heat:
        race.try_rates(_pilots(search, race, race.heat, NEIGHBOURS_PART, 1, 3))
    settle(search, race, lambda: other_starts(search, race))
    for optimisers in LATER_HEATS:
        require_reachable(search, race)
        if race.is_over or not _leaves_a_training(search, race, optimisers):
            break
        race.go_on(optimisers)


def expected_steps(search: Search, race: Race) -> float:
    """Return the steps to the target that the best arms promise, within limits; keep them for the news."""
    known = [] if search.prior_steps is None else [search.prior_steps]
    best = [search.aim.expected_steps(race.results[arm]) for arm in race.ranked()[:2]]
    usual = FIRST_GUESS * SHORTEST_HEAT
    least = 0.0 if known else LEAST_PART * usual
    first = usual if race.longer_heat is None else LONGER_GUESS * race.longer_heat
    search.expected_steps = max(min([*best, *known, max(first, usual)]), least)
    return search.expected_steps


def steps_left(search: Search, race: Race) -> float:
    """Return how many more local steps at the plan of the race the budget allows."""
    return search.steps_left(expected_steps(search, race), search.race_plan)


def other_starts(search: Search, race: Race) -> int:
    """Return how many other starts an arm is tried from: two, or one where the budget is small.

    None are tried where a budget in steps or joules would then leave less for the way to the target.
    """
    steps, left = steps_of_start(search.race_plan), steps_left(search, race)
    least = int(left >= 2.0 * steps) if search.budget.is_fixed else 1
    return _affordable(left, steps, STARTS_PART, least, 2)


def kept_for_training(search: Search, heat: int) -> float:
    """Return the local steps that a race whose heats begin with ``heat`` leaves of a budget in steps or joules."""
    whole = search.steps_within_budget(search.race_plan)
    return max(0.0, min(TRAINING_PART * whole, whole - FIRST_PILOTS * heat)) if math.isfinite(whole) else 0.0


def _pilots(search: Search, race: Race, steps: int, part: float, least: int, most: int) -> int:
    """Return how many pilots of so many further steps fit into a part of what the race has left.

    They are ``least`` or more, unless a budget in steps or joules does not allow so many.
    """
    left = race.allowed() if search.budget.is_fixed else steps_left(search, race)
    if search.budget.is_fixed and math.isfinite(left):
        least = min(least, int(max(left, 0.0) / steps))
    return _affordable(left, steps, part, least, most)


def _affordable(left: float, steps: int, part: float, least: int, most: int) -> int:
    """Return how many pilots of so many steps fit into a part of what is left, within limits."""
    return most if math.isinf(left) else max(least, min(most, int(part * left / steps)))


def _leaves_a_training(search: Search, race: Race, optimisers: int) -> bool:
    """Whether the budget has a heat of twice the length, and then the rest of a training to the target."""
    rest = expected_steps(search, race) - 2.0 * race.heat
    heat = optimisers * race.heat
    return rest >= 0.0 and steps_left(search, race) >= heat + rest and race.allowed() >= heat
