"""Compare runs: one row per run, the cheapest first or levers in their order, and the saving in one sentence."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fewjoules.ledger.target import Target, common_target, percent
from fewjoules.reports.fitting import FittingTable
from fewjoules.reports.levers import label_of, place_of, times_before
from fewjoules.reports.numbers import number, rounds_said
from fewjoules.runs.results import RunResults, plain_text

UNKNOWN = "-"
ONE_SEED = "This is the result of one seed; another may rank them differently."
_NBSP = "\u00a0"
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of one run; ``missed`` if it had a target and did not reach it."""

    run: RunResults
    cells: tuple[str, ...]
    missed: bool


def comparison_table(runs: Sequence[RunResults]) -> FittingTable:
    """Return the runs as a table for the terminal."""
    runs = ranked(runs)
    rows = comparison_rows(runs)
    missed = frozenset(number for number, row in enumerate(rows) if row.missed)
    return FittingTable(column_titles(runs), [row.cells for row in rows], missed)


def column_titles(runs: Sequence[RunResults]) -> tuple[str, ...]:
    """Return the titles of the columns, which end in their units."""
    joules = "J" if any(run.summary.target is None for run in runs) else "J to target"
    last = aim(runs).name if _best(runs) is None else "x least"
    before = ("x before",) if _times_before(runs) else ()
    return ("scheme", "H", "rounds", joules, "radio J", "compute J", "seconds", "payload", last, *before)


def ranked(runs: Sequence[RunResults]) -> list[RunResults]:
    """Sort runs: levers in their order; others by their joules to the target, then those that missed it."""
    schemes = [run.summary.scheme for run in runs]
    return sorted(runs, key=lambda run: (place_of(run.summary.scheme, schemes), _rank(run)))


def comparison_rows(runs: Sequence[RunResults]) -> list[Row]:
    """Return one row per run; totals count up to the target, or to the end of a run that missed it."""
    best, before = _best(runs), _times_before(runs)
    rows = [_row(run, name, best) for run, name in zip(runs, labels(runs), strict=True)]
    if not before:
        return rows
    return [replace(row, cells=(*row.cells, before_text(before, row.run.summary.scheme))) for row in rows]


def labels(runs: Sequence[RunResults]) -> list[str]:
    """Return a name for each run: its scheme's, numbered where runs share it that do not differ in their seeds."""
    totals = Counter((run.summary.scheme, run.summary.seed) for run in runs)
    shared = {scheme for (scheme, _), total in totals.items() if total > 1}
    seen: Counter[str] = Counter()
    names = []
    for run in runs:
        scheme = run.summary.scheme
        seen[scheme] += 1
        names.append(f"{label_of(scheme)} #{seen[scheme]}" if scheme in shared else label_of(scheme))
    return names


def by_label(runs: Sequence[RunResults]) -> dict[str, list[RunResults]]:
    """Gather the runs that share a name: those of one scheme with several seeds."""
    found: dict[str, list[RunResults]] = {}
    for run, label in zip(runs, labels(runs), strict=True):
        found.setdefault(label, []).append(run)
    return found


def run_names(runs: Sequence[RunResults]) -> list[str]:
    """Return a name for each run that no other has: its label, with the seed where several seeds share it."""
    names = labels(runs)
    totals = Counter(names)
    return [
        f"{name} with seed {run.summary.seed}" if totals[name] > 1 else name
        for run, name in zip(runs, names, strict=True)
    ]


def headline(runs: Sequence[RunResults]) -> str:
    """Summarise the runs in one sentence."""
    names = labels(runs)
    if len(runs) == 1:
        return _alone(names[0], runs[0])
    target = shared_target(runs)
    if target is None:
        return f"{len(runs)} runs without a common target"
    reached = sorted((run for run in runs if run.summary.reached), key=_rank)
    name = {id(run): label for run, label in zip(runs, names, strict=True)}
    if not reached:
        closest = min(runs, key=lambda run: target.distance(run.summary.tested))
        return f"No run reached {target}; the closest was {name[id(closest)]} with {_tested(closest)}."
    first, last = reached[0], reached[-1]
    sentence = f"{name[id(first)]} reached {target} {_price(first)}"
    factor = _factor(last, first)
    if last is first or factor is None:
        return f"{sentence}."
    return f"{sentence}; {name[id(last)]} took {times_as_much(factor)}."


def remarks(runs: Sequence[RunResults]) -> list[str]:
    """Return sentences about runs that missed the target or were interrupted, and about missing joules."""
    names = labels(runs)
    found = []
    for run, name in zip(runs, names, strict=True):
        summary = run.summary
        if summary.target_reached is False and summary.target is not None and len(runs) > 1:
            found.append(
                f"{name} did not reach {summary.target}: it stopped at {_tested(run)} "
                f"after {rounds_said(summary.rounds)} (limit: {summary.stop_reason})."
            )
        elif summary.stop_reason == "interrupted":
            found.append(f"{name} was interrupted after {rounds_said(summary.rounds)}.")
    unknown = [name for run, name in zip(runs, names, strict=True) if run.summary.joules is None]
    if unknown:
        found.append(f"No fleet was given for {', '.join(unknown)}, so joules are unknown.")
    return [*found, *one_seed(runs), *guard_sentences(runs), *metered_sentences(runs)]


def guard_sentences(runs: Sequence[RunResults]) -> list[str]:
    """Say where the guard returned to an earlier model, and what it left of the step size."""
    found = []
    for run, name in zip(runs, run_names(runs), strict=True):
        returns, rate = run.summary.returns, run.summary.learning_rate
        if not returns:
            continue
        times = {1: "once", 2: "twice"}.get(len(returns), f"{len(returns)} times")
        now = "" if rate is None else f"; the step size is now {rate:.4g}"
        guard = "The guard" if len(runs) == 1 else f"The guard of {name}"
        found.append(f"{guard} returned {times}, after {_rounds(returns)}{now}.")
    return found


def _rounds(numbers: Sequence[int]) -> str:
    *others, last = [f"{number:,}" for number in numbers]
    return f"rounds {', '.join(others)} and {last}" if others else f"round {last}"


def one_seed(runs: Sequence[RunResults]) -> list[str]:
    """Return the sentence that a ranking of runs is the result of one seed; nothing if nothing was ranked."""
    known = [run for run in runs if run.summary.reached and run.summary.joules_to_target is not None]
    return [ONE_SEED] if len(known) > 1 and shared_target(runs) is not None else []


def metered_sentences(runs: Sequence[RunResults]) -> list[str]:
    """Say what meters read while runs were trained, which is no part of their ledgers."""
    found = []
    for run, name in zip(runs, run_names(runs), strict=True):
        metered = run.summary.metered
        if metered is None:
            continue
        readings = [f"{_meter_joules(joules)} by {plain_text(meter)}" for meter, joules in metered.joules.items()]
        parts = "" if metered.parts <= 1 else f", in {metered.parts} parts, of which a kill may have cut off seconds"
        found.append(
            f"The machine that trained {name} spent {' and '.join(readings)} in {number(metered.seconds)} s, "
            f"idle power included{parts}; the ledger does not count it."
        )
    return found


def _meter_joules(joules: float | None) -> str:
    return "unknown joules" if joules is None else f"{number(joules)}{_NBSP}J"


def shared_target(runs: Sequence[RunResults]) -> Target | None:
    """Return the target if all runs share one."""
    return common_target(run.summary.target for run in runs)


def aim(runs: Sequence[RunResults]) -> Target:
    """Return the target that all runs share; without one they are tested for accuracy."""
    return shared_target(runs) or Target("accuracy", 1.0)


def shared_accuracy(runs: Sequence[RunResults]) -> float | None:
    """Return the target accuracy if all runs share one."""
    target = shared_target(runs)
    return target.value if target is not None and target.rises else None


def ratio(value: float) -> str:
    """Format a ratio with three digits."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def before_text(times: Mapping[str, float | None], scheme: str) -> str:
    """Format what a lever brought; nothing for a scheme that is no lever."""
    if scheme not in times:
        return ""
    factor = times[scheme]
    return UNKNOWN if factor is None else ratio(factor)


def times_as_much(factor: float) -> str:
    """Say that something took so many times as much."""
    return "as much" if factor < 1.005 else f"{factor:,.3g} times as much"


def byte_count(count: float) -> str:
    """Format bytes in the largest unit that leaves a whole part."""
    place = min(len(_BYTE_UNITS) - 1, max(0, int(math.log10(max(count, 1.0)) + 1e-9) // 3))
    return f"{count / 1000**place:.4g} {_BYTE_UNITS[place]}"


def _rank(run: RunResults) -> tuple[bool, float, int]:
    summary = run.summary
    joules = summary.joules_to_target if summary.reached else summary.joules
    rounds = summary.rounds_to_target if summary.reached else summary.rounds
    missed = summary.target is not None and not summary.reached
    return missed, math.inf if joules is None else joules, rounds or 0


def _best(runs: Sequence[RunResults]) -> float | None:
    """Return the least joules to the target, if the runs can be compared."""
    if len(runs) < 2 or shared_target(runs) is None:
        return None
    joules = [run.summary.joules_to_target for run in runs if run.summary.reached]
    return min((value for value in joules if value), default=None)


def _times_before(runs: Sequence[RunResults]) -> dict[str, float | None]:
    if shared_target(runs) is None:
        return {}
    return times_before({run.summary.scheme: run.summary.joules_to_target for run in runs})


def _row(run: RunResults, name: str, best: float | None) -> Row:
    summary = run.summary
    missed = summary.target is not None and not summary.reached
    joules = summary.joules_to_target if summary.reached else summary.joules
    rounds = summary.rounds_to_target if summary.reached else summary.rounds
    seconds = summary.seconds_to_target if summary.reached else summary.seconds
    more = "> " if missed else ""
    tested = UNKNOWN if summary.tested is None else _tested(run)
    if missed:
        last = f"missed: {tested}"
    elif best is None:
        last = tested
    else:
        last = UNKNOWN if joules is None else ratio(joules / best)
    cells = (
        name,
        str(summary.local_steps),
        f"{more}{rounds:,}",
        UNKNOWN if joules is None else more + number(joules),
        _known(run.at_target("total_radio_joules")),
        _known(run.at_target("total_compute_joules")),
        UNKNOWN if seconds is None else more + number(seconds),
        byte_count(run.at_target("total_payload_bytes")) if run.metrics.size else UNKNOWN,
        last,
    )
    return Row(run, cells, missed)


def _known(value: float) -> str:
    return UNKNOWN if math.isnan(value) else number(value)


def _tested(run: RunResults) -> str:
    """Say what the last evaluation found, in the words of the target."""
    return aim([run]).said(run.summary.tested)


def _price(run: RunResults) -> str:
    """Format the joules to the target if they are known, else the rounds."""
    joules = run.summary.joules_to_target
    return f"in {rounds_said(run.summary.rounds_to_target)}" if joules is None else f"with {number(joules)}{_NBSP}J"


def _factor(run: RunResults, best: RunResults) -> float | None:
    """Return the joules as a multiple of those of the best run, if both are known."""
    ours, least = run.summary.joules_to_target, best.summary.joules_to_target
    return ours / least if ours is not None and least else None


def _alone(name: str, run: RunResults) -> str:
    summary = run.summary
    if summary.reached and summary.target is not None:
        rounds = "" if summary.joules_to_target is None else f" in {rounds_said(summary.rounds_to_target)}"
        return f"{name} reached {summary.target} {_price(run)}{rounds}."
    spent = "" if summary.joules is None else f" and {number(summary.joules)}{_NBSP}J"
    if summary.target is not None:
        missed = f"{name} did not reach {summary.target}"
        return f"{missed}: {_tested(run)} after {rounds_said(summary.rounds)}{spent}."
    accuracy = "no known" if summary.test_accuracy is None else percent(summary.test_accuracy)
    return f"{name}: {accuracy} test accuracy after {rounds_said(summary.rounds)}{spent}."
