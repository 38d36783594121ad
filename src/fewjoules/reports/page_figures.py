"""The figures of the page as plotly.js JSON. The theme of the page replaces colours that start with @."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.planner.levers import LEVERS
from fewjoules.provenance import KINDS
from fewjoules.reports import curves, figure_words
from fewjoules.reports.booked import booked_by_kind, booked_by_mark, mean_joules_of_kinds
from fewjoules.reports.comparison import common_target, percent
from fewjoules.reports.curves import Curve, Look
from fewjoules.reports.seeds import grouped, lever_times, several_seeds
from fewjoules.runs.results import RunResults

FEW_POINTS = 40  # up to this many, each point is marked
FEW_ROUNDS = 12  # up to this many, each round has a tick
TILTED_PIXELS = 4.4  # room for a character of a tilted name
_INK, _GRID, _PAPER = "@ink", "@grid", "@paper"
_BLACK = "#000000"
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_SYMBOLS = {
    "o": "circle",
    "s": "square",
    "v": "triangle-down",
    "^": "triangle-up",
    "X": "x",
    "D": "diamond",
    "P": "cross",
}

Json = dict[str, Any]


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
    data = [_lever_trace(kind, [joules.get(kind, 0.0) for joules in told.values()]) for kind in kinds]
    y_axis = _named_axis([group.name for group in told], most=len(told))
    y_axis |= {"tickangle": 0, "range": [len(told) - 0.5, -0.5]}
    layout = _layout(_axis("energy of all devices (J)"), y_axis)
    layout |= {"barmode": "stack", "bargap": 0.35, "showlegend": False, "height": 100 + 36 * len(told)}
    means = " Means over the seeds." if several_seeds(groups) else ""
    missed = [group.name for group in told if group.missed]
    short = f" Not at the target: {', '.join(missed)}." if missed else ""
    caption = f"Each bar has one change more than the one above it.{means}{short}"
    words = figure_words.levers_in_words({g.name: (sum(j.values()), times.get(g.scheme)) for g, j in told.items()})
    legend = {kind: curves.KIND_COLOURS[kind] for kind in kinds}
    return [Section("What each lever brings", caption, ({"data": data, "layout": layout},), (words,), legend=legend)]


def _lever_trace(kind: str, joules: Sequence[float]) -> Json:
    return {
        "type": "bar",
        "orientation": "h",
        "name": kind,
        "x": _numbers(np.array(joules)),
        "y": list(range(len(joules))),
        "marker": {"color": curves.KIND_COLOURS[kind], "line": {"width": 0}},
        "hovertemplate": "%{x:.4g} J<extra>" + kind + "</extra>",
    }


def _seeds(runs: Sequence[RunResults]) -> list[Section]:
    """Return the joules of each seed, where there are several."""
    drawn = curves.seed_points(runs)
    if not drawn:
        return []
    data = [trace for place, points in enumerate(drawn) for trace in _seed_traces(points, place)]
    y_axis = _named_axis([points.look.label for points in drawn], most=len(drawn))
    y_axis |= {"tickangle": 0, "range": [len(drawn) - 0.5, -0.5]}
    values = [joules for points in drawn for joules in points.joules]
    what = "energy of all devices" if common_target(runs) is None else "energy of all devices to the target"
    layout = _layout(_log_axis(f"{what} (J)", values), y_axis)
    layout |= {"showlegend": False, "height": 100 + 36 * len(drawn)}
    caption = "Circles: one seed each. Bar: their mean."
    if not all(reached for points in drawn for reached in points.reached) and common_target(runs) is not None:
        caption += " A triangle: the run stopped before it met the target."
    words = figure_words.seeds_in_words(drawn)
    return [Section("Energy by seed", caption, ({"data": data, "layout": layout},), (words,))]


def _seed_traces(points: curves.SeedPoints, place: int) -> list[Json]:
    colour = _colour(points.look)
    symbols = ["circle" if reached else "triangle-right" for reached in points.reached]
    seeds = {"color": colour, "size": 9, "symbol": symbols, "opacity": 0.55}
    bar = {"color": colour, "size": 22, "symbol": "line-ns", "line": {"color": colour, "width": 3}}
    dots = _point(0.0, place, seeds, "%{x:.4g} J<extra></extra>")
    spaced = place + 0.5 * np.linspace(-0.5, 0.5, len(points.joules))  # so that equal seeds do not hide each other
    dots |= {"x": list(points.joules), "y": _numbers(spaced)}
    return [dots, _point(points.spread.mean, place, bar, "mean: %{x:.4g} J<extra></extra>")]


def _accuracy(runs: Sequence[RunResults]) -> Section:
    title = "Test accuracy by round"
    drawn = curves.accuracy_curves(runs)
    if not drawn:
        return Section(title, "No round was evaluated.")
    last = [float(curve.x[-1]) for curve in drawn]
    x_axis = _log_axis("rounds", _all(drawn, "x")) if curves.is_wide(last) else _rounds_axis(max(last))
    target = common_target(runs)
    low, high = curves.accuracy_range(drawn, target)
    layout = _layout(x_axis, _axis("test accuracy (%)", low, high))
    one_each = " Each seed has a line." if any(curve.seed is not None for curve in drawn) else ""
    caption = "Ringed: the evaluation that met the target." if any(curve.goal for curve in drawn) else ""
    if target is not None:
        layout["shapes"] = [_line_at(100.0 * target)]
        caption = f"Dotted: the target of {percent(target)}. {caption}"
    words = figure_words.accuracy_in_words(drawn)
    return Section(
        title, f"{caption}{one_each}".strip(), (_lines(drawn, layout, "round %{x:,}: %{y:.2f} %"),), (words,)
    )


def _error(runs: Sequence[RunResults]) -> Section:
    title = "Test error by energy"
    drawn = curves.error_curves(runs)
    if not drawn:
        return Section(title, "Joules or evaluations are missing, so there is nothing to draw.")
    target = common_target(runs)
    errors = [*_all(drawn, "y"), *([] if target is None else [100.0 * (1.0 - target)])]
    layout = _layout(_log_axis("energy of all devices (J)", _all(drawn, "x")), _log_axis("test error (%)", errors))
    if target is not None and target < 1.0:
        layout["shapes"] = [_line_at(100.0 * (1.0 - target))]
    caption = "Further left is cheaper, further down is better."
    if any(np.any(run.metrics["test_accuracy"] >= 1.0) for run in runs):
        caption += " An error of 0 is drawn at half the least other error."
    words = figure_words.error_in_words(drawn)
    return Section(title, caption, (_lines(drawn, layout, "%{x:.4g} J: error %{y:.3g} %"),), (words,))


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
    panels = tuple(_bars(bars, titled=len(drawn) > 1) for bars in drawn)
    words = tuple(figure_words.bars_in_words(bars) for bars in drawn)
    return Section(title, caption, panels, words, figure_words.joules_table(drawn), legend)


def _bars(bars: curves.DeviceBars, *, titled: bool) -> Json:
    sorted_devices = bars.names is None
    x_axis = _axis("devices, sorted (%)", 0.0, 100.0) if bars.names is None else _named_axis(bars.names)
    x = _numbers(bars.share if sorted_devices else np.arange(bars.share.size, dtype=np.float64))
    names = None if bars.names is None else [html.escape(name) for name in bars.names]
    data: list[Json] = [
        {
            "type": "bar",
            "name": kind,
            "x": x,
            "y": _numbers(values),
            "marker": {"color": curves.KIND_COLOURS[kind], "line": {"width": 0}},
            "hovertext": names,
            "hovertemplate": ("" if sorted_devices else "%{hovertext}: ") + "%{y:.4g} J<extra>" + kind + "</extra>",
        }
        for kind, values in bars.joules.items()
    ]
    if bars.least is not None and bars.most is not None:
        data.append(_ranges(x, np.sum(list(bars.joules.values()), axis=0), bars.least, bars.most))
    layout = _layout(x_axis, _axis("joules of a device"), bars.names)
    layout |= {"barmode": "stack", "bargap": 0 if sorted_devices else 0.25, "height": 330}
    layout["showlegend"] = False  # one legend for all panels
    if titled:
        text = html.escape(curves.short(bars.look.label, 40))
        layout["title"] = {"text": text, "x": 0, "y": 0.98, "yanchor": "top", "font": {"size": 15}}
        layout["margin"] |= {"t": 34}
    return {"data": data, "layout": layout}


def _ranges(x: Sequence[float], mean: FloatArray, least: FloatArray, most: FloatArray) -> Json:
    """Return lines from least to most around the tops of bars."""
    reach = {"type": "data", "symmetric": False, "array": _numbers(most - mean), "arrayminus": _numbers(mean - least)}
    reach |= {"color": _INK, "thickness": 1, "width": 3}
    trace = {"type": "scatter", "mode": "markers", "x": x, "y": _numbers(mean), "error_y": reach}
    return trace | {"marker": {"size": 1, "color": _INK}, "hoverinfo": "skip"}


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
        trace = _trace(curve, "sparsity %{y:.4g}")
        if names is None:
            trace["mode"] = "lines"
        else:
            trace |= {"mode": "markers", "hovertext": [html.escape(name) for name in names]}
            trace["hovertemplate"] = "%{hovertext}: " + trace["hovertemplate"]
            trace["marker"] |= {"size": 8}
        data.append(trace)
    x_axis = _axis("devices, sorted (%)", 0.0, 100.0) if names is None else _named_axis(names)
    layout = _layout(x_axis, _log_axis("sparsity", _all(drawn, "y")), names)
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
        data = [trace for place, row in enumerate(rows) for trace in _dumbbell(row, place)]
        values = [value for row in rows for value in (row.predicted, row.measured, row.least, row.most) if value]
        y_axis = _named_axis([row.look.label for row in rows], most=len(rows))
        y_axis |= {"tickangle": 0, "range": [len(rows) - 0.5, -0.5]}
        layout = _layout(_log_axis(f"{kind} to the target", values), y_axis)
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
    if all(run.summary.target_accuracy is None for run in runs):
        return f"Nothing is drawn: a plan predicts rounds and joules to a target, and {what} had no target accuracy."
    if all(run.plan is None for run in runs):
        return f"Nothing is drawn: {what} had no plan to predict rounds and joules to the target."
    return f"Nothing is drawn: {what} had no plan with a target accuracy, or no round was trained."


def _dumbbell(row: curves.Forecast, place: int) -> list[Json]:
    colour = _colour(row.look)
    least = "" if row.reached else "at least "
    ring = {"color": _PAPER, "size": 11, "line": {"color": colour, "width": 2}}
    dot = {"color": colour, "size": 11, "symbol": "circle" if row.reached else "triangle-right"}
    reach: Json = {}
    if row.least is not None and row.most is not None:
        ends_of = {"array": [row.most - row.measured], "arrayminus": [row.measured - row.least]}
        reach = {"error_x": {"type": "data", "symmetric": False, "color": _INK, "thickness": 1, "width": 5} | ends_of}
    line = {"color": colour, "width": 2}
    ends = [row.predicted, row.measured]
    return [
        {"type": "scatter", "mode": "lines", "x": ends, "y": [place, place], "line": line, "hoverinfo": "skip"},
        _point(row.measured, place, dot, f"measured: {least}%{{x:.4g}}<extra></extra>") | reach,
        _point(row.predicted, place, ring, "predicted: %{x:.4g}<extra></extra>"),
    ]


def _point(x: float, y: float, marker: Json, hover: str) -> Json:
    return {"type": "scatter", "mode": "markers", "x": [x], "y": [y], "marker": marker, "hovertemplate": hover}


def _lines(drawn: Sequence[Curve], layout: Json, hover: str) -> Json:
    data = [_trace(curve, hover) for curve in drawn]
    for curve in drawn:
        if curve.goal is not None:
            size, width = (15, 2) if curve.seed is None else (9, 1)
            ring = {"symbol": "circle-open", "size": size, "color": _colour(curve.look), "line": {"width": width}}
            group = {} if curve.seed is None else {"legendgroup": curve.look.label}
            data.append(_point(*curve.goal, ring, "") | {"showlegend": False, "hoverinfo": "skip"} | group)
    layout["showlegend"] = len(drawn) > 1
    return {"data": data, "layout": layout}


def _trace(curve: Curve, hover: str) -> Json:
    look = curve.look
    trace: Json = {
        "type": "scatter",
        "name": html.escape(curves.short(look.label, 40)),
        "x": _numbers(curve.x),
        "y": _numbers(curve.y),
        "mode": "lines+markers" if curve.x.size <= FEW_POINTS else "lines",
        "line": {"color": _colour(look), "width": 2, "dash": _DASHES[look.repeat % len(_DASHES)]},
        "marker": {"color": _colour(look), "size": 6, "symbol": _SYMBOLS[look.marker]},
        "hovertemplate": hover + "<extra>%{fullData.name}</extra>",
    }
    if curve.seed is None:
        return trace
    mode = "lines" if curve.x.size > 1 else "markers"
    trace["line"] |= {"width": 1}
    return trace | {"mode": mode, "legendgroup": look.label, "showlegend": curve.seed == 0}


def _layout(x_axis: Json, y_axis: Json, names: Sequence[str] | None = None) -> Json:
    """Return the layout; where names stand below the figure, the first one finds room to its left."""
    first = 0 if not names else len(curves.short(names[0]))
    return {
        "xaxis": x_axis,
        "yaxis": y_axis,
        "height": 380,
        "margin": {"l": max(56, round(10 + TILTED_PIXELS * first)), "r": 12, "t": 12, "b": 48},
        "font": {"color": _INK, "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        "hoverlabel": {"font": {"color": _INK}, "bgcolor": _PAPER},
        "dragmode": False,
    }


def _axis(title: str, low: float | None = None, high: float | None = None) -> Json:
    axis: Json = {"title": {"text": title}, "gridcolor": _GRID, "linecolor": _GRID, "zeroline": False}
    axis |= {"automargin": True, "rangemode": "tozero"}
    return axis if low is None else axis | {"range": [low, high]}


def _rounds_axis(last: float) -> Json:
    """Return an axis from 0 with ticks at whole rounds."""
    ticks = {"tickformat": ",d"} | ({"dtick": 1} if last <= FEW_ROUNDS else {})
    return _axis("rounds", 0.0, 1.04 * last) | ticks


def _log_axis(title: str, values: Iterable[float]) -> Json:
    axis = curves.log_axis(values)
    ends = [float(np.log10(axis.low)), float(np.log10(axis.high))]
    return _axis(title, *ends) | {"type": "log", "tickvals": axis.ticks, "ticktext": axis.labels}


def _named_axis(names: Sequence[str], *, most: int = curves.MAX_NAMES) -> Json:
    """Return an axis with names at whole numbers from 0, at most ``most`` of them."""
    shown = curves.spread(len(names), most)
    text = [html.escape(curves.short(names[place])) for place in shown]
    axis = _axis("", -0.5, len(names) - 0.5)
    return axis | {
        "tickvals": shown,
        "ticktext": text,
        "tickangle": -45,
        "showgrid": False,
        "ticklabeloverflow": "allow",
    }


def _line_at(y: float) -> Json:
    line = {"color": _INK, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}


def _all(drawn: Sequence[Curve], axis: str) -> list[float]:
    """Return the least and the largest value of all curves on one axis."""
    values = np.concatenate([getattr(curve, axis) for curve in drawn])
    return [float(values.min()), float(values.max())]


def _colour(look: Look) -> str:
    return _INK if look.colour == _BLACK else look.colour


def _numbers(values: FloatArray) -> list[float]:
    """Round to six digits, which is more than a screen can show."""
    return [float(f"{value:.6g}") for value in values]
