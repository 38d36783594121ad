"""Traces, axes and layouts of the page's figures as plotly.js JSON; colours that start with @ are the theme's."""

import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.reports import curves
from fewjoules.reports.curves import Curve, Look

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


def lines(drawn: Sequence[Curve], layout: Json, hover: str) -> Json:
    """Return a panel of curves, with rings where they met the target."""
    data = [trace_of(curve, hover) for curve in drawn]
    for curve in drawn:
        if curve.goal is not None:
            size, width = (15, 2) if curve.seed is None else (9, 1)
            ring = {"symbol": "circle-open", "size": size, "color": _colour(curve.look), "line": {"width": width}}
            group = {} if curve.seed is None else {"legendgroup": curve.look.label}
            data.append(_point(*curve.goal, ring, "") | {"showlegend": False, "hoverinfo": "skip"} | group)
    layout["showlegend"] = len(drawn) > 1
    return {"data": data, "layout": layout}


def trace_of(curve: Curve, hover: str) -> Json:
    """Return a curve; where there are several seeds, thinner and with one place in the legend for all of them."""
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


def seed_traces(points: curves.SeedPoints, place: int) -> list[Json]:
    """Return the points of a scheme's seeds and the bar of their mean, in the row ``place``."""
    colour = _colour(points.look)
    symbols = ["circle" if reached else "triangle-right" for reached in points.reached]
    seeds = {"color": colour, "size": 9, "symbol": symbols, "opacity": 0.55}
    bar = {"color": colour, "size": 22, "symbol": "line-ns", "line": {"color": colour, "width": 3}}
    dots = _point(0.0, place, seeds, "%{x:.4g} J<extra></extra>")
    spaced = place + 0.5 * np.linspace(-0.5, 0.5, len(points.joules))  # so that equal seeds do not hide each other
    dots |= {"x": list(points.joules), "y": _numbers(spaced)}
    return [dots, _point(points.spread.mean, place, bar, "mean: %{x:.4g} J<extra></extra>")]


def device_panel(bars: curves.DeviceBars, *, titled: bool) -> Json:
    """Return the panel of one run's or scheme's joules by device."""
    sorted_devices = bars.names is None
    x_axis = plain_axis("devices, sorted (%)", 0.0, 100.0) if bars.names is None else named_axis(bars.names)
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
    layout = layout_of(x_axis, plain_axis("joules of a device"), bars.names)
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


def dumbbell(row: curves.Forecast, place: int) -> list[Json]:
    """Return a prediction and what was measured, joined by a line, in the row ``place``."""
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


def layout_of(x_axis: Json, y_axis: Json, names: Sequence[str] | None = None) -> Json:
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


def plain_axis(title: str, low: float | None = None, high: float | None = None) -> Json:
    """Return a linear axis from 0, or between two ends."""
    axis: Json = {"title": {"text": title}, "gridcolor": _GRID, "linecolor": _GRID, "zeroline": False}
    axis |= {"automargin": True, "rangemode": "tozero"}
    return axis if low is None else axis | {"range": [low, high]}


def rounds_axis(last: float) -> Json:
    """Return an axis from 0 with ticks at whole rounds."""
    ticks = {"tickformat": ",d"} | ({"dtick": 1} if last <= FEW_ROUNDS else {})
    return plain_axis("rounds", 0.0, 1.04 * last) | ticks


def log_axis(title: str, values: Iterable[float]) -> Json:
    """Return a logarithmic axis that holds the values."""
    axis = curves.log_axis(values)
    ends = [float(np.log10(axis.low)), float(np.log10(axis.high))]
    return plain_axis(title, *ends) | {"type": "log", "tickvals": axis.ticks, "ticktext": axis.labels}


def named_axis(names: Sequence[str], *, most: int = curves.MAX_NAMES) -> Json:
    """Return an axis with names at whole numbers from 0, at most ``most`` of them."""
    shown = curves.spread(len(names), most)
    text = [html.escape(curves.short(names[place])) for place in shown]
    axis = plain_axis("", -0.5, len(names) - 0.5)
    return axis | {
        "tickvals": shown,
        "ticktext": text,
        "tickangle": -45,
        "showgrid": False,
        "ticklabeloverflow": "allow",
    }


def line_at(y: float) -> Json:
    """Return a dotted line across the figure."""
    line = {"color": _INK, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}


def extent(drawn: Sequence[Curve], axis: str) -> list[float]:
    """Return the least and the largest value of all curves on one axis."""
    values = np.concatenate([getattr(curve, axis) for curve in drawn])
    return [float(values.min()), float(values.max())]


def _colour(look: Look) -> str:
    return _INK if look.colour == _BLACK else look.colour


def _numbers(values: FloatArray) -> list[float]:
    """Round to six digits, which is more than a screen can show."""
    return [float(f"{value:.6g}") for value in values]
