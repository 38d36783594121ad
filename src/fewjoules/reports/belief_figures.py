"""What a tuning believed after each pilot: steps to the target with their range, and the joules of the plan."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fewjoules.reports.figure_words import Numbers, sentence
from fewjoules.reports.numbers import number
from fewjoules.reports.page_figures import Section
from fewjoules.reports.plotly_parts import Json, axis_of, layout_of, log_axis_of, rounded

_COLOUR, _BAND = "#0072B2", "rgba(0,114,178,0.18)"
Belief = Mapping[str, Any]  # a line of beliefs.jsonl


def belief_section(beliefs: Sequence[Belief]) -> Section | None:
    """Return how the expected steps and the plan's joules changed from pilot to pilot; None if nothing is believed."""
    steps = [one for one in beliefs if one.get("expected_steps") is not None]
    if not steps:
        return None
    planned = [one for one in beliefs if one.get("planned_joules") is not None]
    panels, words = [_steps(steps)], [_steps_in_words(steps)]
    if planned:
        panels.append(_panel([_line(planned, "planned_joules", "%{y:.4g} J")], planned, "joules of the plan"))
        first, last = planned[0], planned[-1]
        words.append(
            sentence(
                "Line chart of the plan's joules by pilot",
                [f"{number(first['planned_joules'])} J at first, {number(last['planned_joules'])} J now"],
            )
        )
    caption = "After each pilot: local steps of each client to the target."
    if any(one.get("spread") is not None for one in steps):
        caption += " Band: two standard deviations."
    return Section("What is believed", caption, tuple(panels), tuple(words), _table(beliefs))


def _steps(beliefs: Sequence[Belief]) -> Json:
    sure = [one for one in beliefs if one.get("spread") is not None]
    band = []
    if sure:
        x = [one["pilots"] for one in sure]
        low, high = ([_bound(one, sign) for one in sure] for sign in (-2.0, 2.0))
        ends = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        band = [
            ends | {"x": x, "y": rounded(np.array(low))},
            ends | {"x": x, "y": rounded(np.array(high)), "fill": "tonexty", "fillcolor": _BAND},
        ]
    values = [one["expected_steps"] for one in beliefs] + [_bound(one, sign) for one in sure for sign in (-2.0, 2.0)]
    panel = _panel([*band, _line(beliefs, "expected_steps", "%{y:.4g} steps")], beliefs, "steps to the target")
    panel["layout"]["yaxis"] = log_axis_of("steps to the target", values)
    return panel


def _bound(belief: Belief, deviations: float) -> float:
    return float(belief["expected_steps"]) * math.exp(deviations * float(belief["spread"]))


def _line(beliefs: Sequence[Belief], key: str, hover: str) -> Json:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [one["pilots"] for one in beliefs],
        "y": rounded(np.array([one[key] for one in beliefs], dtype=np.float64)),
        "line": {"color": _COLOUR, "width": 2},
        "marker": {"color": _COLOUR, "size": 6},
        "hovertemplate": f"after pilot %{{x}}: {hover}<extra></extra>",
    }


def _panel(data: list[Json], beliefs: Sequence[Belief], title: str) -> Json:
    x_axis = axis_of("pilots", 0.0, 1.04 * max(one["pilots"] for one in beliefs)) | {"tickformat": ",d"}
    return {"data": data, "layout": layout_of(x_axis, axis_of(title)) | {"showlegend": False}}


def _steps_in_words(beliefs: Sequence[Belief]) -> str:
    ends = [f"{number(beliefs[place]['expected_steps'])} {when}" for place, when in ((0, "at first"), (-1, "now"))]
    return sentence("Line chart of the steps to the target that are expected after each pilot", [", ".join(ends)])


def _table(beliefs: Sequence[Belief]) -> Numbers:
    titles = ("after pilot", "best optimiser", "step size", "steps to target", "low", "high", "plan H", "plan J")
    return Numbers(titles, tuple(_row(one) for one in beliefs))


def _row(one: Belief) -> tuple[str, ...]:
    known = one.get("expected_steps") is not None and one.get("spread") is not None
    told = [one.get("expected_steps"), *((_bound(one, sign) for sign in (-2.0, 2.0)) if known else (None, None))]
    steps = ["-" if value is None else number(value) for value in told]
    plan = [
        str(one.get("local_steps") or "-"),
        "-" if one.get("planned_joules") is None else number(one["planned_joules"]),
    ]
    return (str(one["pilots"]), str(one["optimiser"]), f"{one['learning_rate']:.3g}", *steps, *plan)
