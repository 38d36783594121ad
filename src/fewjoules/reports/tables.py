"""Plans as tables for the terminal."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from fewjoules.arrays import FloatArray
from fewjoules.physics.points import OperatingPoints
from fewjoules.planner.plan import Plan, kept_of
from fewjoules.planner.schemes import FEWEST
from fewjoules.reports.numbers import brief, number, span
from fewjoules.reports.plan_remarks import plan_remarks
from fewjoules.reports.split import joules_of_kinds, joules_of_marks, listed, with_shares
from fewjoules.scenario import Scenario
from fewjoules.scenario.planning import ScenarioPlans

MAX_GROUPS_SHOWN = 20


def plan_report(planning: ScenarioPlans, plans: Sequence[Plan], optimum: Plan | None = None) -> Stack:
    """Return the choices and costs of each plan, its choices by group, what is proved and what is not.

    ``optimum`` is the proved plan of least energy, to stand beside plans of a solver that proves nothing.
    """
    scenario = planning.scenario
    shown = plans if optimum is None else [*plans, replace(optimum, scheme="optimum")]
    parts: list[RenderableType] = [
        _headline(planning, plans),
        "",
        _energy_table(shown, optimum),
        "",
        *map(escape, _split_lines(min(shown, key=lambda plan: plan.energy_joules))),
        _sparsity_table(scenario, shown),
        "",
    ]
    points = scenario.fleet.operating_points
    if points is not None:
        parts += [_points_table(scenario, points, shown), ""]
    return Stack(*parts, *map(escape, plan_remarks(planning, plans)))


def _headline(planning: ScenarioPlans, plans: Sequence[Plan]) -> str:
    """Return what is planned and its limits, those of a recipe apart, and the recipe."""
    scenario = planning.scenario
    devices = f"{len(scenario.fleet):,} device{'s' * (len(scenario.fleet) != 1)}"
    beside = f" and {scenario.statistics:,} statistics, sent whole" if scenario.statistics else ""
    lines = [f"{escape(scenario.name)}: {devices}, {scenario.parameters:,} parameters{beside}"]
    limits = {plan.scheme: _limits(planning.scenario_of(plan.scheme)) for plan in plans}
    papers = [text for scheme, text in limits.items() if scheme != FEWEST]
    lines += [f"limits: {papers[0]}"] if papers else []
    if FEWEST in limits and limits[FEWEST] not in papers:
        lines.append(f"limits{' of fewest' if papers else ''}: {limits[FEWEST]}")
    if FEWEST in limits and scenario.recipe is not None:
        lines.append(f"recipe: {escape(scenario.recipe.name)} ({escape(scenario.recipe.describe())})")
    return "\n".join(lines)


def _limits(scenario: Scenario) -> str:
    low, high = scenario.sparsity
    steps = scenario.local_steps
    chosen = f"{min(steps)} to {max(steps)}" if isinstance(steps, range) else ", ".join(map(str, steps[:12]))
    limits = f"sparsity {low:g} to {min(high, scenario.parameters):g}, H {chosen}"
    if scenario.round_seconds is not None:
        limits += f", rounds of at most {scenario.round_seconds:g} s"
    participants, devices = scenario.participants, len(scenario.fleet)
    return limits if participants == devices else f"{limits}, {participants} of {devices} devices in each round"


def _energy_table(plans: Sequence[Plan], optimum: Plan | None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    best = min(plan.energy_joules for plan in plans) if optimum is None else optimum.energy_joules
    ratio = len(plans) > 1
    table.add_column("scheme")
    for title in ("H", "rounds", "joules", "radio J", "compute J", "seconds", "proved gap"):
        table.add_column(title, justify="right")
    if ratio:
        table.add_column("x least" if optimum is None else "x optimum", justify="right")
    for plan in plans:
        gap = plan.relative_gap
        cells = [
            plan.scheme,
            str(plan.local_steps),
            number(plan.rounds),
            number(plan.energy_joules),
            number(plan.radio_joules),
            number(plan.compute_joules),
            "unknown" if plan.seconds is None else number(plan.seconds),
            "-" if gap is None else "0" if gap <= 0.0 else f"{gap:.0e}",
        ]
        table.add_row(*cells, *([f"{plan.energy_joules / best:.3f}" if best > 0.0 else "-"] if ratio else []))
    return table


def _split_lines(plan: Plan) -> list[str]:
    """Return the joules of a plan by kind, and by where they come from."""
    marks = with_shares(joules_of_marks(plan.joules))
    if not marks:
        return []
    kinds = {kind: f"{brief(joules)} J" for kind, joules in joules_of_kinds(plan.joules).items()}
    return [f"{plan.scheme} by kind: {listed(kinds)}", f"of {number(plan.energy_joules)} J: {listed(marks)}", ""]


def _sparsity_table(scenario: Scenario, plans: Sequence[Plan]) -> Table:
    """Return the sparsity by group and that of the server; a group whose devices differ shows its range."""
    alone = len(plans) == 1

    def cells(sparsities: Sequence[FloatArray]) -> list[str]:
        entries = [span(kept_of(sparsities[0], scenario.parameters), "{:,}")] if alone else []
        return [*map(span, sparsities), *entries]

    table = _group_table("sparsity of", plans)
    if alone:
        table.add_column("entries sent", justify="right")
    for name, part in _shown_groups(scenario):
        table.add_row(escape(name), f"{part.stop - part.start:,}", *cells([plan.sparsity[part] for plan in plans]))
    server = [np.array([plan.downlink_sparsity]) for plan in plans if plan.downlink_sparsity is not None]
    if server:
        table.add_row("server", "", *cells(server))
    return table


def _points_table(scenario: Scenario, points: OperatingPoints, plans: Sequence[Plan]) -> Table:
    """Return the operating points by group, the first of which is 1."""
    table = _group_table("operating point of", plans)
    available = np.isfinite(points.joules_per_step).sum(axis=0)
    for name, part in _shown_groups(scenario):
        chosen = [None if plan.operating_points is None else 1 + plan.operating_points[part] for plan in plans]
        cells = ["-" if own is None else f"{span(own)} of {span(available[part])}" for own in chosen]
        table.add_row(escape(name), f"{part.stop - part.start:,}", *cells)
    return table


def _group_table(title: str, plans: Sequence[Plan]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title)
    for name in ("devices", *(plan.scheme for plan in plans)):
        table.add_column(name, justify="right")
    return table


def _shown_groups(scenario: Scenario) -> list[tuple[str, slice]]:
    """Return the name and the devices of each group; of many groups the last ones become one."""
    ends = np.cumsum([0, *(group.count for group in scenario.groups)]).tolist()
    parts = [
        (group.name, slice(first, last))
        for group, first, last in zip(scenario.groups, ends[:-1], ends[1:], strict=True)
    ]
    hidden = parts[MAX_GROUPS_SHOWN:]
    if not hidden:
        return parts
    rest = (f"... {len(hidden):,} more groups", slice(hidden[0][1].start, hidden[-1][1].stop))
    return [*parts[:MAX_GROUPS_SHOWN], rest]
