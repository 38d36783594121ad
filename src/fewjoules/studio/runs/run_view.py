"""One run for the browser: its figures while it trains and after, predicted against measured, and its commands."""

from typing import Any

import numpy as np

from fewjoules.errors import FewJoulesError
from fewjoules.physics.message_size import MessageSize
from fewjoules.reports.comparison import headline, remarks
from fewjoules.reports.figure_words import Numbers
from fewjoules.reports.numbers import number
from fewjoules.reports.page_figures import Section, sections
from fewjoules.reports.progress_figures import progress_sections
from fewjoules.runs.results import RunResults
from fewjoules.studio.access import Workspace
from fewjoules.studio.runs.commands import commands_of
from fewjoules.studio.runs.folders import FINISHED, RUNNING, look_at
from fewjoules.studio.runs.ledger_sums import Sums, sums_of, totals_of
from fewjoules.studio.runs.ongoing import tables_of
from fewjoules.studio.runs.reading import folder_of, results_of
from fewjoules.studio.runs.section_json import numbers_json, sections_json

MAX_TEXT = 65_536  # characters of a scenario that are shown
_FORECAST = "Predicted and measured"  # a section of the page


def run_view(workspace: Workspace, name: str) -> dict[str, Any]:
    """Return all that the view of a run shows."""
    found = folder_of(workspace, name)
    state, run = results_of(found)
    sums = sums_of(found.path)
    parent = None if found.parent is None else look_at(found.parent, workspace.root)
    drawn = [*sections([run]), *progress_sections([run], totals_of(sums))]
    return {
        "folder": workspace.name(found.path),
        "parent": None if found.parent is None else workspace.name(found.parent),
        "state": state,
        "headline": _headline(run, state),
        "remarks": remarks([run]) if state == FINISHED else [],
        "sections": sections_json([one for one in _ordered(drawn) if _is_told(one, state)]),
        "predicted": numbers_json(predictions(run, sums)),
        "ledger_round": int(sums.first_round + sums.by_round.shape[0] - 1),
        "facts": [[key, value] for key, value in run.summary.facts.items()],
        "scenario": run.scenario_text[:MAX_TEXT],
        "commands": commands_of(found, state, workspace, parent),
    }


def _is_told(section: Section, state: str) -> bool:
    """Whether a section tells more than the table of predictions does."""
    return section.title != _FORECAST or (state == FINISHED and bool(section.panels))


def _ordered(found: list[Section]) -> list[Section]:
    """Put what grows from round to round before what is known of devices."""
    first = ("Test accuracy by round", "Test error by energy", "Test loss", "Training loss", "Joules by kind", "Bits")
    own = [one for start in first for one in found if one.title.startswith(start)]
    return [*own, *(one for one in found if one not in own)]


def _headline(run: RunResults, state: str) -> str:
    if state == FINISHED:
        return headline([run])
    summary = run.summary
    joules = "" if summary.joules is None else f" and {number(summary.joules)} J"
    rounds = f"{summary.rounds:,} round{'' if summary.rounds == 1 else 's'}"
    if state == RUNNING:
        return f"{summary.scheme} is training: {rounds}{joules} so far."
    return f"{summary.scheme} was stopped; {rounds}{joules} are kept."


def predictions(run: RunResults, sums: Sums) -> Numbers:
    """Return what the plan predicted beside what was measured so far, for the target or the rounds of the run."""
    plan, summary = run.plan, run.summary
    if plan is None:
        return Numbers(("quantity", "predicted", "measured", "measured / predicted"), ())
    reached = summary.reached
    rows = [
        ("rounds", plan.rounds, summary.rounds_to_target if reached else summary.rounds),
        ("joules", plan.energy_joules, summary.joules_to_target if reached else summary.joules),
        ("radio joules", plan.radio_joules, _known(run.at_target("total_radio_joules"))),
        ("compute joules", plan.compute_joules, _known(run.at_target("total_compute_joules"))),
        ("seconds", plan.seconds, summary.seconds_to_target if reached else summary.seconds),
        ("bits of a message, mean", predicted_message_bits(run), _measured_message_bits(run, sums)),
    ]
    return Numbers(("quantity", "predicted", "measured", "measured / predicted"), tuple(_cells(*row) for row in rows))


def predicted_message_bits(run: RunResults) -> float | None:
    """Return the mean bits of a message by the law that the plan was made with; None if the scenario has no such law.

    A model's running statistics, which go with every message, are not in it.
    """
    plan, tables = run.plan, tables_of(run.scenario_text)
    if plan is None or plan.parameters is None or not tables:
        return None
    model = tables.get("model") if isinstance(tables.get("model"), dict) else {}
    recipe = tables.get("recipe") if isinstance(tables.get("recipe"), dict) and plan.recipe is not None else {}
    told = (recipe or {}).get("message_size", (model or {}).get("message_size"))
    try:
        law = MessageSize(**told) if told else MessageSize.formula_25(int((model or {}).get("value_bits", 32)))
    except (FewJoulesError, TypeError, ValueError):
        return None
    return float(np.mean(law.bits(plan.parameters, plan.sparsity)))


def _measured_message_bits(run: RunResults, sums: Sums) -> float | None:
    """Return the mean bits of the payloads in the rounds that the ledger has."""
    last = sums.first_round + sums.by_round.shape[0] - 1
    booked = run.metrics[run.metrics["round"] <= last]
    return 8.0 * float(booked["total_payload_bytes"][-1]) / sums.rows if booked.size and sums.rows else None


def _cells(name: str, predicted: float | None, measured: float | None) -> tuple[str, ...]:
    told = ["-" if value is None else number(value) for value in (predicted, measured)]
    factor = "-" if not predicted or measured is None else f"{measured / predicted:.3g}"
    return (name, *told, factor)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
