"""Figures of runs for papers, one column wide. Matplotlib is imported where it is used: it is slow to load."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fewjoules.errors import InvalidInputError
from fewjoules.files import whole_file
from fewjoules.provenance import KINDS
from fewjoules.reports import curves, figure_words
from fewjoules.reports.comparison import shared_accuracy
from fewjoules.reports.plots import FORMATS, STYLE, save_with_words
from fewjoules.reports.seeds import by_rank
from fewjoules.runs.results import RunResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PlotFormat = Literal["png", "pdf", "svg"]
WIDTH_INCHES = 3.5
FEW_POINTS = 25  # up to this many, each point is marked
_DASHES: tuple[Any, ...] = ("-", "--", ":", "-.")
_STYLE = STYLE | {
    "font.size": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "svg.hashsalt": "fewjoules",
    "axes.axisbelow": True,
}


def save_plots(runs: Sequence[RunResults], folder: Path, format: PlotFormat = "png") -> list[Path]:  # noqa: A002
    """Draw the five figures and return their files; figures without data are left out."""
    import matplotlib as mpl

    if format not in FORMATS:
        raise InvalidInputError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    if not runs:
        raise InvalidInputError("plots must show at least 1 run, got 0")
    runs = by_rank(runs)
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    with mpl.rc_context(_STYLE), _quiet_glyphs():
        for name, draw in FIGURES.items():
            figure = draw(runs)
            if figure is not None:
                file = folder / f"{name}.{format}"
                with whole_file(file) as stream:
                    save_with_words(figure, stream, format, WORDS[name](runs), dpi=300)
                saved.append(file)
    return saved


def draw_accuracy(runs: Sequence[RunResults]) -> "Figure | None":
    """Draw test accuracy against rounds."""
    from matplotlib.ticker import MaxNLocator

    drawn = curves.accuracy_curves(runs)
    if not drawn:
        return None
    figure, (axes,) = _figure(1, 2.5)
    _draw_lines(axes, drawn)
    target = shared_accuracy(runs)
    if target is not None:
        axes.axhline(100.0 * target, color="black", linestyle=":", linewidth=0.8)
    axes.set_ylim(*curves.accuracy_range(drawn, target))
    if curves.is_wide(float(curve.x[-1]) for curve in drawn):
        _log(axes, "x", np.concatenate([curve.x for curve in drawn]))
    else:
        axes.set_xlim(left=0.0)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("rounds")
    axes.set_ylabel("test accuracy (%)")
    _legend(figure, axes, len(drawn))
    return figure


def draw_error(runs: Sequence[RunResults]) -> "Figure | None":
    """Draw test error against joules."""
    drawn = curves.error_curves(runs)
    if not drawn:
        return None
    figure, (axes,) = _figure(1, 2.5)
    _draw_lines(axes, drawn)
    target = shared_accuracy(runs)
    errors = [value for curve in drawn for value in (float(curve.y.min()), float(curve.y.max()))]
    if target is not None and target < 1.0:
        axes.axhline(100.0 * (1.0 - target), color="black", linestyle=":", linewidth=0.8)
        errors.append(100.0 * (1.0 - target))
    _log(axes, "x", np.concatenate([curve.x for curve in drawn]))
    _log(axes, "y", errors)
    axes.set_xlabel("energy of all devices (J)")
    axes.set_ylabel("test error (%)")
    _legend(figure, axes, len(drawn))
    return figure


def draw_joules(runs: Sequence[RunResults]) -> "Figure | None":
    """Draw joules of each device by kind, one panel per run."""
    drawn = curves.device_bars(runs)
    if not drawn:
        return None
    figure, panels = _figure(len(drawn), 0.9 + 1.2 * len(drawn))
    shared = len({bars.names for bars in drawn}) == 1
    for place, (axes, bars) in enumerate(zip(panels, drawn, strict=True)):
        x = bars.share if bars.names is None else np.arange(bars.share.size, dtype=np.float64)
        width = 100.0 / bars.share.size if bars.names is None else 0.75
        base = np.zeros(bars.share.size)
        for kind, values in bars.joules.items():
            axes.bar(x, values, width, bottom=base, color=curves.KIND_COLOURS[kind], linewidth=0)
            base = base + values
        if bars.least is not None and bars.most is not None:
            axes.errorbar(x, base, [base - bars.least, bars.most - base], fmt="none", ecolor="black", elinewidth=0.7)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("joules")
        if len(drawn) > 1:
            axes.set_title(_text(bars.look.label, 40), fontsize=8, loc="left")
        axes.set_xlim(*((0.0, 100.0) if bars.names is None else (-0.6, len(bars.names) - 0.4)))
        if shared and place < len(drawn) - 1:
            axes.set_xticks([])
        elif bars.names is None:
            axes.set_xlabel("devices, sorted by joules (%)")
        else:
            _name_ticks(axes, bars.names)
    _legend_of_kinds(figure, drawn)
    return figure


def draw_sparsity(runs: Sequence[RunResults]) -> "Figure | None":
    """Draw the sparsity of each device."""
    names, drawn = curves.sparsity_curves(runs)
    figure, (axes,) = _figure(1, 2.5)
    for curve in drawn:
        line = {"linestyle": _dash(curve)} if names is None else {"linestyle": "none", "marker": curve.look.marker}
        axes.plot(curve.x, curve.y, color=curve.look.colour, markersize=4, label=_text(curve.look.label), **line)
    _log(axes, "y", [value for curve in drawn for value in (float(curve.y.min()), float(curve.y.max()))])
    axes.set_ylabel("sparsity")
    if names is None:
        axes.set_xlabel("devices, sorted by sparsity (%)")
        axes.set_xlim(0.0, 100.0)
    else:
        _name_ticks(axes, names)
    _legend(figure, axes, len(drawn))
    return figure


def draw_forecast(runs: Sequence[RunResults]) -> "Figure | None":
    """Draw rounds and joules to the target: predicted (open) and measured (filled; a triangle means at least)."""
    found = {kind: rows for kind, rows in curves.forecasts(runs).items() if rows}
    if not found:
        return None
    most = max(len(rows) for rows in found.values())
    figure, panels = _figure(len(found), len(found) * (0.6 + 0.2 * most) + 0.3)
    for axes, (kind, rows) in zip(panels, found.items(), strict=True):
        for place, row in enumerate(rows):
            colour = row.look.colour
            axes.plot([row.predicted, row.measured], [place, place], color=colour, linewidth=1.2)
            axes.plot(row.measured, place, "o" if row.reached else ">", color=colour, markersize=5)
            axes.plot(row.predicted, place, "o", color=colour, markerfacecolor="white", markersize=5)
            if row.least is not None and row.most is not None:
                axes.plot([row.least, row.most], [place, place], "|-", color="black", linewidth=0.7, markersize=5)
        values = [value for row in rows for value in (row.predicted, row.measured, row.least, row.most) if value]
        _log(axes, "x", values)
        axes.set_yticks(range(len(rows)), [_text(row.look.label) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"{kind} to the target")
    _legend_of_forecasts(figure)
    return figure


FIGURES: dict[str, Callable[[Sequence[RunResults]], "Figure | None"]] = {
    "accuracy-by-round": draw_accuracy,
    "error-by-joules": draw_error,
    "joules-by-device": draw_joules,
    "sparsity-by-device": draw_sparsity,
    "predicted-and-measured": draw_forecast,
}
WORDS: dict[str, Callable[[Sequence[RunResults]], str]] = {
    "accuracy-by-round": lambda runs: figure_words.accuracy_in_words(curves.accuracy_curves(runs)),
    "error-by-joules": lambda runs: figure_words.error_in_words(curves.error_curves(runs)),
    "joules-by-device": lambda runs: " ".join(map(figure_words.bars_in_words, curves.device_bars(runs))),
    "sparsity-by-device": lambda runs: figure_words.sparsity_in_words(curves.sparsity_curves(runs)[1]),
    "predicted-and-measured": lambda runs: " ".join(
        figure_words.forecasts_in_words(kind, rows) for kind, rows in curves.forecasts(runs).items() if rows
    ),
}


def _figure(panels: int, height_inches: float) -> "tuple[Figure, list[Axes]]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
    return figure, list(figure.subplots(panels, 1, squeeze=False)[:, 0])


def _draw_lines(axes: "Axes", drawn: Sequence[curves.Curve]) -> None:
    for curve in drawn:
        look = curve.look
        plain = curve.seed is None
        marker = look.marker if curve.x.size <= (FEW_POINTS if plain else 1) else "none"
        label = _text(look.label) if not curve.seed else "_nolegend_"
        width, ring = (1.2, 8) if plain else (0.7, 5)
        axes.plot(
            curve.x, curve.y, _dash(curve), color=look.colour, marker=marker, markersize=3, linewidth=width, label=label
        )
        if curve.goal is not None:
            axes.plot(*curve.goal, "o", markersize=ring, markerfacecolor="none", color=look.colour)


def _dash(curve: curves.Curve) -> Any:
    return _DASHES[curve.look.repeat % len(_DASHES)]


def _log(axes: "Axes", which: Literal["x", "y"], values: Any) -> None:
    from matplotlib.ticker import NullLocator

    axis = curves.log_axis(float(value) for value in values)
    chosen = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log", f"{which}lim": (axis.low, axis.high)})
    chosen.set_ticks(axis.ticks, axis.labels)
    chosen.set_minor_locator(NullLocator())


def _name_ticks(axes: "Axes", names: Sequence[str]) -> None:
    shown = curves.spread(len(names), curves.MAX_NAMES)
    labels = [_text(names[place]) for place in shown]
    axes.set_xticks(shown, labels, rotation=45, fontsize=7, ha="right", rotation_mode="anchor")


def _legend(figure: "Figure", axes: "Axes", entries: int) -> None:
    if entries > 1:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)


def _legend_of_kinds(figure: "Figure", drawn: Sequence[curves.DeviceBars]) -> None:
    """Name every kind that a panel shows."""
    from matplotlib.patches import Patch

    used = [kind for kind in KINDS if any(kind in bars.joules for bars in drawn)]
    handles = [Patch(color=curves.KIND_COLOURS[kind], label=kind, linewidth=0) for kind in used]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), columnspacing=1.0, handlelength=1.2)


def _legend_of_forecasts(figure: "Figure") -> None:
    from matplotlib.lines import Line2D

    looks: dict[str, Any] = {"predicted": {"marker": "o", "markerfacecolor": "white"}, "measured": {"marker": "o"}}
    handles = [Line2D([], [], color="#555555", linestyle="none", label=name, **look) for name, look in looks.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=2)


def _text(name: str, most: int = curves.SHORT_NAME) -> str:
    """Escape a name for Matplotlib: no mathematics, and no leading underscore, which would hide it."""
    plain = curves.short(name, most).replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain


@contextmanager
def _quiet_glyphs() -> Iterator[None]:
    """Silence warnings about characters that the font lacks; boxes in their place are enough."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
