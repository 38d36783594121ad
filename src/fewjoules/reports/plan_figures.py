"""Figures of plans as plotly.js JSON: the ridge over H, and joules by kind of groups and schemes."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.planner.plan import Plan
from fewjoules.provenance import KINDS
from fewjoules.reports.figure_words import sentence
from fewjoules.reports.numbers import number
from fewjoules.reports.page_traces import SYMBOLS, kind_rows
from fewjoules.reports.plotly_parts import INK, PAPER, Json, axis_of, layout_of, log_axis_of, point
from fewjoules.reports.plots import COLOURS, LOG_SPAN, MARKERS, WIDE, energy_range, step_ticks

_BLACK = "#000000"


def ridge_figure(steps: Mapping[str, IntArray], energy: Mapping[str, FloatArray], plans: Sequence[Plan]) -> Json:
    """Return the least energy for each H by scheme, with the plans that lie in its range marked."""
    data = [_ridge(name, steps[name], joules) for name, joules in energy.items()]
    low, high = energy_range(dict(energy))
    marked = [plan for plan in plans if low <= plan.energy_joules <= high]
    data += [_mark(plan) for plan in marked]
    every = np.unique(np.concatenate([*steps.values(), [plan.local_steps for plan in marked]])).astype(np.int64)
    title = "energy of the training (J)"
    drawn = [float(joules[np.isfinite(joules)].min()) for joules in energy.values()] + [high]
    wide = min(drawn) > 0.0 and high > WIDE * min(drawn)
    y_axis = log_axis_of(title, drawn) if wide else axis_of(title, max(low, 0.0), high)
    layout = layout_of(_steps_axis(every), y_axis)
    return {"data": data, "layout": layout | {"showlegend": len(data) > 1, "hovermode": "closest"}}


def _ridge(name: str, steps: IntArray, joules: FloatArray) -> Json:
    dash = "dash" if name == "unified" else "solid"
    return {
        "type": "scatter",
        "mode": "lines" if steps.size > 1 else "markers",
        "name": f"{name}, best sparsity",
        "x": steps.tolist(),
        "y": [value if math.isfinite(value) else None for value in joules.tolist()],
        "connectgaps": False,
        "line": {"color": _colour(name), "width": 2, "dash": dash},
        "hovertemplate": "H = %{x}: %{y:.5g} J<extra>" + name + "</extra>",
    }


def _mark(plan: Plan) -> Json:
    ring = {"symbol": SYMBOLS[MARKERS[plan.scheme]], "size": 11, "color": PAPER}
    ring |= {"line": {"color": _colour(plan.scheme), "width": 2}}
    text = f"{plan.scheme}: H = {plan.local_steps}, {number(plan.energy_joules)} J"
    return point(plan.local_steps, plan.energy_joules, ring, text + "<extra></extra>") | {"name": f"{plan.scheme} plan"}


def _steps_axis(steps: IntArray) -> Json:
    ticks = step_ticks(steps)
    low, high = float(steps[0]), float(steps[-1])
    axis = axis_of("local steps H", low - 1.0, high + 1.0)
    if high > LOG_SPAN * low:
        ends = [math.log10(low) - 0.05, math.log10(high) + 0.05]
        axis |= {"type": "log", "range": ends}
    return axis | {"tickvals": ticks, "ticktext": [f"{tick:,}" for tick in ticks]}


def kinds_figure(joules: Mapping[str, Mapping[str, float]]) -> Json:
    """Return one bar for each name, made of its joules by kind."""
    kinds = [kind for kind in KINDS if any(own.get(kind) for own in joules.values())]
    return kind_rows(list(joules), {kind: [own.get(kind, 0.0) for own in joules.values()] for kind in kinds})


def kinds_in_words(what: str, joules: Mapping[str, Mapping[str, float]]) -> str:
    """Tell the joules of each name, and of what kind most of them are."""
    parts = [f"{name} {number(sum(own.values()))} J{_mostly(own)}" for name, own in joules.items()]
    return sentence(f"Bar chart of joules by {what} and kind", parts)


def _mostly(joules: Mapping[str, float]) -> str:
    most = max(joules, key=lambda kind: joules[kind], default=None)
    return "" if most is None or not joules[most] else f", mostly {most}"


def _colour(scheme: str) -> str:
    return INK if COLOURS[scheme] == _BLACK else COLOURS[scheme]
