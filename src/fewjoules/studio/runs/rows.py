"""The list of all folders of results as rows of plain values."""

import math
from typing import Any

from fewjoules.errors import FewJoulesError
from fewjoules.ledger.target import Target
from fewjoules.reports.levers import label_of
from fewjoules.runs.belief_log import beliefs_of
from fewjoules.runs.files import BELIEFS, COMPARISON, PILOTS, RUN, TUNING
from fewjoules.runs.pilot_lines import journal_of
from fewjoules.runs.results import RunSummary, plain_text
from fewjoules.studio.access import Workspace
from fewjoules.studio.runs.folders import (
    COMPARISON_KIND,
    DAMAGED,
    FINISHED,
    RUN_KIND,
    Found,
    changed_at,
    find_folders,
    sealed_at,
    state_of,
)
from fewjoules.studio.runs.reading import summary_of

COLUMNS = ("kind", "scenario", "scheme", "state", "rounds", "metric", "joules", "bits", "seconds", "changed")


def listed(workspace: Workspace) -> dict[str, Any]:
    """Return a row for each folder of results below the workspace, and whether all of it was looked at."""
    found, complete = find_folders(workspace.root)
    return {"rows": [row_of(one, workspace) for one in found], "complete": complete, "root": str(workspace.root)}


def row_of(found: Found, workspace: Workspace) -> dict[str, Any]:
    """Return what a list tells of a folder; a damaged one has a problem, and nothing else that is known."""
    try:
        own = {RUN_KIND: _run, COMPARISON_KIND: _comparison}.get(found.kind, _tuning)(found)
    except (FewJoulesError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        own = {"state": DAMAGED, "problem": " ".join(str(error).split()) or "a file of it is damaged"}
    told = {"scenario": plain_text(found.settings.get("scenario", "")), "scheme": "", "problem": None}
    blank = dict.fromkeys(("rounds", "metric", "metric_value", "joules", "bits", "seconds"))
    parent = None if found.parent is None else workspace.name(found.parent)
    place = {"folder": workspace.name(found.path), "kind": found.kind, "parent": parent}
    row = {**place, **told, **blank, **own, "changed": changed_at(found.path)}
    below = f"{workspace.root}/"
    return row | {name: row[name] and row[name].replace(below, "") for name in ("scenario", "problem")}


def _run(found: Found) -> dict[str, Any]:
    state, summary, problem = summary_of(found)
    if summary is None:
        return {"state": state, "problem": " ".join((problem or "").split())}
    return {
        "state": state,
        "scenario": summary.scenario,
        "scheme": label_of(summary.scheme) + ("" if summary.seed is None else f", seed {summary.seed}"),
        "rounds": summary.rounds,
        "metric": None if summary.tested is None else _aim(summary).said(summary.tested),
        "metric_value": _finite(summary.tested),
        "joules": _finite(summary.joules),
        "bits": _bits(found, state),
        "seconds": _finite(summary.seconds),
    }


def _aim(summary: RunSummary) -> Target:
    return summary.target if summary.target is not None else Target("accuracy", 1.0)


def _bits(found: Found, state: str) -> int | None:
    """Return the bits of all payloads: of a finished run from run.json, of another one from its metrics."""
    if state == FINISHED:
        told = sealed_at(found.path / RUN).get("payload_bytes")
        return 8 * told if isinstance(told, int) else None
    from fewjoules.runs.live_rows import metrics_so_far

    rows = metrics_so_far(found.path, living=state != "stopped")
    return 8 * int(rows["total_payload_bytes"][-1]) if rows.size else None


def _comparison(found: Found) -> dict[str, Any]:
    state = state_of(found)
    told: dict[str, Any] = {"state": state, "problem": found.problem}
    schemes = found.settings.get("schemes", [])
    names = schemes if isinstance(schemes, list) else []
    if state == FINISHED:
        data = sealed_at(found.path / COMPARISON)
        names = [one["scheme"] for one in data["schemes"]]
        told["scenario"] = plain_text(data["scenario"])
    shown = ", ".join(plain_text(label_of(str(name))) for name in names[:4]) + (" …" if len(names) > 4 else "")
    return told | {"scheme": shown}


def _tuning(found: Found) -> dict[str, Any]:
    state = state_of(found)
    if state == DAMAGED:
        return {"state": state, "problem": found.problem}
    if state == FINISHED:
        data = sealed_at(found.path / TUNING)
        books = data["books"]
        return {
            "state": state,
            "scenario": plain_text(data["scenario"]),
            "scheme": plain_text(data["recipe"]["name"]),
            "rounds": int(books["pilots"]),
            "joules": _finite(books["joules"]),
        }
    _, pilots = journal_of(found.path / PILOTS)
    beliefs = beliefs_of(found.path / BELIEFS)
    best = beliefs[-1] if beliefs else {}
    return {
        "state": state,
        "scheme": plain_text(best.get("optimiser", "")),
        "rounds": len(pilots),
        "joules": _finite(best.get("joules")),
    }


def _finite(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None
