"""Every pilot of a tuning as a figure, with its words and its table: of a finished one, and while it goes on."""

import html
import math
from collections.abc import Iterable, Sequence

import numpy as np

from fewjoules.reports.curves import Look
from fewjoules.reports.figure_words import Numbers, sentence
from fewjoules.reports.numbers import span
from fewjoules.reports.page_figures import Section
from fewjoules.reports.plotly_parts import Json, axis_of, layout_of, line_at, log_axis_of, rounded
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.naming import optimiser_name
from fewjoules.tuning.pilot import PilotResult

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#999999")


def looks_of_names(raced: Iterable[str]) -> dict[str, Look]:
    """Return how each optimiser is drawn."""
    names = sorted(dict.fromkeys(raced))
    return {name: Look(name, COLOURS[place % len(COLOURS)], "o", 0) for place, name in enumerate(names)}


def pilot_name(pilot: PilotResult) -> str:
    """Name the optimiser of a pilot."""
    return optimiser_name(pilot.spec.options)


def _own(pilot: PilotResult) -> str:
    """Say what tells the pilot from others of its optimiser, beside its step size and its plan."""
    batch = pilot.spec.options.get("batch_size")
    return ("" if batch is None else f", batches of {batch}") + ("" if pilot.spec.start == 0 else ", other weights")


def pilots_section(pilots: Sequence[PilotResult], aim: Aim, looks: dict[str, Look], chosen: str | None) -> Section:
    """Return the curves of all pilots; those of the ``chosen`` optimiser, if there is one yet, are thick."""
    percent = aim.metric == "accuracy"
    scale, unit = (100.0, " (%)") if percent else (1.0, "")
    drawn = sorted(pilots, key=lambda one: pilot_name(one) == chosen)  # the winner's above the others
    data = [_pilot_trace(one, looks[pilot_name(one)], scale, bold=pilot_name(one) == chosen) for one in drawn]
    y_axis = axis_of(f"{aim.metric} on the data kept aside{unit}")
    values = [scale * value for one in pilots for value in one.metrics] + [scale * aim.target]
    y_axis |= {"range": _room(values)}
    layout = layout_of(log_axis_of("local steps of each client", [at for one in pilots for at in one.steps]), y_axis)
    layout |= {"showlegend": False, "shapes": [line_at(scale * aim.target)]}
    legend = {name: looks[name].colour for name in dict.fromkeys(map(pilot_name, pilots))}
    thick = "" if chosen is None else f" Thick: {chosen}, the optimiser of the recipe."
    caption = f"Each line is a pilot.{thick} Dotted: the target."
    if not all(one.alive for one in pilots):
        caption += " A cross: the pilot blew up."
    words = sentence("Line chart of every pilot by local steps", [_in_words(one, aim.metric) for one in pilots])
    figure = {"data": data, "layout": layout}
    return Section("Every pilot", caption, (figure,), (words,), _table(pilots, aim), legend)


def _room(values: list[float]) -> list[float]:
    """Return the ends of an axis, a twentieth beyond all values."""
    low, high = min(values), max(values)
    margin = 0.05 * (high - low or 1.0)
    return [low - margin, high + margin]


def _pilot_trace(pilot: PilotResult, look: Look, scale: float, *, bold: bool) -> Json:
    hover = f"{look.label}{_own(pilot)}, step size {pilot.spec.learning_rate:.3g}, H {pilot.spec.local_steps}"
    symbols = ["circle"] * (len(pilot.steps) - 1) + ["circle" if pilot.alive else "x"]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": list(pilot.steps),
        "y": rounded(scale * np.array(pilot.metrics)),
        "line": {"color": look.colour, "width": 3 if bold else 1.25},
        "marker": {"color": look.colour, "size": 9 if len(pilot.steps) == 1 else 7 if bold else 5, "symbol": symbols},
        "opacity": 1.0 if bold else 0.75,
        "hovertemplate": f"{html.escape(hover)}: %{{y:.4g}} after %{{x}} steps<extra></extra>",
    }


def _in_words(pilot: PilotResult, metric: str) -> str:
    end = f"{metric} {pilot.metrics[-1]:.4g}" if pilot.alive else "a loss that blew up"
    start = f"{pilot_name(pilot)}{_own(pilot)}, step size {pilot.spec.learning_rate:.3g}"
    return f"{start}, to {end} after {pilot.steps[-1]} steps"


def _table(pilots: Sequence[PilotResult], aim: Aim) -> Numbers:
    metric = f"best {aim.metric}"
    titles = ("pilot", "optimiser", "step size", "H", "sparsity", "steps", "loss", metric, "ended")
    rows = [(str(place), *_cells(aim, one)) for place, one in enumerate(pilots, start=1)]
    return Numbers(titles, tuple(rows))


def _cells(aim: Aim, pilot: PilotResult) -> tuple[str, ...]:
    spec, best = pilot.spec, aim.best(pilot)
    loss = f"{pilot.final_loss():.4g}" if pilot.alive else "-"
    level = spec.level is not None and pilot.steps_to_loss(spec.level) is not None
    ended = "at the target" if pilot.reached else "at its level of loss" if level else "after its steps"
    return (
        pilot_name(pilot) + _own(pilot),
        f"{spec.learning_rate:.3g}",
        str(spec.local_steps),
        span(np.array(spec.sparsity)),
        str(pilot.local_steps_taken),
        loss,
        f"{best:.4g}" if math.isfinite(best) else "-",
        ended if pilot.alive else "blew up",
    )
