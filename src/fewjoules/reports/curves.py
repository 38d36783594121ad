"""Numbers of the five figures of runs, drawn by both the page and the plots."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.reports.comparison import by_label, labels
from fewjoules.reports.plots import COLOURS, MARKERS
from fewjoules.reports.seeds import SchemeRuns, Spread
from fewjoules.runs.results import RunResults

MAX_POINTS = 2_000
MAX_DEVICES_SHOWN = 60
MAX_BUCKETS = 200
MAX_NAMES = 15  # names beside one axis
SHORT_NAME = 18
LOG_SPAN = 20.0  # a range wider than this is drawn on a logarithmic axis
KIND_COLOURS = {  # used for no scheme: blues and grey for the radio, yellow and olive for the processor
    "uplink": "#56B4E9",
    "downlink": "#B5DDF5",
    "tail": "#999999",
    "compute": "#F0E442",
    "codec": "#8F8514",
}
_SPARE_COLOURS = (*COLOURS.values(), "#332288")
_SPARE_MARKERS = "os^vXD"


@dataclass(frozen=True, slots=True)
class Look:
    """How a run is drawn in every figure; ``repeat`` counts earlier runs of the same colour."""

    label: str
    colour: str
    marker: str
    repeat: int


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one run; ``goal`` is the one that reached the target.

    ``seed`` numbers the runs of a scheme with several seeds from 0; it is None for the only run of a scheme.
    """

    look: Look
    x: FloatArray
    y: FloatArray
    goal: tuple[float, float] | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class LogAxis:
    """The range of a logarithmic axis with ticks at round numbers."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceBars:
    """Joules by kind: one bar per device, or per group of equally many devices sorted by joules.

    With several seeds they are means, and ``least`` and ``most`` the range of a named device's total.
    """

    look: Look
    names: tuple[str, ...] | None
    share: FloatArray  # middle of each bar among the sorted devices, in percent
    joules: dict[str, FloatArray]
    least: FloatArray | None = None
    most: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """A prediction of the plan and the measured value, which is a lower bound for a run that missed the target.

    With several seeds the value is their mean, and ``least`` and ``most`` are their range.
    """

    look: Look
    predicted: float
    measured: float
    reached: bool
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class SeedPoints:
    """The joules that each run of a scheme took to the target, or at least took; their mean is ``spread.mean``."""

    look: Look
    joules: tuple[float, ...]
    reached: tuple[bool, ...]
    spread: Spread


def looks(runs: Sequence[RunResults]) -> list[Look]:
    """Choose colours and markers: the same for the same scheme; unknown schemes take unused colours."""
    schemes = dict.fromkeys(run.summary.scheme for run in runs)
    left = [colour for name, colour in COLOURS.items() if name not in schemes] or list(_SPARE_COLOURS)
    others = [scheme for scheme in schemes if scheme not in COLOURS]
    colours = COLOURS | {scheme: left[place % len(left)] for place, scheme in enumerate(others)}
    markers = MARKERS | {scheme: _SPARE_MARKERS[place % len(_SPARE_MARKERS)] for place, scheme in enumerate(others)}
    used: dict[str, int] = {}
    found: dict[str, Look] = {}
    names = labels(runs)
    for run, label in zip(runs, names, strict=True):
        if label in found:
            continue
        colour = colours[run.summary.scheme]
        found[label] = Look(label, colour, markers[run.summary.scheme], used.get(colour, 0))
        used[colour] = used.get(colour, 0) + 1
    return [found[label] for label in names]


def thinned(count: int, most: int, keep: int | None = None) -> IntArray:
    """Choose at most ``most`` of ``count`` indices with both ends: half evenly spaced, half denser at the start."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    half = (most - 1) // 2
    even = np.linspace(0, count - 1, half)
    early = np.geomspace(1, count, half) - 1
    extra = [] if keep is None else [keep]
    return np.unique(np.rint(np.concatenate([even, early, extra])).astype(np.int64))


def accuracy_curves(runs: Sequence[RunResults]) -> list[Curve]:
    """Return test accuracy in percent against rounds, at the evaluated rounds."""
    return column_curves(runs, "round", "test_accuracy", 100.0)


def error_curves(runs: Sequence[RunResults]) -> list[Curve]:
    """Return test error in percent against joules; an error of 0 is drawn at half the least other error."""
    rising = column_curves(runs, "total_joules", "test_accuracy", 100.0)
    curves = [replace(c, y=100.0 - c.y, goal=c.goal and (c.goal[0], 100.0 - c.goal[1])) for c in rising]
    errors = np.concatenate([np.array([200.0]), *(curve.y for curve in curves)])
    floor = float(errors[errors > 1e-9].min()) / 2.0
    return [replace(c, y=np.maximum(c.y, floor), goal=c.goal and (c.goal[0], max(c.goal[1], floor))) for c in curves]


def column_curves(runs: Sequence[RunResults], against: str, column: str, scale: float = 1.0) -> list[Curve]:
    """Return a column of the metrics, times ``scale``, against another one, at the rounds that have both."""
    most = min(MAX_POINTS, max(100, 12_000 // max(1, len(runs))))
    curves = []
    totals, seen = Counter(labels(runs)), Counter[str]()
    for run, look in zip(runs, looks(runs), strict=True):
        seed = seen[look.label] if totals[look.label] > 1 else None
        seen[look.label] += 1
        if column not in (run.metrics.dtype.names or ()):
            continue
        x, y = run.metrics[against].astype(np.float64), scale * run.metrics[column].astype(np.float64)
        drawn = np.flatnonzero(np.isfinite(x) & (x > 0.0) & np.isfinite(y))
        met = np.flatnonzero(run.metrics["round"][drawn] == (run.summary.rounds_to_target or -1))
        goal = int(met[0]) if met.size and run.summary.reached else None
        chosen = drawn[thinned(drawn.size, most, goal)]
        point = None if goal is None else (float(x[drawn[goal]]), float(y[drawn[goal]]))
        if chosen.size:
            curves.append(Curve(look, x[chosen], y[chosen], point, seed))
    return curves


def device_bars(runs: Sequence[RunResults]) -> list[DeviceBars]:
    """Return the joules of each device by kind, for schemes with known joules; kinds without any are left out."""
    bars = []
    for look, own in _with_looks(runs):
        mean = _mean_joules(own)
        joules = {kind: values for kind, values in mean.items() if values.any()} or mean
        if not joules:
            continue
        count = own[0].summary.sparsity.size
        names: tuple[str, ...] | None = own[0].summary.device_names
        totals = np.array([np.sum(list(run.device_joules.values()), axis=0) for run in own])
        least, most = (totals.min(axis=0), totals.max(axis=0)) if len(own) > 1 else (None, None)
        if count > MAX_DEVICES_SHOWN:
            order = np.argsort(-np.sum(list(joules.values()), axis=0), kind="stable")
            joules = {kind: _bucket_means(values[order]) for kind, values in joules.items()}
            names, least, most = None, None, None
        size = next(iter(joules.values())).size
        bars.append(DeviceBars(look, names, (np.arange(size) + 0.5) * 100.0 / size, joules, least, most))
    return bars


def _with_looks(runs: Sequence[RunResults]) -> list[tuple[Look, list[RunResults]]]:
    """Return the runs of each scheme, several where there are several seeds, with their look."""
    look_of = {look.label: look for look in looks(runs)}
    return [(look_of[label], own) for label, own in by_label(runs).items()]


def _mean_joules(runs: Sequence[RunResults]) -> dict[str, FloatArray]:
    """Return the mean joules of each device by kind over the runs of a scheme; nothing if a run has none."""
    if not all(run.device_joules for run in runs):
        return {}
    nothing = np.zeros(runs[0].summary.sparsity.size)
    kinds = dict.fromkeys(kind for run in runs for kind in run.device_joules)
    return {kind: sum((run.device_joules.get(kind, nothing) for run in runs), nothing) / len(runs) for kind in kinds}


def sparsity_curves(runs: Sequence[RunResults]) -> tuple[tuple[str, ...] | None, list[Curve]]:
    """Return the sparsity of each device with its name; many or different devices are sorted and not named."""
    names = {run.summary.device_names for run in runs}
    shared = names.pop() if len(names) == 1 else None
    if shared is not None and len(shared) > MAX_DEVICES_SHOWN:
        shared = None
    curves = []
    schemes = _with_looks(runs)
    for place, (look, own) in enumerate(schemes):
        sparsity = own[0].summary.sparsity
        if shared is None:
            sparsity = np.sort(sparsity)[::-1]
            sparsity = sparsity[np.unique(np.linspace(0, sparsity.size - 1, MAX_BUCKETS).astype(np.int64))]
            curves.append(Curve(look, np.linspace(0.0, 100.0, sparsity.size), sparsity))
        else:
            beside = 0.7 * ((place + 0.5) / len(schemes) - 0.5)  # so that markers do not hide each other
            curves.append(Curve(look, np.arange(sparsity.size, dtype=np.float64) + beside, sparsity))
    return shared, curves


def forecasts(runs: Sequence[RunResults]) -> dict[str, list[Forecast]]:
    """Return predicted and measured rounds and joules to the target, for schemes with a plan and a target."""
    found: dict[str, list[Forecast]] = {"rounds": [], "joules": []}
    for look, own in _with_looks(runs):
        plan = own[0].plan
        if plan is None or any(run.summary.target is None for run in own):
            continue
        group = SchemeRuns(look.label, tuple(own))
        for kind, predicted in (("rounds", plan.rounds), ("joules", plan.energy_joules)):
            measured = group.spread(kind)
            if measured is not None and measured.mean and predicted > 0.0:
                ends = (measured.least, measured.most) if len(own) > 1 else ()
                found[kind].append(Forecast(look, predicted, measured.mean, not group.missed, *ends))
    return found


def seed_points(runs: Sequence[RunResults]) -> list[SeedPoints]:
    """Return the joules of each run to the target, for schemes with several seeds and known joules."""
    found = []
    for look, own in _with_looks(runs):
        spread = SchemeRuns(look.label, tuple(own)).spread("joules")
        if len(own) > 1 and spread is not None and spread.least > 0.0:
            summaries = [run.summary for run in own]
            joules = tuple((one.joules_to_target if one.reached else one.joules) or 0.0 for one in summaries)
            found.append(SeedPoints(look, joules, tuple(one.reached for one in summaries), spread))
    return found


def accuracy_range(drawn: Sequence[Curve], target: float | None) -> tuple[float, float]:
    """Return a range of percentages that holds the curves and the target with some margin."""
    values = np.concatenate([*(curve.y for curve in drawn), [] if target is None else [100.0 * target]])
    air = max(3.0, 0.05 * (values.max() - values.min()))
    return max(0.0, float(values.min() - air)), min(101.0, float(values.max() + air))


def log_axis(values: Iterable[float]) -> LogAxis:
    """Return an axis that holds the positive values with some margin and spans at least a factor of 4."""
    logs = np.log10([value for value in values if value > 0.0] or [1.0]).clip(-307.0, 308.0)
    middle, half = (logs.max() + logs.min()) / 2.0, (logs.max() - logs.min()) / 2.0
    half = max(1.08 * half + 0.02, 0.31)
    low, high = max(middle - half, -323.0), min(middle + half, 308.2)  # powers of 10 that a float can hold
    decades = range(math.floor(low), math.ceil(high) + 1, max(1, math.ceil((high - low) / 7.0)))
    steps = (1, 2, 3, 5, 7) if high - low < 1.1 else (1, 2, 5) if high - low < 2.3 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps if low <= decade + math.log10(step) <= high]
    return LogAxis(10.0**low, 10.0**high, tuple(ticks), tuple(_tick_label(tick) for tick in ticks))


def short(name: str, most: int = SHORT_NAME) -> str:
    """Shorten a name to fit beside an axis; keep its end, which is often a number."""
    return name if len(name) <= most else f"{name[: most - 5]}…{name[-4:]}"


def spread(count: int, most: int) -> list[int]:
    """Return at most ``most`` evenly spaced indices from 0."""
    return list(range(0, count, max(1, math.ceil(count / most))))


def is_wide(values: Iterable[float]) -> bool:
    """Whether the positive values span more than a linear axis shows well."""
    positive = [value for value in values if value > 0.0]
    return bool(positive) and max(positive) > LOG_SPAN * min(positive)


def _tick_label(value: float) -> str:
    if 1e-3 <= value < 1e5:
        return f"{value:,.3g}" if value < 1000.0 else f"{value:,.0f}"
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _bucket_means(values: FloatArray) -> FloatArray:
    edges = np.linspace(0, values.size, min(values.size, MAX_BUCKETS) + 1).astype(np.int64)
    return np.add.reduceat(values, edges[:-1]) / np.diff(edges)
