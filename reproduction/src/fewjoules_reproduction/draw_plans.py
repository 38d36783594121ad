"""Draw Fig. 1 from its tables, one function per figure. Solid lines are the certified optimum."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules_reproduction.draw import decades, legend_below, paper_figure, plain_ticks, sample, scheme_line
from fewjoules_reproduction.readings import CHOOSERS, NAMES, READINGS, VARIANTS, Reading
from fewjoules_reproduction.table import Table

Dashes = str | tuple[int, tuple[float, float]]
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

DASHES: dict[str, Dashes] = {
    "pareto": "-",
    "benders": (0, (4, 2)),
    "second": (0, (1, 1.2)),
    "benders, largest H first": (0, (1, 1.2)),
}
VARIANT_LABELS = {"pareto": "exact (pareto)", "benders": "Algorithm 2 (benders)", "second": "second reading"}
CHOOSER_LABELS = {
    "pareto": "exact (pareto)",
    "benders": "Algorithm 2, from H = 1",
    "benders, largest H first": "Algorithm 2, from the largest H (H only)",
}
GROUP_COLOURS = ("#D55E00", "#E69F00", "#009E73", "#0072B2")
GROUP_MARKERS = ("v", "s", "^", "o")
LEAST_PERCENT = 1e-3
DRAWING_ORDER = [reading for variant in VARIANTS for reading in reversed(READINGS) if reading.variant == variant]
STEP_TICKS = (1, 2, 5, 10, 20, 50)


def draw_by_devices(table: Table, stem: Path) -> None:
    """Draw Fig. 1(a): joules per device, and the excess of each scheme over FlexibleSpar."""
    with paper_figure(stem, 4.2) as figure:
        top, bottom = figure.subplots(2, 1, sharex=True)
        drawn = _draw_readings(top, table, "devices", table.numbers("average_joules"))
        plain_ticks(top, (3, 10, 30, 100))
        top.set_ylabel("energy per device (J)")
        above = percent_above_flexible(table, "devices")
        _draw_readings(bottom, table, "devices", np.where(above > LEAST_PERCENT, above, np.nan))
        _percent_axis(bottom)
        bottom.set_ylabel("above FlexibleSpar (%)")
        bottom.set_xlabel("number of devices M")
        legend_below(figure, _reading_legend(drawn), 2)


def draw_by_many_devices(table: Table, stem: Path) -> None:
    """Draw Fig. 1(a) up to a million devices on logarithmic axes, with the minimum of FlexibleSpar marked."""
    with paper_figure(stem, 3.0) as figure:
        axes = figure.subplots()
        drawn = _draw_readings(axes, table, "devices", table.numbers("average_joules"))
        decades(axes, "x")
        decades(axes, "y")
        own = table.where(scheme="flexible", variant="pareto")
        energy, devices = own.numbers("average_joules"), own.numbers("devices")
        least = int(energy.argmin())
        axes.annotate(
            f"least at M = {devices[least]:,.0f}:\n{energy[least]:.2g} J per device",
            (devices[least], energy[least]),
            xytext=(0, 22),
            textcoords="offset points",
            ha="center",
            fontsize=7,
            arrowprops={"arrowstyle": "-", "linewidth": 0.6},
        )
        axes.set_xlabel("number of devices M")
        axes.set_ylabel("energy per device (J)")
        legend_below(figure, _reading_legend(drawn), 2)


def draw_by_heterogeneity(table: Table, stem: Path) -> None:
    """Draw Fig. 1(b): joules per device, and their rise since L = 0."""
    with paper_figure(stem, 4.2) as figure:
        top, bottom = figure.subplots(2, 1, sharex=True)
        drawn = _draw_readings(top, table, "level", table.numbers("average_joules"))
        plain_ticks(top, (6, 10, 20, 30))
        top.set_ylabel("energy per device (J)")
        energy = table.numbers("average_joules")
        first = {(r["scheme"], r["variant"]): r["average_joules"] for r in table.rows() if r["level"] == 0}
        start = np.array([first[r["scheme"], r["variant"]] for r in table.rows()], dtype=np.float64)
        _draw_readings(bottom, table, "level", 100.0 * (energy / start - 1.0))
        bottom.set_ylabel("rise since L = 0 (%)")
        bottom.set_xlabel("heterogeneity level L")
        legend_below(figure, _reading_legend(drawn), 2)


def draw_choices(table: Table, stem: Path, column: str, label: str) -> None:
    """Draw Fig. 1(c) or 1(d): the sparsity of each group, and H, against the energy of a bit or of a step."""
    with paper_figure(stem, 4.4) as figure:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1.5, 1.0))
        for solver in ("pareto", "benders"):
            own = table.where(solver=solver)
            for group, colour, marker in zip((1, 2, 3, 4), GROUP_COLOURS, GROUP_MARKERS, strict=True):
                top.plot(
                    own.numbers(column),
                    own.numbers(f"sparsity_{group}"),
                    color=colour,
                    linestyle=DASHES[solver],
                    marker=marker if solver == "pareto" else "none",
                    markersize=2.5,
                )
        for solver in CHOOSERS:
            own = table.where(solver=solver)
            bottom.plot(own.numbers(column), own.numbers("local_steps"), color="black", linestyle=DASHES[solver])
        plain_ticks(top, (5, 10, 20, 50, 100, 200))
        decades(bottom, "x")
        plain_ticks(bottom, STEP_TICKS)
        top.set_ylabel("sparsity δ")
        bottom.set_ylabel("local steps H")
        bottom.set_xlabel(label)
        groups = [
            sample(f"δ of group {group}", color=colour, marker=marker)
            for group, colour, marker in zip((1, 2, 3, 4), GROUP_COLOURS, GROUP_MARKERS, strict=True)
        ]
        lines = [
            sample(text, color="black", linestyle=DASHES[solver], linewidth=1.2)
            for solver, text in CHOOSER_LABELS.items()
        ]
        legend_below(figure, groups + lines, 2)


def draw_sensitivity(table: Table, stem: Path) -> None:
    """Draw the excess over FlexibleSpar, and its H, against each parameter that the paper does not give."""
    readings = [reading for reading in READINGS if reading.variant != "benders"]
    with paper_figure(stem, 6.0) as figure:
        panels = figure.subplot_mosaic([["alpha", "cost"], ["alpha H", "cost H"], ["limits", "limits"]])
        for name, parameter, label in (
            ("alpha", "alpha", r"$\alpha$, times ours"),
            ("cost", "step to bit cost", r"ζ$_{cmp}$ / ζ$_{com}$, times ours"),
        ):
            own = table.where(parameter=parameter)
            _draw_excess(panels[name], own, readings, np.unique([float(str(setting)) for setting in own["setting"]]))
            decades(panels[name], "x", 2)
            _draw_steps(panels[f"{name} H"], own.where(scheme="flexible", variant="pareto"))
            panels[f"{name} H"].set_xlabel(label)
        _draw_limits(panels["limits"], table, readings)
        for name in ("alpha", "cost", "limits"):
            _percent_axis(panels[name])
            panels[name].set_ylim(top=1e6)
        panels["alpha"].set_ylabel("above FlexibleSpar (%)")
        panels["limits"].set_ylabel("above FlexibleSpar (%)")
        panels["alpha H"].set_ylabel("FlexibleSpar's H")
        legend_below(figure, _reading_legend(readings), 2)


def percent_above_flexible(table: Table, x: str) -> FloatArray:
    """Excess of each row over exact FlexibleSpar at the same x, in percent, shape (rows,)."""
    least = {row[x]: row["average_joules"] for row in table.where(scheme="flexible", variant="pareto").rows()}
    reference = np.array([least[at] for at in table[x]], dtype=np.float64)
    return 100.0 * (table.numbers("average_joules") / reference - 1.0)


def _draw_readings(axes: "Axes", table: Table, x: str, y: FloatArray) -> list[Reading]:
    """Draw a line for each reading in the table; return these readings."""
    schemes, variants = np.array(table["scheme"]), np.array(table["variant"])
    drawn = []
    for reading in DRAWING_ORDER:
        rows = (schemes == reading.scheme) & (variants == reading.variant)
        if rows.any():
            drawn.append(reading)
            look = scheme_line(reading.scheme, DASHES[reading.variant], marked=reading.variant == "pareto")
            axes.plot(table.numbers(x)[rows], y[rows], **look)
    return [reading for reading in READINGS if reading in drawn]


def _draw_excess(axes: "Axes", table: Table, readings: Sequence[Reading], x: FloatArray) -> None:
    """Draw percent above FlexibleSpar against x, one line per reading; ``table`` has a row for each x and reading."""
    for reading in readings:
        ratio = table.where(scheme=reading.scheme, variant=reading.variant).numbers("ratio")
        if reading.scheme != "flexible":
            look = scheme_line(reading.scheme, DASHES[reading.variant], marked=reading.variant == "pareto")
            axes.plot(x, np.maximum(100.0 * (ratio - 1.0), LEAST_PERCENT), **look)


def _draw_steps(axes: "Axes", flexible: Table) -> None:
    factors = [float(str(setting)) for setting in flexible["setting"]]
    axes.plot(factors, flexible.numbers("local_steps"), **scheme_line("flexible"))
    decades(axes, "x", 2)
    plain_ticks(axes, STEP_TICKS)


def _draw_limits(axes: "Axes", table: Table, readings: Sequence[Reading]) -> None:
    """Draw the parameters that have three settings each, side by side."""
    labels: list[str] = []
    for parameter, text in (("largest sparsity", "δ ≤ {}"), ("largest H", "H ≤ {}"), ("rounds", "{} K")):
        own = table.where(parameter=parameter)
        settings = list(dict.fromkeys(own["setting"]))
        _draw_excess(axes, own, readings, np.arange(len(labels), len(labels) + len(settings), dtype=np.float64))
        labels += [text.format(setting) for setting in settings]
    axes.set_xticks(range(len(labels)), labels, rotation=35, ha="right", rotation_mode="anchor")


def _percent_axis(axes: "Axes") -> None:
    """Make the y axis one of logarithmic percentages, with zero at its lower edge."""
    decades(axes, "y", 2)
    axes.set_ylim(bottom=LEAST_PERCENT)


def _reading_legend(readings: Sequence[Reading]) -> list["Line2D"]:
    schemes = dict.fromkeys(reading.scheme for reading in readings)
    variants = dict.fromkeys(reading.variant for reading in readings)
    return [sample(NAMES[scheme], **scheme_line(scheme)) for scheme in schemes] + [
        sample(VARIANT_LABELS[variant], color="black", linestyle=DASHES[variant]) for variant in variants
    ]
