"""Whether an arm trains from other weights and batches, too.

Of step sizes that a race prefers, the largest that one start survives is often beyond what others do: LeNet5 on MNIST
with ternary messages blew up from five of six initial weights at the step size that won a race. Blow-ups come soon
after the warm-up, so short pilots from other starts are enough to see them.
"""

from collections.abc import Callable

from fewjoules.planner.plan import Plan
from fewjoules.tuning.race import SHORTEST_HEAT, Arm, Race
from fewjoules.tuning.search import Search

STEPS = 2 * SHORTEST_HEAT  # of a pilot from another start
LEAST_ROUNDS = 2
MOST_DROPPED = 3  # arms in a row that are replaced


def steps_of_start(plan: Plan) -> int:
    """Return the local steps of a pilot from another start."""
    return max(STEPS, LEAST_ROUNDS * plan.local_steps)


def is_steady(search: Search, arm: Arm, starts: int, plan: Plan | None = None) -> bool:
    """Whether an arm survives pilots from so many other starts, at the plan of the race or another one."""
    chosen = search.race_plan if plan is None else plan
    steps = steps_of_start(chosen)
    starts = int(min(starts, search.pilots_within_budget(steps, chosen)))
    others = [search.spec(arm, steps, chosen, start=1 + n) for n in range(starts)]
    return all(one.alive for one in search.run(others))


def settle(search: Search, race: Race, starts: Callable[[], int]) -> None:
    """Replace the best arm by one of half its step size until it is steady; ``starts`` tells how many it must survive.

    Then another optimiser may be the best one, and is tried in the same way.
    """
    for _ in range(MOST_DROPPED):
        best = race.contenders()[:1]
        if not best or best[0] in race.steady:
            return
        if is_steady(search, best[0], starts()):
            race.steady.add(best[0])
            return
        drop(search, race, best[0])


def drop(search: Search, race: Race, arm: Arm) -> None:
    """Count an arm as blown up, and let half its step size race in its place."""
    search.notes.append(f"{arm.optimiser.name} with step size {arm.rate:g} blew up from other weights or batches.")
    race.halve(arm)
