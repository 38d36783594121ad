"""A plan by groups of equal devices: what each group sends and spends, and where its costs come from."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fewjoules.planner.choosing_points import at_points
from fewjoules.planner.plan import Plan, kept_of
from fewjoules.provenance import KINDS, MARKS
from fewjoules.scenario.folder import ScenarioFolder
from fewjoules.scenario.profiles import with_profiles
from fewjoules.studio.plan.edited import Edited
from fewjoules.studio.plan.standing import Standing

MOST_DRAWN = 24
MOST_LISTED = 500

Row = dict[str, Any]


def group_rows(small: Standing, plan: Plan) -> list[Row]:
    """Return a row for each group; devices of a group are equal, so that its first one tells all."""
    problem = small.planning.problem(plan.scheme)
    if plan.operating_points is not None:
        problem = at_points(problem, plan.operating_points)
    kinds = problem.round_costs.joules_by_kind(plan.local_steps, plan.sparsity, plan.downlink_sparsity)
    groups = small.scenario.groups
    counts = np.array([group.count for group in groups])
    first = np.cumsum(counts) - counts
    entries = kept_of(plan.sparsity[first], problem.parameters)
    return [
        {
            "name": group.name,
            "count": int(count) * small.each,
            "sparsity": float(plan.sparsity[place]),
            "entries": int(sent),
            "joules": {kind: plan.rounds * float(kinds[kind][place]) * int(count) * small.each for kind in KINDS},
            "marks": {kind: MARKS[problem.fleet.provenance[kind][place]] for kind in KINDS},
            "point": None if plan.operating_points is None else 1 + int(plan.operating_points[place]),
        }
        for group, count, place, sent in zip(groups, counts, first, entries, strict=True)
    ][:MOST_LISTED]


def shown_groups(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the joules by kind of each group; of many groups the last ones become one."""
    shown: dict[str, dict[str, float]] = {}
    for row in rows[:MOST_DRAWN]:
        shown[_unused(row["name"], shown)] = row["joules"]
    rest = rows[MOST_DRAWN:]
    if rest:
        name = _unused(f"{len(rest):,} more groups", shown)
        shown[name] = {kind: sum(row["joules"][kind] for row in rest) for kind in KINDS}
    return shown


def _unused(name: str, taken: dict[str, dict[str, float]]) -> str:
    """Return a name that is not taken: groups may share one."""
    number = 2
    made = name
    while made in taken:
        made, number = f"{name} ({number})", number + 1
    return made


def completed_devices(edited: Edited) -> list[dict[str, Any]]:
    """Return each device with the costs that its profile adds, to be shown where the page states none."""
    devices, _ = with_profiles(edited.tables.get("device"), ScenarioFolder(edited.folder))
    return list(devices)[:MOST_LISTED]
