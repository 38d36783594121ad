"""Whether the target is in reach of the pilots, and the sentence for one that is not."""

import math
from collections.abc import Sequence

from fewjoules.errors import InvalidInputError, TargetOutOfReachError
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.pilot import PilotResult
from fewjoules.tuning.race import Race
from fewjoules.tuning.search import Search

HOPELESS = 200.0  # a target that seems so many times further away than a pilot went is out of reach
JUDGED = 3  # best arms, all of which must be hopeless
TELLING = 5  # evaluations that a curve needs before it is called hopeless
FIRST_PILOTS = 3  # two step sizes of plain SGD and another optimiser
STOPPED = 1e12  # expected steps above which a curve has stopped getting better


def require_untrained(aim: Aim, start_metric: float) -> None:
    """Refuse a target that takes no training."""
    if aim.reached(start_metric):
        better = "above" if aim.rises else "below"
        raise InvalidInputError(
            f"the target {aim.metric} must be {better} {start_metric:.4g}, which the model has on the data kept aside "
            f"before any training, got {aim.target:g}"
        )


def require_room(search: Search, race: Race) -> None:
    """Refuse a budget that does not allow the first pilots."""
    least, plan = FIRST_PILOTS * race.heat, search.race_plan
    if search.steps_within_budget(plan) >= least:
        return
    client_steps = least * search.laboratory.clients
    joules = least / plan.local_steps * search.round_joules(plan)
    got = (
        f"{search.budget.client_steps:g} client-steps"
        if search.budget.joules is None
        else f"{search.budget.joules:g} J"
    )
    raise InvalidInputError(
        f"the budget must allow the first {FIRST_PILOTS} pilots, {client_steps:,} client-steps or {joules:.3g} J, got "
        f"{got}"
    )


def require_reachable(search: Search, race: Race) -> None:
    """Say early that a target seems out of reach: the best curves would need far more steps than were taken."""
    results = [race.results[arm] for arm in race.ranked()[:JUDGED]]
    expected = min(search.aim.expected_steps(result, errors=2.0) for result in results)
    told = min(len(result.steps) for result in results) >= TELLING
    if told and expected > HOPELESS * race.heat:
        raise out_of_reach(search, results, expected)


def out_of_reach(search: Search, results: Sequence[PilotResult], expected: float) -> TargetOutOfReachError:
    """Return the error that says how near pilots came to the target, and how far it still is."""
    aim = search.aim
    choose = max if aim.rises else min
    best = choose((aim.best(one) for one in results), default=math.nan)
    steps = max((one.local_steps_taken for one in results), default=0)
    further = "it has stopped getting better" if expected > STOPPED else f"at this pace it takes {expected:,.0f} steps"
    return TargetOutOfReachError(
        f"the target {aim.metric} {aim.target:g} seems out of reach: the best of {len(search.pilots)} "
        f"pilots has {best:.4g} on the data kept aside after {steps} local steps, and {further}; choose another "
        "target, model or learning_rate"
    )
