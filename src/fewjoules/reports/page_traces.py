"""Traces and axes of the figures of runs as plotly.js JSON, made of ``plotly_parts``."""

import html
from collections.abc import Mapping, Sequence

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.reports import curves
from fewjoules.reports.curves import Curve, Look
from fewjoules.reports.plotly_parts import INK, PAPER, Json, axis_of, layout_of, point, rounded

FEW_POINTS = 40  # up to this many, each point is marked
FEW_ROUNDS = 12  # up to this many, each round has a tick
_BLACK = "#000000"
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = {
    "o": "circle",
    "s": "square",
    "v": "triangle-down",
    "^": "triangle-up",
    "X": "x",
    "D": "diamond",
    "P": "cross",
}


def lines(drawn: Sequence[Curve], layout: Json, hover: str) -> Json:
    """Return a panel of curves, with rings where they met the target."""
    data = [trace_of(curve, hover) for curve in drawn]
    for curve in drawn:
        if curve.goal is not None:
            size, width = (15, 2) if curve.seed is None else (9, 1)
            ring = {"symbol": "circle-open", "size": size, "color": _colour(curve.look), "line": {"width": width}}
            group = {} if curve.seed is None else {"legendgroup": curve.look.label}
            data.append(point(*curve.goal, ring, "") | {"showlegend": False, "hoverinfo": "skip"} | group)
    layout["showlegend"] = len(drawn) > 1
    return {"data": data, "layout": layout}


def trace_of(curve: Curve, hover: str) -> Json:
    """Return a curve; where there are several seeds, thinner and with one place in the legend for all of them."""
    look = curve.look
    trace: Json = {
        "type": "scatter",
        "name": html.escape(curves.short(look.label, 40)),
        "x": rounded(curve.x),
        "y": rounded(curve.y),
        "mode": "lines+markers" if curve.x.size <= FEW_POINTS else "lines",
        "line": {"color": _colour(look), "width": 2, "dash": _DASHES[look.repeat % len(_DASHES)]},
        "marker": {"color": _colour(look), "size": 6, "symbol": SYMBOLS[look.marker]},
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
    dots = point(0.0, place, seeds, "%{x:.4g} J<extra></extra>")
    spaced = place + 0.5 * np.linspace(-0.5, 0.5, len(points.joules))  # so that equal seeds do not hide each other
    dots |= {"x": list(points.joules), "y": rounded(spaced)}
    return [dots, point(points.spread.mean, place, bar, "mean: %{x:.4g} J<extra></extra>")]


def _kind_bars(kind: str, joules: Sequence[float]) -> Json:
    """Return the joules of one kind, a part of each bar."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": kind,
        "x": rounded(np.array(joules)),
        "y": list(range(len(joules))),
        "marker": {"color": curves.KIND_COLOURS[kind], "line": {"width": 0}},
        "hovertemplate": "%{x:.4g} J<extra>" + kind + "</extra>",
    }


def kind_rows(names: Sequence[str], joules: Mapping[str, Sequence[float]]) -> Json:
    """Return a panel with one bar for each name, from the top on, made of its joules by kind."""
    y_axis = named_axis(names, most=len(names)) | {"tickangle": 0, "range": [len(names) - 0.5, -0.5]}
    layout = layout_of(axis_of("energy of all devices (J)"), y_axis)
    layout |= {"barmode": "stack", "bargap": 0.35, "showlegend": False, "height": 100 + 36 * len(names)}
    return {"data": [_kind_bars(kind, values) for kind, values in joules.items()], "layout": layout}


def device_panel(bars: curves.DeviceBars, *, titled: bool) -> Json:
    """Return the panel of one run's or scheme's joules by device."""
    sorted_devices = bars.names is None
    x_axis = axis_of("devices, sorted (%)", 0.0, 100.0) if bars.names is None else named_axis(bars.names)
    x = rounded(bars.share if sorted_devices else np.arange(bars.share.size, dtype=np.float64))
    names = None if bars.names is None else [html.escape(name) for name in bars.names]
    data: list[Json] = [
        {
            "type": "bar",
            "name": kind,
            "x": x,
            "y": rounded(values),
            "marker": {"color": curves.KIND_COLOURS[kind], "line": {"width": 0}},
            "hovertext": names,
            "hovertemplate": ("" if sorted_devices else "%{hovertext}: ") + "%{y:.4g} J<extra>" + kind + "</extra>",
        }
        for kind, values in bars.joules.items()
    ]
    if bars.least is not None and bars.most is not None:
        data.append(_ranges(x, np.sum(list(bars.joules.values()), axis=0), bars.least, bars.most))
    layout = layout_of(x_axis, axis_of("joules of a device"), bars.names)
    layout |= {"barmode": "stack", "bargap": 0 if sorted_devices else 0.25, "height": 330}
    layout["showlegend"] = False  # one legend for all panels
    if titled:
        text = html.escape(curves.short(bars.look.label, 40))
        layout["title"] = {"text": text, "x": 0, "y": 0.98, "yanchor": "top", "font": {"size": 15}}
        layout["margin"] |= {"t": 34}
    return {"data": data, "layout": layout}


def _ranges(x: Sequence[float], mean: FloatArray, least: FloatArray, most: FloatArray) -> Json:
    """Return lines from least to most around the tops of bars."""
    reach = {"type": "data", "symmetric": False, "array": rounded(most - mean), "arrayminus": rounded(mean - least)}
    reach |= {"color": INK, "thickness": 1, "width": 3}
    trace = {"type": "scatter", "mode": "markers", "x": x, "y": rounded(mean), "error_y": reach}
    return trace | {"marker": {"size": 1, "color": INK}, "hoverinfo": "skip"}


def dumbbell(row: curves.Forecast, place: int) -> list[Json]:
    """Return a prediction and what was measured, joined by a line, in the row ``place``."""
    colour = _colour(row.look)
    least = "" if row.reached else "at least "
    ring = {"color": PAPER, "size": 11, "line": {"color": colour, "width": 2}}
    dot = {"color": colour, "size": 11, "symbol": "circle" if row.reached else "triangle-right"}
    reach: Json = {}
    if row.least is not None and row.most is not None:
        ends_of = {"array": [row.most - row.measured], "arrayminus": [row.measured - row.least]}
        reach = {"error_x": {"type": "data", "symmetric": False, "color": INK, "thickness": 1, "width": 5} | ends_of}
    line = {"color": colour, "width": 2}
    ends = [row.predicted, row.measured]
    return [
        {"type": "scatter", "mode": "lines", "x": ends, "y": [place, place], "line": line, "hoverinfo": "skip"},
        point(row.measured, place, dot, f"measured: {least}%{{x:.4g}}<extra></extra>") | reach,
        point(row.predicted, place, ring, "predicted: %{x:.4g}<extra></extra>"),
    ]


def rounds_axis(last: float) -> Json:
    """Return an axis from 0 with ticks at whole rounds."""
    ticks = {"tickformat": ",d"} | ({"dtick": 1} if last <= FEW_ROUNDS else {})
    return axis_of("rounds", 0.0, 1.04 * last) | ticks


def named_axis(names: Sequence[str], *, most: int = curves.MAX_NAMES) -> Json:
    """Return an axis with names at whole numbers from 0, at most ``most`` of them."""
    shown = curves.spread(len(names), most)
    text = [html.escape(curves.short(names[place])) for place in shown]
    axis = axis_of("", -0.5, len(names) - 0.5)
    return axis | {
        "tickvals": shown,
        "ticktext": text,
        "tickangle": -45,
        "showgrid": False,
        "ticklabeloverflow": "allow",
    }


def extent(drawn: Sequence[Curve], axis: str) -> list[float]:
    """Return the least and the largest value of all curves on one axis."""
    values = np.concatenate([getattr(curve, axis) for curve in drawn])
    return [float(values.min()), float(values.max())]


def _colour(look: Look) -> str:
    return INK if look.colour == _BLACK else look.colour
