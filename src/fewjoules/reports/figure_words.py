"""The figures of runs in words and as tables, for readers who cannot see them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fewjoules.reports.curves import Curve, DeviceBars, Forecast, SeedPoints
from fewjoules.reports.numbers import number, span

MAX_NAMED = 8  # runs that one sentence describes


@dataclass(frozen=True, slots=True)
class Numbers:
    """A table: titles of the columns, and rows that begin with a name."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def accuracy_in_words(drawn: Sequence[Curve]) -> str:
    """Tell where the accuracy of each run begins and ends."""
    return curves_in_words("test accuracy by round", drawn, "round")


def error_in_words(drawn: Sequence[Curve]) -> str:
    """Tell where the error of each run begins and ends."""
    return curves_in_words("test error by energy", drawn, "J")


def curves_in_words(title: str, drawn: Sequence[Curve], x_unit: str, y_unit: str = " %") -> str:
    """Tell where the curve of each run begins and ends."""
    schemes: dict[str, list[Curve]] = {}
    for curve in drawn:
        schemes.setdefault(curve.look.label, []).append(curve)
    return sentence(f"Line chart of {title}", [_ends_in_words(*item, x_unit, y_unit) for item in schemes.items()])


def _ends_in_words(label: str, own: Sequence[Curve], x_unit: str, y_unit: str) -> str:
    """Tell both ends of one run, or the ranges in which the runs of several seeds end."""
    first = own[0]
    if len(own) == 1:
        start = f"{label} from {number(first.y[0])}{y_unit} at {_at(first.x[0], x_unit)}"
        return f"{start} to {number(first.y[-1])}{y_unit} at {_at(first.x[-1], x_unit)}"
    x, y = (np.array([getattr(curve, axis)[-1] for curve in own]) for axis in ("x", "y"))
    at = f"round {span(x, '{:,.0f}')}" if x_unit == "round" else f"{span(x)} {x_unit}"
    return f"{label} with {len(own)} seeds to {span(y)}{y_unit} at {at}"


def seeds_in_words(drawn: Sequence[SeedPoints]) -> str:
    """Tell mean and range of the joules of each scheme over its seeds."""
    parts = [
        f"{points.look.label} {number(points.spread.mean)} J on average, "
        f"{number(points.spread.least)} to {number(points.spread.most)} J"
        for points in drawn
    ]
    return sentence("Chart of the joules of each seed", parts)


def levers_in_words(levers: Mapping[str, tuple[float, float | None]]) -> str:
    """Tell the joules of each lever, and how many times those of the one before they are, where that is known."""
    parts = [
        f"{label} {number(joules)} J{'' if times is None else f', {times:.2f} times the one before'}"
        for label, (joules, times) in levers.items()
    ]
    return sentence("Bar chart of the joules of each lever", parts)


def bars_in_words(bars: DeviceBars) -> str:
    """Tell the least and the largest joules of a device, and how they split."""
    total = np.sum(list(bars.joules.values()), axis=0)
    least, most = int(total.argmin()), int(total.argmax())
    shares = ", ".join(f"{kind} {values.sum() / max(total.sum(), 1e-300):.0%}" for kind, values in bars.joules.items())
    ends = f"{number(total[least])} J{_named(bars, least)} to {number(total[most])} J{_named(bars, most)}"
    return sentence(f"Bar chart of the joules of each device, {bars.look.label}", [f"{ends}; {shares}"])


def sparsity_in_words(drawn: Sequence[Curve]) -> str:
    """Tell the range of sparsities of each run."""
    return sentence("Chart of the sparsity of each device", [f"{c.look.label} {span(c.y)}" for c in drawn])


def forecasts_in_words(kind: str, rows: Sequence[Forecast]) -> str:
    """Tell prediction and measurement of each run."""
    parts = [f"{row.look.label} predicted {number(row.predicted)}, measured {_measured(row)}" for row in rows]
    return sentence(f"Chart of predicted and measured {kind} to the target", parts)


def joules_table(drawn: Sequence[DeviceBars]) -> Numbers | None:
    """Return the joules of each device, run and kind; None if the devices have no names or differ."""
    names = drawn[0].names
    if names is None or any(bars.names != names for bars in drawn):
        return None
    columns = {f"{bars.look.label}, {kind}": values for bars in drawn for kind, values in bars.joules.items()}
    cells = [[number(value) for value in values] for values in columns.values()]
    titles = ("device", *(f"{title} J" for title in columns))
    return Numbers(titles, tuple((name, *row) for name, *row in zip(names, *cells, strict=True)))


def sparsity_table(names: Sequence[str] | None, drawn: Sequence[Curve]) -> Numbers | None:
    """Return the sparsity of each device and run; None if the devices have no names in common."""
    if names is None:
        return None
    cells = [[number(value) for value in curve.y] for curve in drawn]
    titles = ("device", *(curve.look.label for curve in drawn))
    return Numbers(titles, tuple((name, *row) for name, *row in zip(names, *cells, strict=True)))


def forecast_table(found: dict[str, list[Forecast]]) -> Numbers:
    """Return prediction and measurement of each run."""
    rows = [
        (row.look.label, kind, number(row.predicted), _measured(row)) for kind, rows in found.items() for row in rows
    ]
    return Numbers(("run", "to the target", "predicted", "measured"), tuple(rows))


def _measured(row: Forecast) -> str:
    return f"{'' if row.reached else 'at least '}{number(row.measured)}"


def _at(x: float, unit: str) -> str:
    return f"round {x:,.0f}" if unit == "round" else f"{number(x)} {unit}"


def _named(bars: DeviceBars, place: int) -> str:
    return "" if bars.names is None else f" ({bars.names[place]})"


def sentence(start: str, parts: Sequence[str]) -> str:
    """Return a description of a figure by its parts, of which the first few are told."""
    rest = f"; and {len(parts) - MAX_NAMED:,} more" if len(parts) > MAX_NAMED else ""
    return f"{start}: {'; '.join(parts[:MAX_NAMED])}{rest}."
