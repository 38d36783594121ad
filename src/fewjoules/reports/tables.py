"""Plans as tables for the terminal."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.reports.numbers import number, span
from fewjoules.reports.plan_remarks import plan_remarks
from fewjoules.scenario import Scenario

MAX_GROUPS_SHOWN = 20


def plan_report(
    scenario: Scenario, problem: ControlProblem, plans: Sequence[Plan], optimum: Plan | None = None
) -> Stack:
    """Return the choices and costs of each plan, its sparsity by group, what is proved and what is not.

    ``optimum`` is the proved plan of least energy, to stand beside plans of a solver that proves nothing.
    """
    shown = plans if optimum is None else [*plans, replace(optimum, scheme="optimum")]
    parts: list[RenderableType] = [
        _headline(scenario),
        "",
        _energy_table(shown, optimum),
        "",
        _sparsity_table(scenario, shown),
        "",
    ]
    return Stack(*parts, *map(escape, plan_remarks(problem, plans, scenario.rounds_intervals)))


def _headline(scenario: Scenario) -> str:
    low, high = scenario.sparsity
    steps = scenario.local_steps
    chosen = f"{min(steps)} to {max(steps)}" if isinstance(steps, range) else ", ".join(map(str, steps[:12]))
    limits = f"sparsity {low:g} to {min(high, scenario.parameters):g}, H {chosen}"
    if scenario.round_seconds is not None:
        limits += f", rounds of at most {scenario.round_seconds:g} s"
    devices = f"{len(scenario.fleet):,} device{'s' * (len(scenario.fleet) != 1)}"
    beside = f" and {scenario.statistics:,} statistics, sent whole" if scenario.statistics else ""
    return f"{escape(scenario.name)}: {devices}, {scenario.parameters:,} parameters{beside}\nlimits: {limits}"


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


def _sparsity_table(scenario: Scenario, plans: Sequence[Plan]) -> Table:
    """Return the sparsity by group; a group whose devices differ shows its range."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("sparsity of")
    table.add_column("devices", justify="right")
    for plan in plans:
        table.add_column(plan.scheme, justify="right")
    if len(plans) == 1:
        table.add_column("entries sent", justify="right")
    first = 0
    for group in scenario.groups[:MAX_GROUPS_SHOWN]:
        part = slice(first, first + group.count)
        first += group.count
        cells = [span(plan.sparsity[part]) for plan in plans]
        if len(plans) == 1:
            cells.append(span(plans[0].kept_entries(scenario.parameters)[part].astype(np.float64), "{:,.0f}"))
        table.add_row(escape(group.name), f"{group.count:,}", *cells)
    hidden = len(scenario.groups) - MAX_GROUPS_SHOWN
    if hidden > 0:
        rest = [span(plan.sparsity[first:]) for plan in plans]
        table.add_row(f"... {hidden:,} more groups", f"{len(scenario.fleet) - first:,}", *rest)
    return table
