"""Figures of how runs went on, round by round: loss, a metric of the target, joules by kind, and bits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.ledger.target import Target
from fewjoules.reports import curves
from fewjoules.reports.comparison import shared_target
from fewjoules.reports.figure_words import curves_in_words, sentence
from fewjoules.reports.numbers import number
from fewjoules.reports.page_figures import Section
from fewjoules.reports.page_traces import extent, lines, rounds_axis
from fewjoules.reports.plotly_parts import Json, axis_of, layout_of, line_at, log_axis_of, rounded
from fewjoules.runs.results import RunResults

_JOULES = "energy of all devices (J)"


@dataclass(frozen=True, slots=True)
class KindTotals:
    """Joules of all devices by kind up to each of some rounds; kinds that are unknown are left out."""

    rounds: IntArray
    joules: Mapping[str, FloatArray]


def progress_sections(runs: Sequence[RunResults], totals: KindTotals | None = None) -> list[Section]:
    """Return the metric of a target that is no accuracy, the losses, joules by kind of one run, and bits."""
    target = shared_target(runs)
    own = [] if target is None or target.column == "test_accuracy" else [_metric(runs, target)]
    by_kind = [] if totals is None else _by_kind(totals)
    return [*own, *_losses(runs), *by_kind, *_bits(runs)]


def _metric(runs: Sequence[RunResults], target: Target) -> Section:
    """Return what the target is about by round and by energy."""
    column, name = target.column, target.name if target.direction is not None else "test loss"
    panels, words = _both(runs, column, name, limit=target.limit)
    caption = f"Dotted: the target, {target}." if panels else "No round was evaluated, so there is nothing to draw."
    return Section(f"{name[:1].upper()}{name[1:]} by round and by energy", caption, panels, words)


def _losses(runs: Sequence[RunResults]) -> list[Section]:
    found = []
    for column, name, caption in (
        ("test_loss", "Test loss", "On the test set, where a round was evaluated."),
        ("train_loss", "Training loss", "Mean over the batches of each round."),
    ):
        panels, words = _both(runs, column, name.lower())
        if panels:
            found.append(Section(f"{name} by round and by energy", caption, panels, words))
    return found


def _both(
    runs: Sequence[RunResults], column: str, name: str, *, limit: float | None = None
) -> tuple[tuple[Json, ...], tuple[str, ...]]:
    """Return the panels of a column against rounds and against joules, and their words; what is unknown is left out."""
    panels, words = [], []
    for against, unit in (("round", "round"), ("total_joules", "J")):
        drawn = curves.column_curves(runs, against, column)
        if not drawn:
            continue
        ends = extent(drawn, "y") + ([] if limit is None else [limit])
        wide = min(ends) > 0.0 and curves.is_wide(ends)
        layout = layout_of(_x_axis(drawn, unit), log_axis_of(name, ends) if wide else axis_of(name))
        if limit is not None:
            layout["shapes"] = [line_at(limit)]
        hover = "round %{x:,}: %{y:.4g}" if unit == "round" else "%{x:.4g} J: %{y:.4g}"
        panels.append(lines(drawn, layout, hover))
        words.append(curves_in_words(f"{name} by {'round' if unit == 'round' else 'energy'}", drawn, unit, ""))
    return tuple(panels), tuple(words)


def _x_axis(drawn: Sequence[curves.Curve], unit: str) -> Json:
    last = [float(curve.x[-1]) for curve in drawn]
    if curves.is_wide(last):
        return log_axis_of("rounds" if unit == "round" else _JOULES, extent(drawn, "x"))
    return rounds_axis(max(last)) if unit == "round" else axis_of(_JOULES)


def _bits(runs: Sequence[RunResults]) -> list[Section]:
    drawn = curves.column_curves(runs, "round", "total_payload_bytes", 8.0)
    if not drawn:
        return []
    layout = layout_of(_x_axis(drawn, "round"), axis_of("bits sent so far") | {"exponentformat": "SI"})
    words = curves_in_words("bits sent by all devices so far", drawn, "round", " bits")
    panel = lines(drawn, layout, "round %{x:,}: %{y:.4s} bit")
    return [Section("Bits sent", "Payloads of all devices, uplink, so far.", (panel,), (words,))]


def _by_kind(totals: KindTotals) -> list[Section]:
    if not totals.joules or not totals.rounds.size:
        return []
    chosen = curves.thinned(totals.rounds.size, curves.MAX_POINTS // 2)
    rounds = totals.rounds[chosen].astype(np.float64)
    kinds = {kind: joules for kind, joules in totals.joules.items() if joules[-1] > 0.0}
    data = [_area(kind, rounds, joules[chosen]) for kind, joules in kinds.items()]
    layout = layout_of(rounds_axis(float(rounds[-1])), axis_of("joules so far")) | {"showlegend": False}
    parts = [f"{kind} {number(float(joules[-1]))} J" for kind, joules in kinds.items()]
    words = sentence(f"Area chart of joules by kind up to round {int(rounds[-1]):,}", parts)
    legend = {kind: curves.KIND_COLOURS[kind] for kind in kinds}
    caption = "Joules of all devices so far, as the ledger books them."
    return [Section("Joules by kind", caption, ({"data": data, "layout": layout},), (words,), legend=legend)]


def _area(kind: str, rounds: FloatArray, joules: FloatArray) -> Json:
    colour = curves.KIND_COLOURS[kind]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": kind,
        "x": rounded(rounds),
        "y": rounded(joules),
        "stackgroup": "joules",
        "line": {"color": colour, "width": 1},
        "fillcolor": colour,
        "hovertemplate": "round %{x:,}: %{y:.4g} J<extra>" + kind + "</extra>",
    }
