"""Measured costs as a [[device]] table to paste into a scenario, with what was measured and how as comments."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fewjoules.metering.costs import Costs, Point
from fewjoules.metering.estimate import Estimate
from fewjoules.metering.fit import Coefficient, CostFit
from fewjoules.metering.protocol import Protocol

_NO_JOULES = "only seconds were measured"
_RADIO = "joules_per_bit, seconds_per_bit, or [device.radio]: a radio is not measured here"


@dataclass(frozen=True, kw_only=True, slots=True)
class Circumstances:
    """Where, when and how costs were measured; ``meter`` is None if only seconds were."""

    name: str
    machine: str
    meter: str | None
    date: str
    command: str
    what: str
    with_idle: bool
    protocol: Protocol


def step_table(costs: Costs, told: Circumstances) -> str:
    """Return the table of local steps: a fixed part and one for each sample."""
    keys = _keys(_chosen(costs, told), costs.seconds, ("per_step", "per_sample"), "")
    missing = [f"joules_per_step, joules_per_sample: {_NO_JOULES}"] if costs.joules is None else []
    return _table(told, costs.idle, [("fixed + per sample", costs)], keys, "compute", missing)


def codec_table(writing: Costs, reading: Costs, told: Circumstances) -> str:
    """Return the table of messages: selection and encoding, and decoding, added up."""
    joules = _sum(_chosen(writing, told), _chosen(reading, told))
    seconds = _sum(writing.seconds, reading.seconds)
    assert seconds is not None
    keys = _keys(joules, seconds, ("per_parameter", "per_entry"), "codec_")
    missing = ["joules_per_step, seconds_per_step: see fewjoules measure step"]
    if joules is None:
        missing.insert(0, f"codec_joules_per_parameter, codec_joules_per_entry: {_NO_JOULES}")
    parts = [("writing, per parameter + per entry", writing), ("reading, per parameter + per entry", reading)]
    return _table(told, writing.idle, parts, keys, "codec", missing)


def shortfalls(costs: Costs, told: Circumstances) -> list[str]:
    """Say which measurements were ended by the limit of time, or did not settle before they began."""
    found = []
    for point in costs.points:
        if not point.trials.steady:
            found.append(
                f"{point.label}: the times of the warm-up still differed by over {told.protocol.steady:.0%} after "
                f"{told.protocol.limit_seconds:g} s"
            )
        if not point.trials.reached:
            found.append(
                f"{point.label}: the limit of {told.protocol.limit_seconds:g} s ended the trials at an interval of "
                f"{_reached(point, costs.idle, told)} (wanted +- {told.protocol.precision:.0%})"
            )
    return found


def _reached(point: Point, idle: Estimate | None, told: Circumstances) -> str:
    seconds = f"+- {point.trials.seconds_estimate().relative:.1%} for seconds"
    if idle is None:
        return seconds
    joules = point.trials.joules_estimate(None if told.with_idle else idle)
    return f"{seconds} and +- {joules.relative:.1%} for joules"


def _chosen(costs: Costs, told: Circumstances) -> CostFit | None:
    return costs.gross_joules if told.with_idle else costs.joules


def _sum(first: CostFit | None, second: CostFit | None) -> CostFit | None:
    if first is None or second is None:
        return None
    pairs = zip(first.coefficients, second.coefficients, strict=True)
    residual = max(first.largest_residual, second.largest_residual)
    return CostFit(tuple(one + other for one, other in pairs), residual)


def _keys(joules: CostFit | None, seconds: CostFit, ends: tuple[str, str], prefix: str) -> dict[str, Coefficient]:
    fits = {"seconds": seconds} if joules is None else {"joules": joules, "seconds": seconds}
    return {
        f"{prefix}{unit}_{end}": coefficient
        for unit, fit in fits.items()
        for end, coefficient in zip(ends, fit.coefficients, strict=False)  # a dense message has no entries to count
    }


def _table(
    told: Circumstances,
    idle: Estimate | None,
    parts: Sequence[tuple[str, Costs]],
    keys: dict[str, Coefficient],
    kind: str,
    missing: Sequence[str],
) -> str:
    by = "a clock alone" if told.meter is None else told.meter
    lines = [f"# measured {told.date} on {told.machine} by {by}", f"# {told.command}", f"# {told.what}"]
    if idle is not None:
        lines.append(f"# idle power {idle} W; the joules below have it {'in them' if told.with_idle else 'taken off'}")
    for title, costs in parts:
        lines += [f"#   {line}" for line in _point_lines(costs)]
        lines.append(f"# {title} fits to within {_residual(costs, told):.1%}")
        lines += [f"# {sentence}" for sentence in shortfalls(costs, told)]
    lines += ["[[device]]", f"name = {json.dumps(told.name)}"]
    lines += [f"{key} = {cost.value:.6g}  # 95 %: {cost.low:.3g} to {cost.high:.3g}" for key, cost in keys.items()]
    if idle is not None:  # the mark is one of joules
        lines.append(f'provenance = {{{kind} = "measured"}}')
    lines += ["# still to be given:", *(f"#   {sentence}" for sentence in (*missing, _RADIO))]
    return "\n".join(lines) + "\n"


def _point_lines(costs: Costs) -> list[str]:
    lines = []
    for point in costs.points:
        trials = point.trials
        line = f"{point.label}: {trials.seconds_estimate()} s"
        if costs.idle is not None:
            line += f", {trials.joules_estimate(costs.idle)} J, with idle power {trials.joules_estimate(None)} J"
        lines.append(f"{line}, {len(trials.seconds)} trials")
    return lines


def _residual(costs: Costs, told: Circumstances) -> float:
    joules = _chosen(costs, told)
    return max(costs.seconds.largest_residual, 0.0 if joules is None else joules.largest_residual)
