"""Measured costs as a [[device]] table for a scenario, or as a profile, with how they were measured as comments."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fewjoules.metering.costs import Costs, Point
from fewjoules.metering.estimate import Estimate, reach
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
    missing = [f"joules_per_step, joules_per_sample: {_NO_JOULES}"] if costs.joules is None else []
    return _table(told, _steps(costs, told), "compute", missing)


def step_profile(costs: Costs, told: Circumstances, flops_per_sample: float) -> str:
    """Return a profile of local steps, whose costs by sample are told by the operation, for models of any size."""
    measured = _steps(costs, told)
    keys = {
        key.replace("per_sample", "per_flop"): cost / flops_per_sample if "per_sample" in key else cost
        for key, cost in measured.keys.items()
    }
    derived = f"that of a sample, over {flops_per_sample:.6g} operations"
    return _profile(told, replace(measured, keys=keys), {key: derived for key in keys if key.endswith("per_flop")})


def codec_table(writing: Costs, reading: Costs, told: Circumstances) -> str:
    """Return the table of messages: selection and encoding, and decoding."""
    missing = ["joules_per_step, seconds_per_step: see fewjoules measure step"]
    if writing.joules is None:
        missing.insert(0, f"codec_joules_per_parameter, codec_joules_per_entry: {_NO_JOULES}")
    return _table(told, _messages(writing, reading, told), "codec", missing)


def codec_profile(writing: Costs, reading: Costs, told: Circumstances) -> str:
    """Return a profile of messages."""
    return _profile(told, _messages(writing, reading, told), {})


def shortfalls(costs: Costs, told: Circumstances) -> list[str]:
    """Say which measurements were ended by the limit of time, or did not settle before they began."""
    found = []
    for point in costs.points:
        unsettled = f"the times of the warm-up still differed by over {told.protocol.steady:.0%}"
        if not point.trials.reached:
            also = "" if point.trials.steady else f"; {unsettled}"
            found.append(
                f"{point.label}: the limit of {told.protocol.limit_seconds:g} s ended the trials at an interval of "
                f"{_reached(point, costs.idle, told)} (wanted +- {told.protocol.precision:.0%}){also}"
            )
        elif not point.trials.steady:
            found.append(f"{point.label}: {unsettled} after {told.protocol.limit_seconds:g} s")
    return found


def _reached(point: Point, idle: Estimate | None, told: Circumstances) -> str:
    seconds = f"{reach(point.trials.seconds_estimate().relative)} for seconds"
    if idle is None:
        return seconds
    joules = point.trials.joules_estimate(None if told.with_idle else idle)
    return f"{seconds} and {reach(joules.relative)} for joules"


@dataclass(frozen=True, slots=True)
class _Measured:
    """Costs by key of a device, and the measurements that they are fitted to, by title."""

    keys: dict[str, Coefficient]
    parts: tuple[tuple[str, Costs], ...]


def _steps(costs: Costs, told: Circumstances) -> _Measured:
    keys = _keys(_chosen(costs, told), costs.seconds, ("per_step", "per_sample"), "")
    return _Measured(keys, (("fixed + per sample", costs),))


def _messages(writing: Costs, reading: Costs, told: Circumstances) -> _Measured:
    joules = _of_both(_chosen(writing, told), _chosen(reading, told))
    seconds = _of_both(writing.seconds, reading.seconds)
    assert seconds is not None
    keys = _keys(joules, seconds, ("per_parameter", "per_entry"), "codec_")
    terms = "per parameter + per entry"
    return _Measured(keys, ((f"writing, {terms},", writing), (f"reading, {terms},", reading)))


def _chosen(costs: Costs, told: Circumstances) -> CostFit | None:
    return costs.gross_joules if told.with_idle else costs.joules


def _of_both(writing: CostFit | None, reading: CostFit | None) -> CostFit | None:
    """Return the costs as they are booked: a round passes the parameters once each way, an entry goes one way."""
    if writing is None or reading is None:
        return None
    pairs = zip(writing.coefficients, reading.coefficients, strict=True)
    sums = tuple(one + other for one, other in pairs)
    residual = max(writing.largest_residual, reading.largest_residual)
    return CostFit((sums[0], *(entry / 2.0 for entry in sums[1:])), residual)


def _keys(joules: CostFit | None, seconds: CostFit, ends: tuple[str, str], prefix: str) -> dict[str, Coefficient]:
    fits = {"seconds": seconds} if joules is None else {"joules": joules, "seconds": seconds}
    return {
        f"{prefix}{unit}_{end}": coefficient
        for unit, fit in fits.items()
        for end, coefficient in zip(ends, fit.coefficients, strict=False)  # a dense message has no entries to count
    }


def _table(told: Circumstances, measured: _Measured, kind: str, missing: Sequence[str]) -> str:
    lines = [*_head(told, measured), "[[device]]", f"name = {json.dumps(told.name)}"]
    lines += [f"{key} = {cost.value:.6g}  # 95 %: {_interval(cost)}" for key, cost in measured.keys.items()]
    if told.meter is not None:  # the mark is one of joules
        lines.append(f'provenance = {{{kind} = "measured"}}')
    lines += ["# still to be given:", *(f"#   {sentence}" for sentence in (*missing, _RADIO))]
    return "\n".join(lines) + "\n"


def _profile(told: Circumstances, measured: _Measured, derived: Mapping[str, str]) -> str:
    by = f"{told.machine}, measured {told.date} by {told.meter}"
    lines = [*_head(told, measured), f"description = {json.dumps(by)}", "[device]"]
    lines += [f"{key} = {cost.value:.6g}" for key, cost in measured.keys.items()]
    lines.append("[sources]")
    for key, cost in measured.keys.items():
        mark = "fitted" if key in derived else "measured"
        source = f"{told.what}; 95 %: {_interval(cost)}" + (f"; {derived[key]}" if key in derived else "")
        lines.append(f"{key} = {{mark = {json.dumps(mark)}, source = {json.dumps(source)}}}")
    return "\n".join(lines) + "\n"


def _interval(cost: Coefficient) -> str:
    return f"{cost.low:.3g} to {cost.high:.3g}"


def _head(told: Circumstances, measured: _Measured) -> list[str]:
    by = "a clock alone" if told.meter is None else told.meter
    lines = [f"# measured {told.date} on {told.machine} by {by}", f"# {told.command}", f"# {told.what}"]
    idle = measured.parts[0][1].idle
    if idle is not None:
        lines.append(f"# idle power {idle} W; the joules below have it {'in them' if told.with_idle else 'taken off'}")
    for title, costs in measured.parts:
        lines += [f"#   {line}" for line in _point_lines(costs)]
        lines.append(f"# {title} fits to within {_residual(costs, told):.1%}")
        lines += [f"# {sentence}" for sentence in shortfalls(costs, told)]
    return lines


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
