"""The heats of the race: which are held, and how many pilots each may have by the budget that is left.

By default the budget is a number of trainings, so it depends on the steps that a training seems to take. Early curves
promise too much, and these steps are kept within limits.
"""

import math

from fewjoules.errors import TargetOutOfReachError
from fewjoules.tuning.race import SHORTEST_HEAT, Race
from fewjoules.tuning.reach import require_reachable
from fewjoules.tuning.search import Search
from fewjoules.tuning.steadiness import STEPS, settle

FIRST_GUESS = 15.0  # shortest heats in a training, as long as nothing better is known
LONGER_GUESS = 6.0  # longer heats in a training, where the shortest one showed nothing
LEAST_PART = 0.5  # of the first guess, below which no early curve is believed
PLAIN_PART = 0.25  # of the budget that is left, for the first step sizes of plain SGD
OTHERS_PART = 0.5  # the same for the first heat of the other optimisers
NEIGHBOURS_PART = 0.35  # the same for the neighbours of their step sizes
STARTS_PART = 0.2  # the same for pilots of the best arm from other starts
LONG_ENOUGH = 6.0  # heats of a training, in which the first heat of the others may be twice as long
LATER_HEATS = (3, 2)  # optimisers in each of the last heats


def find_plain_rate(search: Search, race: Race, rate: float) -> float:
    """Return the best step size of plain SGD; its heats tell how long a heat must be."""
    search.doing = "finding the step size of plain SGD"
    race.run_plain(rate, _affordable(search, race, race.heat, PLAIN_PART, 2, 4))
    if not race.ranked():
        raise TargetOutOfReachError(
            f"every pilot blew up, with step sizes down to {min(arm.rate for arm in race.results):.3g}; "
            "check the data and the loss, or give a smaller learning_rate"
        )
    return race.ranked()[0].rate


def race_optimisers(search: Search, race: Race) -> None:
    """Race the other optimisers against plain SGD until few arms are left."""
    search.doing = "racing optimisers"
    longer = LONG_ENOUGH * race.heat <= expected_steps(search, race)
    race.run_others(_affordable(search, race, (1 + longer) * race.heat, OTHERS_PART, 2, 4), longer=longer)
    if not search.budget.allows_a_training or steps_left(search, race) >= race.heat:
        race.try_rates(_affordable(search, race, race.heat, NEIGHBOURS_PART, 1, 3))
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
    """Return how many other starts an arm is tried from: two, or one where the budget is small."""
    return _affordable(search, race, max(STEPS, search.race_plan.local_steps), STARTS_PART, 1, 2)


def _affordable(search: Search, race: Race, steps: int, part: float, least: int, most: int) -> int:
    """Return how many pilots of so many further steps fit into a part of the budget that is left.

    They are ``least`` or more, unless a budget in steps or joules does not allow so many.
    """
    left = steps_left(search, race)
    if math.isinf(left):
        return most
    if search.budget.is_fixed:
        least = min(least, int(max(left, 0.0) / steps))
    return max(least, min(most, int(part * left / steps)))


def _leaves_a_training(search: Search, race: Race, optimisers: int) -> bool:
    """Whether the budget has a heat of twice the length, and then the rest of a training to the target."""
    rest = expected_steps(search, race) - 2.0 * race.heat
    return rest >= 0.0 and steps_left(search, race) >= optimisers * race.heat + rest
