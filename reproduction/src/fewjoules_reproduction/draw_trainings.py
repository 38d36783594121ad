"""Draw Fig. 2 from StudyResults. Lines are means over seeds, bands reach from minimum to maximum."""

import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules_reproduction.draw import WIDTH_INCHES, legend_below, paper_figure, sample, scheme_line
from fewjoules_reproduction.readings import NAMES
from fewjoules_reproduction.records import Record
from fewjoules_reproduction.results import StudyResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

PAPER = ("dense", "flexible", "unified", "greedy", "synchronous")
RIVALS = ("dense", "flexible", "fedavg", "qsgd", "qsparse", "stc", "momentum", "adaptive")
LABELS = NAMES | {
    "dense": "dense SGD",
    "fedavg": "local SGD (FedAvg)",
    "qsgd": "QSGD",
    "qsparse": "Qsparse-local-SGD",
    "stc": "STC",
    "momentum": "local SGD, momentum",
    "adaptive": "adaptive H",
    "flexible-paper": "FlexibleSpar by the paper's form",
    "flexible-bound": "FlexibleSpar by the bound",
}
DASHES: dict[str, Any] = {
    "dense": (0, (4, 1.5)),
    "flexible": "-",
    "unified": (0, (5, 1, 1, 1)),
    "greedy": (0, (1, 1)),
    "synchronous": "-",
    "fedavg": (0, (5, 1, 1, 1)),
    "qsgd": "-",
    "qsparse": "-",
    "stc": (0, (1, 1)),
    "momentum": (0, (3, 1)),
    "adaptive": (0, (5, 1, 1, 1, 1, 1)),
}
ORDER = {
    "synchronous": 1.8,
    "flexible": 3.0,
    "unified": 3.5,
}  # drawing order: these may coincide, and all must stay visible
RIVAL_COLOURS = {
    "qsgd": "#56B4E9",
    "qsparse": "#882255",
    "stc": "#999933",
    "momentum": "#44AA99",
    "adaptive": "#888888",
}
BAND_OPACITY = 0.18
EARLY_PART = 0.05  # of the epochs, shown in the upper panel of training accuracy
EARLY_EVALUATIONS = 6  # the least that this panel shows
LEAST_ERROR = 3e-4  # of training accuracy; smaller ones are drawn on the upper edge
ACCURACY_TICKS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
GRID_POINTS = 400
NOTE_LETTERS_PER_INCH = 22


def draw_accuracy(results: StudyResults, stem: Path) -> None:
    """Draw Fig. 2(a) or 2(c): training accuracy against epochs, the beginning above and the whole run below."""
    with paper_figure(stem, 4.4) as figure:
        top, bottom = figure.subplots(2, 1, height_ratios=(1.0, 1.3))
        drawn = [name for name in PAPER if _drawable(results, name)]
        for name in drawn:
            for axes, smooth in ((top, 1), (bottom, 5)):
                x, band = _band(results, name, _epochs, partial(_smoothed, evaluations=smooth), np.linspace)
                _draw_band(axes, name, x, band)
        epochs = [_epochs(run) for name in drawn for run in _runs(results, name)]
        end = max((x[-1] for x in epochs), default=1.0)
        most = max((x[min(EARLY_EVALUATIONS, x.size) - 1] for x in epochs), default=1.0)
        top.set_xlim(0.0, max(EARLY_PART * end, most))
        top.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
        top.set_ylabel("training accuracy (%)")
        bottom.set_xlim(0.0, end)
        _error_scale(bottom)
        bottom.set_ylabel("training accuracy (%)")
        bottom.set_xlabel("epochs")
        top.set_title(results.study.title, fontsize=8)
        legend_below(figure, _legend(drawn), 3)
        _note(figure, results, PAPER)


def draw_energy(results: StudyResults, stem: Path) -> None:
    """Draw Fig. 2(b) or 2(d): test error against joules; the paper's schemes left, other methods right."""
    panels = energy_panels(results)
    with paper_figure(stem, 3.2) as figure:
        figure.set_size_inches(WIDTH_INCHES * len(panels), 3.2)
        row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, panel in zip(row, panels, strict=True):
            for name in filter(partial(_drawable, results), panel):
                x, band = _band(results, name, _joules, _lowest_error, np.geomspace)
                _draw_band(axes, name, x, band)
            axes.set_xlabel("energy of all devices so far (J)")
        row[0].set_xscale("log")
        row[0].set_yscale("log")
        few_decades(row[0].xaxis, row[0].get_xlim())
        few_decades(row[0].yaxis, row[0].get_ylim())
        row[0].set_ylabel("lowest test error so far (%)")
        figure.suptitle(results.study.title, fontsize=8)
        names = list(dict.fromkeys(name for panel in panels for name in panel))
        drawn = [name for name in names if _drawable(results, name)]
        legend_below(figure, _legend(drawn), 5 if len(panels) > 1 else 2)
        _note(figure, results, names)


def energy_panels(results: StudyResults) -> list[tuple[str, ...]]:
    """The settings in each panel of test error against joules."""
    return [PAPER, RIVALS] if results.study.baselines else [(*PAPER, "fedavg")]


def _band(
    results: StudyResults,
    name: str,
    x_of: Callable[[Record], FloatArray],
    y_of: Callable[[Record], FloatArray],
    spaced: Callable[[float, float, int], FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Common x of all runs of a setting, and the mean, minimum and maximum of y there, shape (3, x).

    A run that diverged counts up to there.
    """
    runs = _runs(results, name)
    finished = [run for run in runs if run["stop_reason"] != "diverged"]
    first = max(x_of(run)[0] for run in runs)
    last = min(x_of(run)[-1] for run in finished) if finished else max(x_of(run)[-1] for run in runs)
    x = spaced(first, max(first, last), GRID_POINTS)
    y = np.array([np.interp(x, x_of(run), y_of(run), right=np.nan) for run in runs])
    x, y = x[~np.isnan(y).all(axis=0)], y[:, ~np.isnan(y).all(axis=0)]  # rounding can put the last x outside
    return x, np.array([np.nanmean(y, axis=0), np.nanmin(y, axis=0), np.nanmax(y, axis=0)])


def _epochs(run: Record) -> FloatArray:
    return np.array(run["curve"]["epochs"])


def _joules(run: Record) -> FloatArray:
    return np.array(run["curve"]["total_joules"])


def _lowest_error(run: Record) -> FloatArray:
    return 100.0 * (1.0 - np.maximum.accumulate(run["curve"]["test_accuracy"]))


def _smoothed(run: Record, evaluations: int) -> FloatArray:
    """Training accuracy as a centred mean over an odd number of evaluations, and over fewer near the ends."""
    accuracy = np.array(run["curve"]["train_accuracy"])
    at = np.arange(accuracy.size)
    half = np.minimum(evaluations // 2, np.minimum(at, at[::-1]))
    total = np.concatenate([[0.0], np.cumsum(accuracy)])
    return np.asarray((total[at + half + 1] - total[at - half]) / (2 * half + 1))


def _draw_band(axes: "Axes", name: str, x: FloatArray, band: FloatArray) -> None:
    look = _look(name)
    axes.plot(x, band[0], zorder=ORDER.get(name, 2.0), **look)
    axes.fill_between(x, band[1], band[2], color=look["color"], alpha=BAND_OPACITY, linewidth=0.0)


def _look(name: str) -> dict[str, Any]:
    if name in RIVAL_COLOURS:
        return {"color": RIVAL_COLOURS[name], "linestyle": DASHES[name]}
    wide = {"linewidth": 2.4, "alpha": 0.7} if name == "synchronous" else {}
    return scheme_line(name, DASHES[name], marked=False) | wide


def _legend(names: Sequence[str]) -> list["Line2D"]:
    return [sample(LABELS[name], **_look(name)) for name in names]


def _runs(results: StudyResults, name: str) -> list[Record]:
    return [run for run in results.curves[name].runs if run["curve"]["epochs"]] if name in results.curves else []


def _drawable(results: StudyResults, name: str) -> bool:
    return len(_runs(results, name)) > 0


def _error_scale(axes: "Axes") -> None:
    """Scale the y axis by the logarithm of 1 - accuracy, so that accuracies near 1 can be told apart."""
    axes.set_yscale(
        "function",
        functions=(
            lambda accuracy: -np.log10(np.maximum(1.0 - accuracy, LEAST_ERROR)),
            lambda value: 1.0 - 10.0**-value,
        ),
    )
    lines = [np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.get_lines()]
    least = min((float(y.min()) for y in lines if y.size), default=0.0)
    most = max((float(y.max()) for y in lines if y.size), default=0.99)
    low, high = max(0.0, 1.1 * least - 0.1), 1.0 - max(LEAST_ERROR, 0.8 * (1.0 - most))
    axes.set_ylim(low, high)
    ticks = [tick for tick in ACCURACY_TICKS if low <= tick <= high]
    labels = [f"{100 * tick:g}" for tick in ticks]
    if high == 1.0 - LEAST_ERROR:
        ticks, labels = [*ticks, high], [*labels, f"≥ {100 * high:g}"]
    axes.set_yticks(ticks, labels)


def few_decades(axis: "Axis", limits: tuple[float, float]) -> None:
    """Label round numbers of a logarithmic axis; the more decades it spans, the fewer numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    span = limits[1] / limits[0]
    subs_up_to = {10.0: (1, 2, 3, 4, 5, 7), 300.0: (1, 2, 5), 3000.0: (1, 3)}
    subs = next((subs for most, subs in subs_up_to.items() if span < most), (1,))
    axis.set_major_locator(LogLocator(base=10.0, subs=subs, numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _note(figure: "Figure", results: StudyResults, names: Sequence[str]) -> None:
    """Write under the panels what was not run and what diverged."""
    from matplotlib.font_manager import FontProperties

    letters = int(NOTE_LETTERS_PER_INCH * figure.get_size_inches()[0])
    text = "\n".join(textwrap.wrap(note_text(results, names), letters))
    if text:
        figure.legends[-1].set_title(text, prop=FontProperties(size=6))


def note_text(results: StudyResults, names: Sequence[str]) -> str:
    """Which of the settings were not run or diverged; empty if none."""
    seeds = len(results.study.scale.seeds)
    missing = {name: seeds - len(_all_runs(results, name)) for name in names}
    diverged = {name: _diverged(results, name) for name in names}
    parts = []
    for title, counts in (("not run", missing), ("diverged", diverged)):
        listed = [
            LABELS[name] + ("" if count == seeds else f" ({count} of {seeds} seeds)")
            for name, count in counts.items()
            if count > 0
        ]
        if listed:
            parts.append(f"{title}: {', '.join(listed)}")
    return "; ".join(parts)


def _all_runs(results: StudyResults, name: str) -> Sequence[Record]:
    return results.curves[name].runs if name in results.curves else ()


def _diverged(results: StudyResults, name: str) -> int:
    return sum(run["stop_reason"] == "diverged" for run in _all_runs(results, name))
