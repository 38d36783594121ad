"""Style and helpers of all figures. Functions import Matplotlib themselves, since it is slow to load."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fewjoules.files import whole_file
from fewjoules.reports.plots import COLOURS, MARKERS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

WIDTH_INCHES = 3.5
DOTS_PER_INCH = 300
MARKER_LOOKS = {"flexible": (2.5, True), "unified": (5.0, False), "synchronous": (7.0, False)}  # points, filled
PAPER_STYLE: dict[Any, Any] = STYLE | {
    "font.size": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "axes.axisbelow": True,
    "legend.handlelength": 2.6,
}
_UNDATED: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "png": {}}


@contextmanager
def paper_figure(stem: Path, height_inches: float) -> Iterator["Figure"]:
    """A figure one column wide, written as PDF and PNG when the block ends."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(PAPER_STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
        yield figure
        for kind, metadata in _UNDATED.items():
            with whole_file(stem.with_name(f"{stem.name}.{kind}")) as stream:
                figure.savefig(stream, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)


def scheme_line(scheme: str, dashes: Any = "-", *, marked: bool = True) -> dict[str, Any]:
    """Keyword arguments of a line in a scheme's colour and marker; markers stay visible where curves coincide."""
    size, filled = MARKER_LOOKS.get(scheme, (3.5, True))
    return {
        "color": COLOURS[scheme],
        "linestyle": dashes,
        "marker": MARKERS[scheme] if marked else "none",
        "markersize": size,
        "markerfacecolor": COLOURS[scheme] if filled else "none",
    }


def sample(label: str, **look: Any) -> "Line2D":
    """A line for the legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def legend_below(figure: "Figure", handles: Sequence["Line2D"], columns: int) -> None:
    """A legend under the panels, where it covers no data."""
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns, columnspacing=1.2)


def decades(axes: "Axes", which: str, every: int = 1) -> None:
    """Make an axis logarithmic, with ticks at every n-th power of ten and no minor labels."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis.set_major_locator(LogLocator(base=10.0**every, numticks=20))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def plain_ticks(axes: "Axes", ticks: Sequence[int]) -> None:
    """Make the y axis logarithmic, with plain numbers at the given ticks."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(low, high)
