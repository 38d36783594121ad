"""Sentences about levers: what all of them bring together, and after how many trainings their search has paid."""

from collections.abc import Sequence

from fewjoules.planner.levers import AVERAGING, LEVERS, OPTIMISER, VALUES
from fewjoules.planner.schemes import FEWEST
from fewjoules.reports.comparison import ratio, shared_target, times_as_much
from fewjoules.reports.levers import shows_levers
from fewjoules.reports.numbers import brief
from fewjoules.reports.seeds import SchemeRuns, Spread, listed_names, rank, several_seeds, spread_text, verdicts
from fewjoules.reports.ties import FEWEST_SEEDS
from fewjoules.scenario.schema.recipe import RecipeSearch
from fewjoules.tuning.books import saving, trainings_to_pay

_NBSP = "\u00a0"


def lever_headline(groups: Sequence[SchemeRuns]) -> str | None:
    """Say what all levers bring together; None without levers, or where the first or the last has no joules."""
    if not shows_levers(group.scheme for group in groups):
        return None
    target = shared_target([run for group in groups for run in group.runs])
    levers = [group for group in groups if group.scheme in LEVERS]
    first, last = levers[0], levers[-1]
    before, after = _joules(first), _joules(last)
    if target is None or before is None or after is None or not before.mean > 0.0:
        return None
    seeds = max(group.seeds for group in groups)
    over_seeds = f"Over {seeds} seeds " if several_seeds(groups) else ""
    factor = after.mean / before.mean
    share = f"{ratio(factor)} of" if factor < 1.0 else f"{ratio(factor)} times"
    sentence = (
        f"{over_seeds}{last.name} took {share} {first.name}'s joules to {target}: {_price(after)} instead of "
        f"{_price(before)}{_dearest(groups, last, after)}."
    )
    return " ".join([sentence, *_cheaper(levers, after), *_noise(groups, seeds)])


def price_sentences(groups: Sequence[SchemeRuns], search: RecipeSearch) -> list[str]:
    """Say what finding the recipe took and, if these runs tell it, after how many trainings that has paid."""
    if search.pilots is None or _with_recipe(groups) is None:
        return []
    runs = f"{search.pilots:,} pilot run{'' if search.pilots == 1 else 's'}"
    if search.pilot_joules is None:
        steps = search.pilot_client_steps
        return [f"Finding the recipe took {runs}{'' if steps is None else f' of {steps:,} client-steps in all'}."]
    price = f"Finding the recipe took {runs}, {brief(search.pilot_joules)}{_NBSP}J on these devices"
    saved = saved_joules(groups)
    if saved is None:
        return [f"{price}."]
    trainings = trainings_to_pay(search.pilot_joules, saved)
    if trainings is None:
        return [f"{price}, and it saved nothing here."]
    return [f"{price}: paid after {trainings:,} training{'' if trainings == 1 else 's'}."]


def saved_joules(groups: Sequence[SchemeRuns]) -> float | None:
    """Return how many joules the recipe saves against flexible on average; None where one is unknown."""
    plain, own = next((group for group in groups if group.scheme == "flexible"), None), _with_recipe(groups)
    before, after = (None if group is None else _joules(group) for group in (plain, own))
    return None if before is None or after is None else saving(before.mean, after.mean)


def _with_recipe(groups: Sequence[SchemeRuns]) -> SchemeRuns | None:
    """Return fewest or, where planning anew changed nothing, the lever with the whole recipe; None without a recipe."""
    found = {group.scheme: group for group in groups}
    return next((found[name] for name in (FEWEST, VALUES, AVERAGING, OPTIMISER) if name in found), None)


def _joules(group: SchemeRuns) -> Spread | None:
    """Return the joules to the target; None if a seed missed it."""
    reached = not group.failed and shared_target(group.runs) is not None
    return group.spread("joules") if reached else None


def _price(joules: Spread) -> str:
    text = spread_text(joules)
    return f"{brief(joules.mean)}{_NBSP}J{f' ({text})' if ' to ' in text else ''}"


def _dearest(groups: Sequence[SchemeRuns], last: SchemeRuns, after: Spread) -> str:
    """Return the end of the sentence about the most expensive scheme that is no lever; empty without one."""
    others = sorted((group for group in groups if group.scheme not in LEVERS and _joules(group)), key=rank)
    dearest = _joules(others[-1]) if others else None
    if dearest is None or not after.mean > 0.0:
        return ""
    return f"; {others[-1].name} took {times_as_much(dearest.mean / after.mean)} as {last.name}"


def _cheaper(levers: Sequence[SchemeRuns], after: Spread) -> list[str]:
    """Say which lever took less than the last, if one did."""
    best = min((lever for lever in levers if _joules(lever)), key=rank)
    joules = _joules(best)
    return [f"{best.name} took even less, {_price(joules)}."] if joules is not None and joules.mean < after.mean else []


def _noise(groups: Sequence[SchemeRuns], seeds: int) -> list[str]:
    """Say which schemes are tied with the best, or why that is unknown; nothing with one seed."""
    if not several_seeds(groups):
        return []
    if seeds < FEWEST_SEEDS:
        return [f"Fewer than {FEWEST_SEEDS} seeds cannot tell such a difference from noise."]
    tied = [group.name for group, verdict in zip(groups, verdicts(groups), strict=True) if verdict.tied]
    if len(tied) > 1:
        return [f"{listed_names(tied)} are tied within the noise."]
    return [f"{name} took less than any other beyond the noise." for name in tied]
