"""Compare schemes over several seeds: one row per scheme with means and ranges, and ties in the headline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fewjoules.reports.comparison import (
    UNKNOWN,
    aim,
    before_text,
    byte_count,
    guard_sentences,
    headline,
    metered_sentences,
    one_seed,
    ratio,
    shared_target,
    times_as_much,
)
from fewjoules.reports.fitting import FittingTable
from fewjoules.reports.lever_words import lever_headline
from fewjoules.reports.numbers import brief, number
from fewjoules.reports.seeds import (
    SchemeRuns,
    Spread,
    Verdict,
    grouped,
    lever_times,
    listed_names,
    rank,
    several_seeds,
    spread_text,
    verdicts,
)
from fewjoules.reports.ties import FEWEST_SEEDS
from fewjoules.runs.results import RunResults

_NBSP = "\u00a0"


@dataclass(frozen=True, slots=True)
class SeedRow:
    """The cells of one scheme; ``failed`` if a seed missed the target or diverged."""

    cells: tuple[str, ...]
    failed: bool


def seed_table(groups: Sequence[SchemeRuns]) -> FittingTable:
    """Return the schemes as a table for the terminal."""
    rows = seed_rows(groups)
    failed = frozenset(number for number, row in enumerate(rows) if row.failed)
    return FittingTable(seed_titles(groups), [row.cells for row in rows], failed)


def seed_titles(groups: Sequence[SchemeRuns]) -> tuple[str, ...]:
    """Return the titles of the columns, which hold means unless they say otherwise."""
    judged = verdicts(groups)
    runs = [run for group in groups for run in group.runs]
    without = any(run.summary.target is None for run in runs)
    last = "x least" if _compared(judged) else aim(runs).name
    noise = ("noise",) if _told(judged) else ()
    return (
        *("scheme", "H", "rounds", "J" if without else "J to target", "least to most"),
        *("radio J", "compute J", "seconds", "payload", last),
        *(("x before",) if lever_times(groups) else ()),
        *noise,
    )


def seed_rows(groups: Sequence[SchemeRuns]) -> list[SeedRow]:
    """Return one row per scheme; totals count up to the target, or to the end of a run that missed it."""
    judged, before = verdicts(groups), lever_times(groups)
    return [_row(group, verdict, judged, before) for group, verdict in zip(groups, judged, strict=True)]


def overall_headline(runs: Sequence[RunResults], diverged: Mapping[str, int] | None = None) -> str:
    """Summarise runs with one seed, and say so, or several; ``diverged`` counts by scheme the seeds without a run."""
    groups = grouped(runs, diverged)
    return " ".join([main_sentence(runs, groups), *(() if several_seeds(groups) else one_seed(runs))])


def main_sentence(runs: Sequence[RunResults], groups: Sequence[SchemeRuns]) -> str:
    """Return what a comparison comes to: the factor of all levers where there are any, else who is best."""
    return lever_headline(groups) or (seed_headline(groups) if several_seeds(groups) else headline(runs))


def seed_headline(groups: Sequence[SchemeRuns]) -> str:
    """Summarise the schemes in one sentence, and say where noise cannot be told from a difference."""
    target = shared_target([run for group in groups for run in group.runs])
    seeds = max(group.seeds for group in groups)
    if target is None:
        return f"{len(groups)} schemes with {seeds} seeds each, without a common target."
    ranked = sorted((group for group in groups if not group.failed), key=rank)
    if not ranked:
        return f"No scheme reached {target} with every one of {seeds} seeds."
    judged = dict(zip((group.name for group in groups), verdicts(groups), strict=True))
    best, last = ranked[0], ranked[-1]
    tied = [group for group in ranked if judged[group.name].tied]
    more = judged[last.name].times_least
    rest = "" if more is None or last in (best, *tied) else f"; {last.name} took {times_as_much(more)}"
    if len(tied) > 1:
        names = listed_names([group.name for group in tied])
        return f"{names} are tied within the noise of {seeds} seeds ({_on_average(tied)}){rest}."
    sentence = f"{best.name} reached {target} with every one of {seeds} seeds ({_on_average([best])})"
    if len(ranked) == 1:
        return f"{sentence}."
    if tied:
        return f"{sentence}, for less than any other scheme beyond the noise{rest}."
    unknown = f"fewer than {FEWEST_SEEDS} seeds cannot tell such a difference from noise"
    return f"{sentence}{rest}; {unknown}." if seeds < FEWEST_SEEDS else f"{sentence}{rest}."


def seed_remarks(groups: Sequence[SchemeRuns]) -> list[str]:
    """Return sentences about seeds that missed or diverged, missing joules, the guard's returns, and meters."""
    found = []
    for group in groups:
        target = shared_target(group.runs)
        if group.missed and target is not None:
            found.append(f"{group.name} missed {target} with {group.missed} of {group.seeds} seeds.")
        if group.diverged:
            found.append(f"{group.name} diverged with {group.diverged} of {group.seeds} seeds.")
    unknown = [group.name for group in groups if group.spread("joules") is None]
    if unknown:
        found.append(f"No fleet was given for {', '.join(unknown)}, so joules are unknown.")
    runs = [run for group in groups for run in group.runs]
    return [*found, *guard_sentences(runs), *metered_sentences(runs)]


def _row(group: SchemeRuns, verdict: Verdict, judged: Sequence[Verdict], before: Mapping[str, float | None]) -> SeedRow:
    joules = group.spread("joules")
    payload = group.total("total_payload_bytes")
    tested = group.at_end("tested")
    more = "> " if group.missed else ""
    if group.failed:
        last = _failures(group)
    elif _compared(judged):
        last = UNKNOWN if verdict.times_least is None else ratio(verdict.times_least)
    else:
        last = UNKNOWN if tested is None else aim(group.runs).said(tested.mean)
    word = "tied" if sum(bool(one.tied) for one in judged) > 1 else "least"
    noise = (word if verdict.tied else "",) if _told(judged) else ()
    cells = (
        group.name,
        str(group.runs[0].summary.local_steps),
        more + _mean(group.spread("rounds")),
        more + _mean(joules),
        UNKNOWN if joules is None else spread_text(joules),
        _mean(group.total("total_radio_joules")),
        _mean(group.total("total_compute_joules")),
        more + _mean(group.spread("seconds")),
        UNKNOWN if payload is None else byte_count(payload.mean),
        last,
        *((before_text(before, group.scheme),) if before else ()),
        *noise,
    )
    return SeedRow(cells, group.failed)


def _failures(group: SchemeRuns) -> str:
    counts = {"missed": group.missed, "diverged": group.diverged}
    return ", ".join(f"{count} of {group.seeds} {what}" for what, count in counts.items() if count)


def _compared(judged: Sequence[Verdict]) -> bool:
    return any(verdict.times_least is not None for verdict in judged)


def _told(judged: Sequence[Verdict]) -> bool:
    """Whether the seeds tell noise from a difference between at least two schemes."""
    return sum(verdict.tied is not None for verdict in judged) > 1


def _mean(spread: Spread | None) -> str:
    return UNKNOWN if spread is None else number(spread.mean)


def _on_average(groups: Sequence[SchemeRuns]) -> str:
    """Format mean and range of the joules of all runs of some schemes, or of the rounds where joules are unknown."""
    runs = tuple(run for group in groups for run in group.runs)
    together = SchemeRuns("", runs)
    joules, rounds = together.spread("joules"), together.spread("rounds")
    spread, unit = (rounds, "rounds") if joules is None else (joules, "J")
    assert spread is not None  # every run tells its rounds
    text = spread_text(spread)
    mean = f"{brief(spread.mean)}{_NBSP}{unit}"
    return f"{mean} on average, {text}" if " to " in text else f"{mean} every time"
