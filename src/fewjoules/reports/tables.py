"""Plans as tables for the terminal."""

from collections.abc import Sequence

import numpy as np
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from fewjoules.arrays import FloatArray
from fewjoules.planner.plan import Plan
from fewjoules.scenario import Scenario

MAX_GROUPS_SHOWN = 20


def plan_report(scenario: Scenario, plans: Sequence[Plan]) -> Stack:
    """Return the choices and costs of each plan, its sparsity by group, and the proved bound."""
    parts: list[RenderableType] = [
        _headline(scenario),
        "",
        _energy_table(plans),
        "",
        _sparsity_table(scenario, plans),
        "",
    ]
    return Stack(*parts, *(_proof(plan) for plan in plans if plan.solver == "benders" or len(plans) == 1))


def number(value: float) -> str:
    """Format a number with four significant digits and thousands separated, or as a power of ten."""
    if value == 0.0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.4g}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.3e}"


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


def _energy_table(plans: Sequence[Plan]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    best = min(plan.energy_joules for plan in plans)
    ratio = len(plans) > 1
    table.add_column("scheme")
    for title in ("H", "rounds", "joules", "radio J", "compute J", "seconds", "proved gap"):
        table.add_column(title, justify="right")
    if ratio:
        table.add_column("x least", justify="right")
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
        cells = [_span(plan.sparsity[part]) for plan in plans]
        if len(plans) == 1:
            cells.append(_span(plans[0].kept_entries(scenario.parameters)[part].astype(np.float64), "{:,.0f}"))
        table.add_row(escape(group.name), f"{group.count:,}", *cells)
    hidden = len(scenario.groups) - MAX_GROUPS_SHOWN
    if hidden > 0:
        rest = [_span(plan.sparsity[first:]) for plan in plans]
        table.add_row(f"... {hidden:,} more groups", f"{len(scenario.fleet) - first:,}", *rest)
    return table


def _span(values: FloatArray, form: str = "{:.4g}") -> str:
    low, high = form.format(values.min()), form.format(values.max())
    return low if low == high else f"{low} to {high}"


def _proof(plan: Plan) -> str:
    if plan.solver == "benders" and plan.effort:
        outer, inner = plan.effort["outer_iterations"], plan.effort["inner_iterations"]
        return f"{plan.scheme}: Algorithm 2 took {outer} outer and {inner} inner iterations; it proves no bound."
    if plan.lower_bound_joules is None:
        return f"{plan.scheme}: nothing is planned, so nothing is proved."
    return f"{plan.scheme}: proved that no plan within the limits costs less than {plan.lower_bound_joules:.10g} J."
