"""Whether the target is in reach of the pilots, and the sentence for one that is not."""

from fewjoules.errors import InvalidInputError, TargetOutOfReachError
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.pilot import PilotResult
from fewjoules.tuning.race import Race
from fewjoules.tuning.search import Search

HOPELESS = 200.0  # a target that seems so many times further away than a pilot went is out of reach
ERRORS = 2.0  # of its slope, by which a curve is taken to be steeper before it is called hopeless
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
    """Say early that a target seems out of reach: the best curves would need far more steps than were taken.

    Where a budget in steps or joules leaves no room for a longer heat, short curves are no reason to give up.
    """
    results = [race.results[arm] for arm in race.ranked()[:JUDGED]]
    if not results:
        raise blown_up(search, race)
    if race.allowed() < race.heat:
        return
    expected = min(search.aim.expected_steps(result, errors=ERRORS) for result in results)
    if all(is_telling(result) for result in results) and expected > HOPELESS * race.heat:
        raise out_of_reach(search, expected)


def is_telling(result: PilotResult) -> bool:
    """Whether a curve has enough evaluations to be called hopeless."""
    return len(result.steps) >= TELLING


def out_of_reach(search: Search, expected: float) -> TargetOutOfReachError:
    """Return the error that says how near pilots came to the target, and when the best curve promises it."""
    steps = f"the most promising curve gets there after {expected:,.0f} steps"
    further = "no curve gets better any more" if expected > STOPPED else steps
    budget = "give a larger budget, or " if search.budget.is_fixed else ""
    return TargetOutOfReachError(
        f"the target {search.aim.metric} {search.aim.target:g} seems out of reach: {_how_near(search)}, and "
        f"{further}; {budget}choose another target, model or learning_rate"
    )


def unjudged(search: Search) -> TargetOutOfReachError:
    """Return the error of a budget that ended before any curve had become better than the untrained model."""
    return TargetOutOfReachError(
        f"the budget ended before a curve could be judged: {_how_near(search)}, which is no better than "
        f"untrained, and the target {search.aim.metric} is {search.aim.target:g}; give a larger budget"
    )


def blown_up(search: Search, race: Race) -> TargetOutOfReachError:
    """Return the error of a race in which no arm is left."""
    smallest = min(arm.rate for arm in race.results)
    others = ", some from other weights or batches only" if race.unsteady else ""
    budget = "a larger budget or " if search.budget.is_fixed else ""
    return TargetOutOfReachError(
        f"every pilot blew up{others}, with step sizes down to {smallest:.3g}; check the data and the loss, or give "
        f"{budget}a smaller learning_rate"
    )


def _how_near(search: Search) -> str:
    """Return how near the best pilot came to the target, of those that did not reach it from a lucky start."""
    aim, pilots = search.aim, search.pilots
    others = [pilot for pilot in pilots if not aim.reached(aim.best(pilot))]
    nearest = (max if aim.rises else min)(others, key=aim.best)
    best = f"{aim.best(nearest):.4g} on the data kept aside after {nearest.local_steps_taken} local steps"
    if len(others) == len(pilots):
        return f"the best of {len(pilots)} pilots has {best}"
    return (
        f"{len(pilots) - len(others)} of {len(pilots)} pilots reached the target, but only from some initial weights "
        f"or batches; the best of the others has {best}"
    )
