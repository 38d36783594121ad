"""Parts of figures as plotly.js JSON. The theme of the page replaces colours that start with @."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.reports import curves

INK, GRID, PAPER = "@ink", "@grid", "@paper"
TILTED_PIXELS = 4.4  # room for a character of a tilted name

Json = dict[str, Any]


def point(x: float, y: float, marker: Json, hover: str) -> Json:
    """Return one marker."""
    return {"type": "scatter", "mode": "markers", "x": [x], "y": [y], "marker": marker, "hovertemplate": hover}


def layout_of(x_axis: Json, y_axis: Json, names: Sequence[str] | None = None) -> Json:
    """Return the layout; where names stand below the figure, the first one finds room to its left."""
    first = 0 if not names else len(curves.short(names[0]))
    return {
        "xaxis": x_axis,
        "yaxis": y_axis,
        "height": 380,
        "margin": {"l": max(56, round(10 + TILTED_PIXELS * first)), "r": 12, "t": 12, "b": 48},
        "font": {"color": INK, "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        "hoverlabel": {"font": {"color": INK}, "bgcolor": PAPER},
        "dragmode": False,
    }


def axis_of(title: str, low: float | None = None, high: float | None = None) -> Json:
    """Return an axis, from 0 on unless its ends are given."""
    axis: Json = {"title": {"text": title}, "gridcolor": GRID, "linecolor": GRID, "zeroline": False}
    axis |= {"automargin": True, "rangemode": "tozero"}
    return axis if low is None else axis | {"range": [low, high]}


def log_axis_of(title: str, values: Iterable[float]) -> Json:
    """Return a logarithmic axis with room for all values."""
    axis = curves.log_axis(values)
    ends = [float(np.log10(axis.low)), float(np.log10(axis.high))]
    return axis_of(title, *ends) | {"type": "log", "tickvals": axis.ticks, "ticktext": axis.labels}


def line_at(y: float) -> Json:
    """Return a dotted line across the figure."""
    line = {"color": INK, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}


def rounded(values: FloatArray) -> list[float]:
    """Round to six digits, which is more than a screen can show."""
    return [float(f"{value:.6g}") for value in values]
