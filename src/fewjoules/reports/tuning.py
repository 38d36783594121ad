"""The outcome of a tuning as a table and in sentences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group as Stack
from rich.markup import escape
from rich.table import Table

from fewjoules.reports.numbers import number, span
from fewjoules.reports.plan_remarks import first_message_words
from fewjoules.runs.tuning import Tuning
from fewjoules.tuning.naming import optimiser_name
from fewjoules.tuning.outcome import Contender
from fewjoules.tuning.pilot import PilotResult
from fewjoules.tuning.reach import STOPPED


@dataclass(frozen=True, slots=True)
class Ranked:
    """A contender, its loss after steps that all contenders took, and whether its optimiser was chosen."""

    contender: Contender
    equal_loss: float
    chosen: bool


def equal_steps(tuning: Tuning) -> int:
    """Return the steps that every contender took."""
    return min((one.steps for one in tuning.tuned.contenders), default=0)


def ranked(tuning: Tuning) -> list[Ranked]:
    """Return the contenders: the winner, those at the target by their steps, then who went furthest, by their loss."""
    winner = _winner(tuning)
    steps = equal_steps(tuning)
    rows = [Ranked(one, _loss_after(tuning, one, steps), one is winner) for one in tuning.tuned.contenders]
    return sorted(rows, key=lambda row: (not row.chosen, *_standing(tuning, row.contender)))


def _winner(tuning: Tuning) -> Contender | None:
    """Return the contender with the optimiser and step size of the recipe; a final plan may have another step size."""
    rate = tuning.tuned.optimiser_options["learning_rate"]
    own = [one for one in tuning.tuned.contenders if one.name == tuning.tuned.optimiser and math.isfinite(one.loss)]
    return min(own, key=lambda one: (one.learning_rate != rate, *_standing(tuning, one)), default=None)


def _standing(tuning: Tuning, one: Contender) -> tuple[bool, bool, float, float]:
    reached = tuning.aim.reached(one.metric)
    return not math.isfinite(one.loss), not reached, one.expected_steps if reached else -one.steps, one.loss


def curve_of(tuning: Tuning, contender: Contender) -> PilotResult | None:
    """Return the longest pilot of a contender in the race."""
    pilots = tuning.tuned.pilots
    own = [
        one
        for one in pilots
        if one.spec.start == 0
        and optimiser_name(one.spec.options) == contender.name
        and one.spec.learning_rate == contender.learning_rate
        and (one.spec.local_steps, one.spec.sparsity) == (pilots[0].spec.local_steps, pilots[0].spec.sparsity)
    ]
    return max(own, key=lambda one: one.local_steps_taken, default=None)


def _loss_after(tuning: Tuning, contender: Contender, steps: int) -> float:
    curve = curve_of(tuning, contender)
    return math.inf if curve is None or not math.isfinite(contender.loss) else curve.loss_after(steps)


def ranking_titles(tuning: Tuning) -> tuple[str, ...]:
    """Return the titles of the ranking."""
    metric = tuning.aim.metric
    steps = equal_steps(tuning)
    return ("optimiser", "step size", "steps", f"loss at {steps}", "loss", f"best {metric}", "steps to target")


def ranking_cells(row: Ranked) -> tuple[str, ...]:
    """Return one row of the ranking; steps that no pilot has taken are an estimate."""
    one = row.contender
    if not math.isfinite(one.loss):
        return (one.name, f"{one.learning_rate:.3g}", str(one.steps), "blew up", "-", "-", "-")
    guess = "about " if one.expected_steps > one.steps else ""
    expected = f"{guess}{one.expected_steps:,.0f}" if one.expected_steps <= STOPPED else "unknown"
    cells = (f"{one.learning_rate:.3g}", str(one.steps), f"{row.equal_loss:.4g}", f"{one.loss:.4g}")
    return (one.name, *cells, f"{one.metric:.4g}", expected)


def outcome(tuning: Tuning) -> Stack:
    """Return the ranking of the contenders as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    first, *others = ranking_titles(tuning)
    table.add_column(first)
    for title in others:
        table.add_column(title, justify="right")
    for row in ranked(tuning):
        cells = [escape(cell) for cell in ranking_cells(row)]
        table.add_row(*cells, style="bold" if row.chosen else None)
    return Stack(table, "")


def headline(tuning: Tuning) -> str:
    """Return the recipe and its price in one sentence."""
    plan = tuning.tuned.plan
    _, low, high = predicted_joules(tuning)
    return (
        f"{tuning.recipe.name} reaches {tuning.aim.metric} {tuning.aim.target:g} on the data kept aside for "
        f"{number(plan.energy_joules)} J ({number(low)} to {number(high)} J)"
    )


def sentences(tuning: Tuning) -> list[str]:
    """Return recipe, plan, prediction, first message, certificate, and what the pilots cost and save."""
    return [
        f"recipe: {tuning.recipe.describe()}",
        _plan_sentence(tuning),
        _prediction_sentence(tuning),
        *_first_message(tuning),
        *_certificate(tuning),
        *payment(tuning),
        *tuning.notes,
    ]


def predicted_joules(tuning: Tuning) -> tuple[float, float, float]:
    """Return the joules of the plan, and two standard deviations below and above."""
    plan = tuning.tuned.plan
    a_round = plan.energy_joules / plan.rounds if plan.rounds > 0.0 else 0.0
    rounds, low, high = tuning.predicted_rounds()
    return rounds * a_round, low * a_round, high * a_round


def _plan_sentence(tuning: Tuning) -> str:
    plan = tuning.tuned.plan
    server = "" if plan.downlink_sparsity is None else f", {plan.downlink_sparsity:.4g} of the server"
    return f"plan: H = {plan.local_steps} local steps a round, sparsity {span(plan.sparsity)}{server}"


def _prediction_sentence(tuning: Tuning) -> str:
    rounds, low, high = tuning.predicted_rounds()
    joules, least, most = predicted_joules(tuning)
    return (
        f"predicted: {number(rounds)} rounds ({number(low)} to {number(high)}) and {number(joules)} J ({number(least)} "
        f"to {number(most)} J) to the target on the data kept aside (a test set may be easier or harder); the "
        "ranges are two standard deviations of what the pilots leave open"
    )


def _first_message(tuning: Tuning) -> Sequence[str]:
    words = first_message_words(tuning.first_message_joules, tuning.tuned.plan.energy_joules)
    return () if words is None else (words,)


def _certificate(tuning: Tuning) -> Sequence[str]:
    plan = tuning.tuned.plan
    if plan.lower_bound_joules is None:
        return ()
    limits = f"H = {plan.local_steps}" if tuning.keeps_local_steps else "the limits"
    bound = number(plan.lower_bound_joules)
    return (f"proved that no plan of this recipe within {limits} costs less than {bound} J under its rounds law",)


def payment(tuning: Tuning) -> list[str]:
    """Say what the pilots would have cost on the devices, what a training saves, and when they have paid."""
    tuned, saved = tuning.tuned, tuning.saving_joules
    cost = (
        f"the {len(tuned.pilots)} pilots would cost {number(tuned.joules)} J on the devices "
        f"({tuned.client_steps:,} client-steps)"
    )
    if saved is None or tuning.untuned_joules is None:
        return [f"{cost}; what a training saves is unknown, since no training without tuning is to compare with"]
    against = f"{tuning.untuned} ({number(tuning.untuned_joules)} J)"
    if saved <= 0.0:
        return [f"{cost}; a training saves nothing against {against}, so they never pay"]
    count = tuning.trainings_to_pay
    after = f"{count} training{'s' * (count != 1)}"
    return [f"{cost}; each training saves {number(saved)} J against {against}, so they have paid after {after}"]
