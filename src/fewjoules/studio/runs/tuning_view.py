"""A tuning for the browser: its pilots and what it believes while it goes on, and its recipe when it is finished."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError
from fewjoules.ledger.target import Target
from fewjoules.reports.belief_figures import belief_section
from fewjoules.reports.figure_words import Numbers
from fewjoules.reports.numbers import brief, number
from fewjoules.reports.page_figures import Section
from fewjoules.reports.pilot_figures import looks_of_names, pilot_name, pilots_section
from fewjoules.runs.belief_log import beliefs_of
from fewjoules.runs.files import BELIEFS, PILOTS, SCENARIO, TUNING
from fewjoules.runs.pilot_lines import journal_of
from fewjoules.runs.sealed import read_sealed
from fewjoules.studio.access import Workspace
from fewjoules.studio.runs.commands import commands_of
from fewjoules.studio.runs.folders import FINISHED, RUNNING, TUNING_KIND, state_of
from fewjoules.studio.runs.reading import folder_of
from fewjoules.studio.runs.run_view import MAX_TEXT
from fewjoules.studio.runs.section_json import numbers_json, sections_json
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.pilot import PilotResult
from fewjoules.tuning.reach import STOPPED as BEYOND_REACH

TITLES = ("optimiser", "step size", "H", "steps", "loss", "best metric", "steps to target")


def tuning_view(workspace: Workspace, name: str) -> dict[str, Any]:
    """Return all that the view of a tuning shows."""
    found = folder_of(workspace, name, TUNING_KIND)
    if found.problem is not None:
        raise InvalidInputError(found.problem)
    state = state_of(found)
    record = read_sealed(found.path / TUNING) if state == FINISHED else None
    identity, pilots = journal_of(found.path / PILOTS)
    beliefs = beliefs_of(found.path / BELIEFS)
    aim = _aim(identity)
    chosen = None if record is None else str(record["recipe"]["name"])
    drawn: list[Section | None] = [belief_section(beliefs)]
    if aim is not None and pilots:
        drawn.append(pilots_section(pilots, aim, looks_of_names(map(pilot_name, pilots)), chosen))
    return {
        "folder": workspace.name(found.path),
        "state": state,
        "headline": _headline(state, pilots, beliefs, record),
        "remarks": _believed(beliefs) if record is None else _outcome(record),
        "ranking": None if aim is None else numbers_json(ranking(pilots, aim)),
        "law": None if record is None else numbers_json(_law(record)),
        "sections": sections_json([one for one in drawn if one is not None]),
        "scenario": _text(found.path / SCENARIO),
        "commands": commands_of(found, state, workspace),
    }


def ranking(pilots: Sequence[PilotResult], aim: Aim) -> Numbers:
    """Return the longest pilot of each optimiser and step size: those at the target by their steps, others by loss."""
    longest: dict[tuple[str, float, int], PilotResult] = {}
    for one in pilots:
        key = (pilot_name(one), one.spec.learning_rate, one.spec.local_steps)
        if one.spec.start == 0 and (key not in longest or one.rounds > longest[key].rounds):
            longest[key] = one

    def standing(pilot: PilotResult) -> tuple[bool, bool, float]:
        steps = aim.steps_to_target(pilot)
        return not pilot.alive, steps is None, pilot.final_loss() if steps is None else steps

    rows = [_row(one, aim) for one in sorted(longest.values(), key=standing)]
    return Numbers(TITLES, tuple(rows))


def _row(pilot: PilotResult, aim: Aim) -> tuple[str, ...]:
    start = (pilot_name(pilot), f"{pilot.spec.learning_rate:.3g}", str(pilot.spec.local_steps))
    if not pilot.alive:
        return (*start, str(pilot.local_steps_taken), "blew up", "-", "-")
    best, expected = aim.best(pilot), aim.expected_steps(pilot)
    return (
        *start,
        str(pilot.local_steps_taken),
        f"{pilot.final_loss():.4g}",
        f"{best:.4g}" if math.isfinite(best) else "-",
        f"{expected:,.0f}" if expected <= BEYOND_REACH else "unknown",
    )


def _aim(identity: dict[str, Any]) -> Aim | None:
    """Return the target of the pilots, as the first line of the journal tells it."""
    told = identity.get("target")
    target = Target.of(told) if isinstance(told, dict) else None
    if target is None:
        return None
    return Aim(target.name, target.value, None if target.direction is None else target.rises)


def _headline(
    state: str, pilots: Sequence[PilotResult], beliefs: Sequence[dict[str, Any]], record: dict[str, Any] | None
) -> str:
    if record is not None:
        target, predicted = record["target"], record["predicted"]
        low, high = predicted["joules_range"]
        return (
            f"{record['recipe']['name']} reaches {target['metric']} {target['value']:g} for "
            f"{number(predicted['joules'])} J ({number(low)} to {number(high)} J)"
        )
    count = f"{len(pilots):,} pilot{'' if len(pilots) == 1 else 's'}"
    doing = f", {beliefs[-1]['doing']}" if beliefs and state == RUNNING else ""
    return f"Tuning: {count} so far{doing}." if state == RUNNING else f"The tuning was stopped; {count} are kept."


def _believed(beliefs: Sequence[dict[str, Any]]) -> list[str]:
    """Say what is believed now, in the words of the command."""
    if not beliefs:
        return ["Nothing is believed before the first pilot."]
    last = beliefs[-1]
    found = [f"Best so far: {last['optimiser']}, step size {last['learning_rate']:.3g}."]
    steps, spread, law = last.get("expected_steps"), last.get("spread"), last.get("law")
    if steps is not None and steps <= BEYOND_REACH:
        ends = "" if spread is None else f" ({_ends(steps, spread)})"
        found.append(f"About {steps:,.0f} local steps to the target{ends}.")
    if law is not None:
        found.append(
            f"Rounds law: tau {number(law['tau'])}, c {law['c']:.3g}, a {law['a']:.3g}, q {law['q']:.3g}; its plan: "
            f"H = {last['local_steps']}, {brief(last['planned_joules'])} J."
        )
    allowed = last.get("allowed_client_steps")
    of_all = "" if allowed is None else f" of {allowed:,.0f}"
    return [
        *found,
        f"Booked: {last['client_steps']:,}{of_all} client-steps, {number(last['joules'])} J on the devices.",
    ]


def _ends(steps: float, spread: float) -> str:
    low, high = (steps * math.exp(sign * 2.0 * spread) for sign in (-1.0, 1.0))
    return f"{low:,.0f} to {high:,.0f}"


def _outcome(record: dict[str, Any]) -> list[str]:
    books, plan = record["books"], record["plan"]
    paid = books["trainings_to_pay"]
    found = [f"Recipe: {record['recipe']['words']}."]
    if plan is not None:
        found.append(f"Plan: H = {plan['local_steps']} local steps a round, {number(plan['rounds'])} rounds.")
    found.append(f"The {books['pilots']} pilots would cost {number(books['joules'])} J on the devices.")
    if paid is not None:
        found.append(f"They pay for themselves after {paid:,} training{'' if paid == 1 else 's'}.")
    return [*found, *map(str, record["notes"])]


def _law(record: dict[str, Any]) -> Numbers:
    belief = record["belief"]
    rows = [
        (name, number(value), *(number(end) for end in belief["intervals"].get(name, ())))
        for name, value in belief["law"].items()
        if name in belief["intervals"]
    ]
    return Numbers(("constant of the rounds law", "value", "low", "high"), tuple(rows))


def _text(file: Path) -> str:
    from fewjoules.files import read_text

    return read_text(file)[:MAX_TEXT] if file.exists() else ""
