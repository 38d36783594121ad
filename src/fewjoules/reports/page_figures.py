"""The sections of the page: figures with captions, words and numbers. page_traces.py has what they are drawn with."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fewjoules.ledger.target import percent
from fewjoules.planner.levers import LEVERS
from fewjoules.provenance import KINDS
from fewjoules.reports import curves, figure_words
from fewjoules.reports.booked import booked_by_kind, booked_by_mark, mean_joules_of_kinds
from fewjoules.reports.comparison import shared_accuracy, shared_target
from fewjoules.reports.page_traces import (
    device_panel,
    dumbbell,
    extent,
    kind_rows,
    lines,
    named_axis,
    rounds_axis,
    seed_traces,
    trace_of,
)
from fewjoules.reports.plotly_parts import Json, axis_of, layout_of, line_at, log_axis_of
from fewjoules.reports.seeds import grouped, lever_times, several_seeds
from fewjoules.runs.results import RunResults


@dataclass(frozen=True, slots=True)
class Section:
    """One heading of the page with its panels, or only a caption or a table where there is nothing to draw.

    ``words`` describe each panel in a sentence, ``numbers`` hold what the panels show, and ``legend`` has the colours
    that all panels share by what they stand for.
    """

    title: str
    caption: str
    panels: tuple[Json, ...] = ()
    words: tuple[str, ...] = ()
    numbers: figure_words.Numbers | None = None
    legend: Mapping[str, str] = field(default_factory=dict)


def sections(runs: Sequence[RunResults]) -> list[Section]:
    """Return the sections of the figures, and tables of the joules by kind and mark where runs tell them."""
    figures = [_accuracy(runs), _error(runs), _joules(runs), *_booked(runs), _sparsity(runs), _forecast(runs)]
    return [*_levers(runs), *_seeds(runs), *figures]


def _levers(runs: Sequence[RunResults]) -> list[Section]:
    """Return what each lever brings, one bar each in their order, where levers are compared."""
    groups = grouped(runs)
    times = lever_times(groups)
    told = {group: mean_joules_of_kinds(group) for group in groups if group.scheme in LEVERS}
    if not times or not all(told.values()):
        return []
    kinds = [kind for kind in KINDS if any(kind in joules for joules in told.values())]
    panel = kind_rows(
        [group.name for group in told],
        {kind: [joules.get(kind, 0.0) for joules in told.values()] for kind in kinds},
    )
    means = " Means over the seeds." if several_seeds(groups) else ""
    missed = [group.name for group in told if group.missed]
    short = f" Not at the target: {', '.join(missed)}." if missed else ""
    caption = f"Each bar has one change more than the one above it.{means}{short}"
    words = figure_words.levers_in_words({g.name: (sum(j.values()), times.get(g.scheme)) for g, j in told.items()})
    legend = {kind: curves.KIND_COLOURS[kind] for kind in kinds}
    return [Section("What each lever brings", caption, (panel,), (words,), legend=legend)]


def _seeds(runs: Sequence[RunResults]) -> list[Section]:
    """Return the joules of each seed, where there are several."""
    drawn = curves.seed_points(runs)
    if not drawn:
        return []
    data = [trace for place, points in enumerate(drawn) for trace in seed_traces(points, place)]
    y_axis = named_axis([points.look.label for points in drawn], most=len(drawn))
    y_axis |= {"tickangle": 0, "range": [len(drawn) - 0.5, -0.5]}
    values = [joules for points in drawn for joules in points.joules]
    what = "energy of all devices" if shared_target(runs) is None else "energy of all devices to the target"
    layout = layout_of(log_axis_of(f"{what} (J)", values), y_axis)
    layout |= {"showlegend": False, "height": 100 + 36 * len(drawn)}
    caption = "Circles: one seed each. Bar: their mean."
    if not all(reached for points in drawn for reached in points.reached) and shared_target(runs) is not None:
        caption += " A triangle: the run stopped before it met the target."
    words = figure_words.seeds_in_words(drawn)
    return [Section("Energy by seed", caption, ({"data": data, "layout": layout},), (words,))]


def _accuracy(runs: Sequence[RunResults]) -> Section:
    title = "Test accuracy by round"
    drawn = curves.accuracy_curves(runs)
    if not drawn:
        return Section(title, "No round has a test accuracy, so there is nothing to draw.")
    last = [float(curve.x[-1]) for curve in drawn]
    x_axis = log_axis_of("rounds", extent(drawn, "x")) if curves.is_wide(last) else rounds_axis(max(last))
    target = shared_accuracy(runs)
    low, high = curves.accuracy_range(drawn, target)
    layout = layout_of(x_axis, axis_of("test accuracy (%)", low, high))
    one_each = " Each seed has a line." if any(curve.seed is not None for curve in drawn) else ""
    caption = "Ringed: the evaluation that met the target." if any(curve.goal for curve in drawn) else ""
    if target is not None:
        layout["shapes"] = [line_at(100.0 * target)]
        caption = f"Dotted: the target of {percent(target)}. {caption}"
    words = figure_words.accuracy_in_words(drawn)
    return Section(title, f"{caption}{one_each}".strip(), (lines(drawn, layout, "round %{x:,}: %{y:.2f} %"),), (words,))


def _error(runs: Sequence[RunResults]) -> Section:
    title = "Test error by energy"
    drawn = curves.error_curves(runs)
    if not drawn:
        return Section(title, "Joules or test accuracies are missing, so there is nothing to draw.")
    target = shared_accuracy(runs)
    errors = [*extent(drawn, "y"), *([] if target is None else [100.0 * (1.0 - target)])]
    layout = layout_of(
        log_axis_of("energy of all devices (J)", extent(drawn, "x")), log_axis_of("test error (%)", errors)
    )
    if target is not None and target < 1.0:
        layout["shapes"] = [line_at(100.0 * (1.0 - target))]
    caption = "Further left is cheaper, further down is better."
    if any(np.any(run.metrics["test_accuracy"] >= 1.0) for run in runs):
        caption += " An error of 0 is drawn at half the least other error."
    words = figure_words.error_in_words(drawn)
    return Section(title, caption, (lines(drawn, layout, "%{x:.4g} J: error %{y:.3g} %"),), (words,))


def _joules(runs: Sequence[RunResults]) -> Section:
    title = "Energy by device"
    drawn = curves.device_bars(runs)
    if not drawn:
        return Section(title, "Joules are unknown, so there is nothing to draw.")
    legend = {kind: curves.KIND_COLOURS[kind] for kind in KINDS if any(kind in bars.joules for bars in drawn)}
    caption = "Joules of the whole run."
    if any(bars.least is not None for bars in drawn):
        caption = "Joules of the whole run, means over the seeds; lines: least to most."
    if any(bars.names is None for bars in drawn):
        caption += " Devices are sorted by their joules; a bar is the mean of its neighbours."
    if len(drawn) > 1:
        caption += " Each panel has its own scale."
    panels = tuple(device_panel(bars, titled=len(drawn) > 1) for bars in drawn)
    words = tuple(figure_words.bars_in_words(bars) for bars in drawn)
    return Section(title, caption, panels, words, figure_words.joules_table(drawn), legend)


def _booked(runs: Sequence[RunResults]) -> list[Section]:
    """Return the joules of each run by kind and by mark, as tables."""
    groups = grouped(runs)
    means = " Means over the seeds." if several_seeds(groups) else ""
    marks = (
        "Joules of the whole run by where their costs come from: a meter on the device (measured), a model of it "
        "(fitted), published figures of such devices (profile), or none of these (assumed)."
    )
    found = [
        ("Energy by kind", f"Joules of the whole run, all devices.{means}", booked_by_kind(groups)),
        ("Where the joules come from", f"{marks}{means}", booked_by_mark(groups)),
    ]
    return [Section(title, caption, numbers=numbers) for title, caption, numbers in found if numbers is not None]


def _sparsity(runs: Sequence[RunResults]) -> Section:
    names, drawn = curves.sparsity_curves(runs)
    data = []
    for curve in drawn:
        trace = trace_of(curve, "sparsity %{y:.4g}")
        if names is None:
            trace["mode"] = "lines"
        else:
            trace |= {"mode": "markers", "hovertext": [html.escape(name) for name in names]}
            trace["hovertemplate"] = "%{hovertext}: " + trace["hovertemplate"]
            trace["marker"] |= {"size": 8}
        data.append(trace)
    x_axis = axis_of("devices, sorted (%)", 0.0, 100.0) if names is None else named_axis(names)
    layout = layout_of(x_axis, log_axis_of("sparsity", extent(drawn, "y")), names)
    layout["showlegend"] = len(drawn) > 1
    caption = "At sparsity 100 a device sends one entry in 100."
    words = (figure_words.sparsity_in_words(drawn),)
    numbers = figure_words.sparsity_table(names, drawn)
    return Section("Sparsity by device", caption, ({"data": data, "layout": layout},), words, numbers)


def _forecast(runs: Sequence[RunResults]) -> Section:
    title = "Predicted and measured"
    found = {kind: rows for kind, rows in curves.forecasts(runs).items() if rows}
    if not found:
        return Section(title, _why_not_compared(runs))
    panels = []
    for kind, rows in found.items():
        data = [trace for place, row in enumerate(rows) for trace in dumbbell(row, place)]
        values = [value for row in rows for value in (row.predicted, row.measured, row.least, row.most) if value]
        y_axis = named_axis([row.look.label for row in rows], most=len(rows))
        y_axis |= {"tickangle": 0, "range": [len(rows) - 0.5, -0.5]}
        layout = layout_of(log_axis_of(f"{kind} to the target", values), y_axis)
        layout |= {"showlegend": False, "height": 100 + 36 * len(rows)}
        panels.append({"data": data, "layout": layout})
    caption = "Open: the plan's prediction. Filled: the run."
    if any(row.least is not None for rows in found.values() for row in rows):
        caption = "Open: the plan's prediction. Filled: the mean of the runs; line with ends: least to most."
    if any(not row.reached for rows in found.values() for row in rows):
        caption += " A triangle: the run stopped before it met the target."
    words = tuple(figure_words.forecasts_in_words(kind, rows) for kind, rows in found.items())
    return Section(title, caption, tuple(panels), words, figure_words.forecast_table(found))


def _why_not_compared(runs: Sequence[RunResults]) -> str:
    what = "this run" if len(runs) == 1 else "these runs"
    if all(run.summary.target is None for run in runs):
        return f"Nothing is drawn: a plan predicts rounds and joules to a target, and {what} had no target."
    if all(run.plan is None for run in runs):
        return f"Nothing is drawn: {what} had no plan to predict rounds and joules to the target."
    return f"Nothing is drawn: {what} had no plan with a target, or no round was trained."
