"""The rounds law that a tuning believes in: what it predicts, how sure that is, and what pilots took."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.reports.figure_words import Numbers, sentence
from fewjoules.reports.numbers import number
from fewjoules.reports.page_figures import Section
from fewjoules.reports.plotly_parts import INK, PAPER, Json, layout_of, log_axis_of, rounded
from fewjoules.runs.tuning import Tuning
from fewjoules.tuning.belief import Choice, Observation

POINTS = 60  # of a curve
REACH = 4.0  # a curve goes so many times beyond the plan and the pilots
ROWS = 7  # of a table, for each curve
_COLOUR, _BAND = "#0072B2", "rgba(0,114,178,0.18)"


@dataclass(frozen=True)
class _Slice:
    """Predicted steps as one of the plan's choices changes: ``at`` makes the choice, ``place`` finds it again."""

    title: str
    x: FloatArray
    at: Callable[[float], Choice]
    place: Callable[[Choice], float]


def law_section(tuning: Tuning) -> Section:
    """Return predicted steps against H and against the sparsity, with bands of two standard deviations."""
    law = tuning.tuned.belief.law()
    slices = [_over_local_steps(tuning), _over_sparsity(tuning)]
    drawn = [_predictions(tuning, one) for one in slices]
    panels = tuple(_panel(tuning, one, *predicted) for one, predicted in zip(slices, drawn, strict=True))
    words = tuple(_in_words(one, *predicted) for one, predicted in zip(slices, drawn, strict=True))
    caption = (
        f"Local steps to the target are tau (1 + c H^a s), where s is the mean of sparsity^q: tau {number(law.tau)}, "
        f"c {law.c:.3g}, a {law.a:.3g}, q {law.q:.3g}. Band: two standard deviations of what is believed. Diamond: the "
        "plan. Dots: pilots, moved along the law to the plan's sparsity in the first figure and to its H in the second."
    )
    rows = tuple(row for one, predicted in zip(slices, drawn, strict=True) for row in _rows(one, *predicted))
    table = Numbers(("with", "predicted steps", "low", "high"), rows)
    return Section("The rounds law of the recipe", caption, panels, words, table)


def forecast_section(tuning: Tuning) -> Section:
    """Return what the law says about the pilots that it was learnt from, beside what they took."""
    belief = tuning.tuned.belief
    seen = belief.observations
    predicted = [belief.predicted_steps(one.choice)[0] for one in seen]
    taken = [one.steps for one in seen]
    ends = [min(*predicted, *taken) / 1.3, max(*predicted, *taken) * 1.3]
    diagonal = {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip"}
    dots = _dots(predicted, taken) | {"hovertemplate": "predicted %{x:.4g}, measured %{y:.4g}<extra></extra>"}
    layout = layout_of(log_axis_of("predicted steps", ends), log_axis_of("measured steps", ends))
    layout |= {"showlegend": False}
    figure = {"data": [diagonal | {"line": {"color": INK, "width": 1, "dash": "dot"}}, dots], "layout": layout}
    names = [_described(one) for one in seen]
    both = list(zip(names, predicted, taken, strict=True))
    words = sentence(
        "Chart of predicted and measured steps to the target",
        [f"{name}: predicted {number(guess)}, measured {number(steps)}" for name, guess, steps in both],
    )
    rows = tuple((name, number(guess), number(steps)) for name, guess, steps in both)
    caption = (
        "Each dot is a pilot that the law was learnt from; on the dotted line both agree. Steps of a pilot that ended "
        "before the target follow from the steps after which it had the loss of the winner's pilot."
    )
    table = Numbers(("pilot", "predicted steps", "measured steps"), rows)
    return Section("Predicted and measured", caption, (figure,), (words,), table)


def _over_local_steps(tuning: Tuning) -> _Slice:
    plan = tuning.choice()
    ends = _ends(tuning, lambda choice: float(choice.local_steps))
    x = np.unique(np.round(np.geomspace(*ends, POINTS)))
    return _Slice("H", x, lambda steps: replace(plan, local_steps=round(steps)), lambda one: float(one.local_steps))


def _over_sparsity(tuning: Tuning) -> _Slice:
    """Return the slice of the plan's sparsities, all multiplied by one factor; a sparsity is at least 1."""
    plan = tuning.choice()
    middle = _mean_sparsity(plan)
    ends = _ends(tuning, _mean_sparsity)

    def at(mean: float) -> Choice:
        return replace(plan, sparsity=tuple(max(1.0, one * mean / middle) for one in plan.sparsity))

    x = np.unique([_mean_sparsity(at(mean)) for mean in np.geomspace(*ends, POINTS)])
    return _Slice("mean sparsity", x, at, _mean_sparsity)


def _mean_sparsity(choice: Choice) -> float:
    return float(np.dot(choice.sparsity, choice.shares))


def _ends(tuning: Tuning, place: Callable[[Choice], float]) -> tuple[float, float]:
    known = [place(tuning.choice()), *(place(one.choice) for one in tuning.tuned.belief.observations)]
    return max(1.0, min(known) / REACH), REACH * max(known)


def _predictions(tuning: Tuning, slice_: _Slice) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return predicted steps and their band along a slice."""
    found = [tuning.tuned.belief.predicted_steps(slice_.at(x)) for x in slice_.x.tolist()]
    steps, deviation = np.array(found).T
    return steps, steps * np.exp(-2.0 * deviation), steps * np.exp(2.0 * deviation)


def _moved(tuning: Tuning, slice_: _Slice, seen: Observation) -> float:
    """Return the steps of a pilot as they would be on the slice: times the ratio of what the law predicts."""
    belief, x = tuning.tuned.belief, slice_.place(seen.choice)
    return seen.steps * belief.predicted_steps(slice_.at(x))[0] / belief.predicted_steps(seen.choice)[0]


def _panel(tuning: Tuning, slice_: _Slice, steps: FloatArray, low: FloatArray, high: FloatArray) -> Json:
    x = rounded(slice_.x)
    edge = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}, "hoverinfo": "skip"}
    line = {"type": "scatter", "mode": "lines", "x": x, "y": rounded(steps), "line": {"color": _COLOUR, "width": 2}}
    seen = tuning.tuned.belief.observations
    dots = _dots([slice_.place(one.choice) for one in seen], [_moved(tuning, slice_, one) for one in seen])
    at = slice_.place(tuning.choice())
    planned = tuning.tuned.belief.predicted_steps(tuning.choice())[0]
    mark = {"color": PAPER, "size": 13, "symbol": "diamond", "line": {"color": _COLOUR, "width": 3}}
    plan = {"type": "scatter", "mode": "markers", "x": [at], "y": [planned], "marker": mark}
    data = [
        edge | {"y": rounded(low)},
        edge | {"y": rounded(high), "fill": "tonexty", "fillcolor": _BAND},
        line | {"hovertemplate": "%{y:.4g} steps<extra></extra>"},
        plan | {"hovertemplate": "the plan: %{y:.4g} steps<extra></extra>"},
        dots | {"hovertemplate": "pilot: %{y:.4g} steps<extra></extra>"},
    ]
    values = [*low.tolist(), *high.tolist(), *dots["y"]]
    layout = layout_of(log_axis_of(slice_.title, x), log_axis_of("local steps to the target", values))
    return {"data": data, "layout": layout | {"showlegend": False}}


def _dots(x: list[float], y: list[float]) -> Json:
    marker = {"color": INK, "size": 8}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker}


def _in_words(slice_: _Slice, steps: FloatArray, low: FloatArray, high: FloatArray) -> str:
    ends = [
        f"{number(steps[end])} steps ({number(low[end])} to {number(high[end])}) at {slice_.title} "
        f"{number(slice_.x[end])}"
        for end in (0, -1)
    ]
    return sentence(f"Line chart of predicted steps to the target by {slice_.title}", ends)


def _rows(slice_: _Slice, steps: FloatArray, low: FloatArray, high: FloatArray) -> list[tuple[str, ...]]:
    shown = np.unique(np.linspace(0, slice_.x.size - 1, ROWS).round().astype(int)).tolist()
    cells = [(number(steps[one]), number(low[one]), number(high[one])) for one in shown]
    return [(f"{slice_.title} {number(slice_.x[one])}", *row) for one, row in zip(shown, cells, strict=True)]


def _described(seen: Observation) -> str:
    return f"H {seen.choice.local_steps}, mean sparsity {number(_mean_sparsity(seen.choice))}"
