"""Figures of plans. Matplotlib is imported where it is used, because it is slow to load."""

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.errors import InvalidInputError
from fewjoules.files import whole_file
from fewjoules.planner.plan import Plan
from fewjoules.planner.schemes import FEWEST
from fewjoules.planner.solve import energy_by_local_steps
from fewjoules.reports.numbers import number
from fewjoules.scenario.planning import ScenarioPlans

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
LOG_SPAN = 20  # a wider range of H is drawn on a logarithmic axis
MAX_STEP_TICKS = 9
WIDE = 10.0  # a wider range of joules is drawn on a logarithmic axis
# Okabe and Ito's palette, safe for colour-blind readers
COLOURS = {
    "flexible": "#0072B2",
    "unified": "#E69F00",
    "greedy": "#D55E00",
    "synchronous": "#009E73",
    "dense": "#000000",
    "fedavg": "#CC79A7",
    "fewest": "#882255",
}
MARKERS = {
    "flexible": "o",
    "unified": "s",
    "greedy": "v",
    "synchronous": "^",
    "dense": "X",
    "fedavg": "D",
    "fewest": "P",
}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}


def require_plot_path(path: str | Path) -> Path:
    """Refuse, before any work is done, a file that could not be written."""
    file = Path(path)
    extension = file.suffix.lower().lstrip(".")
    if extension not in FORMATS:
        raise InvalidInputError(f"{file}: the plot must end in .{', .'.join(FORMATS)}, got {file.suffix!r}")
    if not file.parent.is_dir():
        raise InvalidInputError(f"{file}: the folder of the plot must exist, got {str(file.parent)!r}")
    if file.is_dir():
        raise InvalidInputError(f"{file}: the plot must be a file, got a folder")
    return file


def plot_energy_by_local_steps(planning: ScenarioPlans, plans: Sequence[Plan], path: str | Path) -> None:
    """Draw the ridge, the energy of the best sparsity for each H, and mark the plans."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    file = require_plot_path(path)
    curves = ridge_curves(planning, plans)
    steps = np.unique(np.concatenate([planning.problem(name).step_choices for name in curves]))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 3.8), layout="constrained")
        axes = figure.subplots()
        for name, energy in curves.items():
            style = "--" if name == "unified" else "-"
            axes.plot(
                planning.problem(name).step_choices,
                energy,
                style,
                color=COLOURS[name],
                label=f"{name}, best sparsity at each H",
            )
        low, high = energy_range(curves)
        marked = [plan.local_steps for plan in plans if low <= plan.energy_joules <= high]
        for plan in reversed(plans):
            _mark(axes, plan, low <= plan.energy_joules <= high)
        _frame(axes, np.union1d(steps, marked).astype(np.int64), low, high)
        _save(figure, file, ridge_in_words(plans))


def ridge_curves(planning: ScenarioPlans, plans: Sequence[Plan]) -> dict[str, FloatArray]:
    """Return the least energy for each H, for the schemes that plan both H and sparsity."""
    schemes = {plan.scheme for plan in plans}
    curves = {FEWEST: energy_by_local_steps(planning.problem(FEWEST))} if FEWEST in schemes else {}
    if schemes - {FEWEST}:
        curves["flexible"] = energy_by_local_steps(planning.problem("flexible"))
    if "unified" in schemes:
        curves["unified"] = energy_by_local_steps(planning.problem("unified"), shared=True)
    return curves


def energy_range(curves: dict[str, FloatArray]) -> tuple[float, float]:
    """Return the range of the ridge with some margin; it leaves out plans far above, which would flatten the ridge."""
    values = np.concatenate([curve[np.isfinite(curve)] for curve in curves.values()])
    low, high = float(values.min()), float(values.max())
    air = 0.08 * max(high - low, 0.02 * low, 1e-300)
    return low - air, high + 3.0 * air


def _mark(axes: "Axes", plan: Plan, on_scale: bool) -> None:
    label = f"{plan.scheme} plan: H = {plan.local_steps}, {plan.energy_joules:.4g} J"
    axes.plot(
        plan.local_steps if on_scale else np.nan,
        plan.energy_joules,
        linestyle="none",
        marker=MARKERS[plan.scheme],
        markersize=8,
        markerfacecolor="white",
        markeredgewidth=1.8,
        color=COLOURS[plan.scheme],
        label=label if on_scale else f"{label} (off the scale)",
        zorder=5,
    )


def step_ticks(steps: IntArray) -> list[int]:
    """Return ticks at whole numbers: the least H and round ones up to the largest, few enough to read."""
    least, most = int(steps[0]), int(steps[-1])
    series = [lead * 10**power for power in range(len(str(most))) for lead in (1, 2, 5)]
    if most > LOG_SPAN * least:
        leads = series if most < 1000 * least else series[::3]
        return [least, *(tick for tick in leads if 1.5 * least < tick <= most)]
    step = next(step for step in series if most - least <= MAX_STEP_TICKS * step)
    return [least, *(tick for tick in range(step, most + 1, step) if tick > least + step // 2)]


def _frame(axes: "Axes", steps: IntArray, low: float, high: float) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_xlabel("local steps H between synchronisations")
    axes.set_ylabel("energy of the whole training (J)")
    if steps[-1] > LOG_SPAN * steps[0]:
        axes.set_xscale("log")
    elif steps.size == 1:
        axes.set_xlim(steps[0] - 1.0, steps[0] + 1.0)
    ticks = step_ticks(steps)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    if low > 0.0 and high > WIDE * low:
        axes.set_yscale("log")
    axes.set_ylim(low if low > 0.0 else 0.0, high)
    axes.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def ridge_in_words(plans: Sequence[Plan]) -> str:
    """Tell the plans that the ridge marks."""
    marked = "; ".join(f"{plan.scheme} plan, H = {plan.local_steps}, {number(plan.energy_joules)} J" for plan in plans)
    return f"Line chart of the energy of the whole training by local steps H: {marked}."


def save_with_words(figure: "Figure", stream: BinaryIO, file_format: str, words: str, dpi: int) -> None:
    """Write a figure with a description for readers who cannot see it, and without a date."""
    metadata = {"png": {"Description": words}, "pdf": {"Subject": words, "CreationDate": None}, "svg": {"Date": None}}
    drawn = io.BytesIO()
    figure.savefig(drawn, format=file_format, dpi=dpi, metadata=metadata[file_format])
    data = drawn.getvalue()
    if file_format == "svg":
        label = f'<svg role="img" aria-label="{html.escape(words)}" '
        data = data.replace(b"<svg ", label.encode("utf-8", "replace"), 1)
    stream.write(data)


def _save(figure: "Figure", file: Path, words: str) -> None:
    try:
        with whole_file(file) as stream:
            save_with_words(figure, stream, file.suffix.lower().lstrip("."), words, dpi=200)
    except OSError as error:
        raise InvalidInputError(f"{file}: cannot be written ({error.strerror or error})") from error
