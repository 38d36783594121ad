"""Draw pilot runs with the fitted laws, and the predictions of each law beside the trainings of Fig. 2."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fewjoules_reproduction.draw import WIDTH_INCHES, decades, legend_below, paper_figure, sample, scheme_line
from fewjoules_reproduction.draw_trainings import LABELS, PAPER, few_decades
from fewjoules_reproduction.results import StudyResults
from fewjoules_reproduction.studies import STUDIES
from fewjoules_reproduction.tables_trainings import LAWS, pilots_table, predictions_table, rounds_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEP_COLOURS = ("#000000", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7")
LAW_LABELS = {"power-law": "by the power law", "paper": "by the paper's form", "bound": "by the bound"}


def draw_pilots(results: StudyResults, stem: Path) -> None:
    """Draw rounds of the pilot runs against sparsity, one line per H, with both fitted laws."""
    table, pilots = pilots_table(results), results.pilots
    with paper_figure(stem, 3.4) as figure:
        axes = figure.subplots()
        steps = sorted({int(h) for h in table["local_steps"]})
        for h, colour in zip(steps, STEP_COLOURS, strict=False):
            own = table.where(local_steps=h)
            axes.plot(own.numbers("sparsity"), own.numbers("rounds"), color=colour, marker="o", linestyle="none")
            if pilots is None:
                continue
            x = np.geomspace(table.numbers("sparsity").min(), table.numbers("sparsity").max(), 60)
            devices = len(results.scenario.fleet)
            for law, dashes in (("power-law", "-"), ("paper", (0, (4, 2)))):
                y = [rounds_by(pilots, law, np.full(devices, delta), h) for delta in x]
                axes.plot(x, y, color=colour, linestyle=dashes)
        axes.set_xscale("log")
        axes.set_yscale("log")
        few_decades(axes.xaxis, (1.0, 1e9))
        few_decades(axes.yaxis, axes.get_ylim())
        axes.set_xlabel("sparsity δ, the same on all devices")
        axes.set_ylabel(f"rounds to {100 * STUDIES[results.study.pilots].scale.pilot_accuracy:g} % test accuracy")
        axes.set_title(results.study.title, fontsize=8)
        handles = [sample(f"H = {h}", color=c, marker="o") for h, c in zip(steps, STEP_COLOURS, strict=False)]
        handles += [sample("power law", color="black"), sample("paper's form", color="black", linestyle=(0, (4, 2)))]
        legend_below(figure, handles, 3)


def draw_predictions(results: StudyResults, stem: Path) -> None:
    """Draw predicted against measured rounds and joules of each plan and target; the bound has its own panels."""
    table = predictions_table(results)
    schemes = [name for name in (*PAPER, "fedavg") if name in table["setting"]]
    with paper_figure(stem, 3.9) as figure:
        figure.set_size_inches(2.0 * WIDTH_INCHES, 3.9)
        rows = figure.subplots(2, 2, sharex="col", height_ratios=(0.35, 1.0))
        for (above, below), unit in zip(rows.T, ("rounds", "joules"), strict=True):
            for axes in (above, below):
                axes.set_xscale("log")
                axes.set_yscale("log")
            for law in LAWS:
                axes = above if law == "bound" else below
                for name in schemes:
                    own = table.where(law=law, setting=name)
                    axes.plot(own.numbers(f"measured_{unit}"), own.numbers(f"predicted_{unit}"), **_point(name, law))
            above.margins(y=0.15)
            decades(above, "y", 3)
            _diagonal(below)
            below.set_xlabel(f"measured {unit} to a target")
            below.set_ylabel(f"predicted {unit}")
        rows[0, 0].set_title(f"{results.study.title}; above: the bound's own constants", fontsize=8, loc="left")
        laws = [sample(LAW_LABELS[law], **_point("flexible", law) | {"color": "#666666"}) for law in LAWS]
        laws[0].set_markerfacecolor("#666666")
        legend_below(figure, [sample(LABELS[name], **_point(name, "power-law")) for name in schemes] + laws, 5)


def _point(name: str, law: str) -> dict[str, Any]:
    """Marker of a scheme: filled for the power law, open for the paper's form, pale for the bound."""
    look = scheme_line(name, "none") | {"markersize": 5.0}
    look["markerfacecolor"] = look["color"] if law == "power-law" else "none"
    return look | {"alpha": 0.35 if law == "bound" else 1.0}


def _diagonal(axes: "Axes") -> None:
    """Make both axes equal and draw the line of exact predictions."""
    low = 0.9 * min(axes.get_xlim()[0], axes.get_ylim()[0])
    high = max(axes.get_xlim()[1], axes.get_ylim()[1]) / 0.9
    axes.plot([low, high], [low, high], color="#888888", linewidth=0.8, zorder=1, scalex=False, scaley=False)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    for axis in (axes.xaxis, axes.yaxis):
        few_decades(axis, (low, high))
