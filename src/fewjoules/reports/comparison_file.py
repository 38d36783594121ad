"""comparison.json: what each scheme comes to over its seeds, and every run. docs/ledger.md describes it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fewjoules.reports.lever_words import saved_joules
from fewjoules.reports.seeds import SchemeRuns, Verdict, grouped, lever_times, verdicts
from fewjoules.runs.files import COMPARISON_VERSION, RUN
from fewjoules.runs.results import RunResults
from fewjoules.runs.sealed import read_sealed
from fewjoules.scenario.schema.recipe import RecipeSearch
from fewjoules.tuning.books import trainings_to_pay

NOT_TOLD = RecipeSearch()


def comparison_json(
    scenario: str,
    runs: Sequence[RunResults],
    diverged: Mapping[str, int],
    *,
    seeds: Sequence[int],
    rates: Mapping[str, float],
    search: RecipeSearch = NOT_TOLD,
) -> str:
    """Return the content of comparison.json, schemes and runs in the order of the table.

    ``diverged`` counts by scheme the seeds lost, and ``search`` is what finding the recipe took.
    """
    groups = grouped(runs, diverged)
    times = lever_times(groups)
    outcomes = [read_sealed(run.folder / RUN) for group in groups for run in group.runs]
    document = {
        "version": COMPARISON_VERSION,
        "scenario": scenario,
        "seeds": list(seeds),
        "rates": dict(rates),
        "diverged": dict(diverged),
        "search": _search(groups, search),
        "schemes": [one | {"times_before": times.get(one["scheme"])} for one in scheme_summaries(runs, diverged)],
        "runs": [{key: value for key, value in one.items() if key != "checksums"} for one in outcomes],
    }
    return json.dumps(document, indent=1)


def scheme_summaries(runs: Sequence[RunResults], diverged: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return what each scheme comes to over its seeds, in the order of the table."""
    groups = grouped(runs, diverged)
    return [_summary(group, verdict) for group, verdict in zip(groups, verdicts(groups), strict=True)]


def _search(groups: Sequence[SchemeRuns], search: RecipeSearch) -> dict[str, Any] | None:
    """Return what finding the recipe took, and after how many trainings that has paid; None if unknown."""
    if search.pilots is None and search.pilot_joules is None:
        return None
    joules, saved = search.pilot_joules, saved_joules(groups)
    return {
        "pilots": search.pilots,
        "client_steps": search.pilot_client_steps,
        "joules": joules,
        "trainings_to_pay": None if joules is None or saved is None else trainings_to_pay(joules, saved),
    }


def _summary(group: SchemeRuns, verdict: Verdict) -> dict[str, Any]:
    spreads = {
        "rounds": group.spread("rounds"),
        "joules": group.spread("joules"),
        "radio_joules": group.total("total_radio_joules"),
        "compute_joules": group.total("total_compute_joules"),
        "seconds": group.spread("seconds"),
        "payload_bytes": group.total("total_payload_bytes"),
        "test_accuracy": group.at_end("test_accuracy"),
        "test_loss": group.at_end("test_loss"),
    }
    return {
        "scheme": group.scheme,
        "local_steps": group.runs[0].summary.local_steps,
        "seeds": group.seeds,
        "reached": sum(run.summary.reached for run in group.runs),
        "missed": group.missed,
        "diverged": group.diverged,
        **{name: None if spread is None else asdict(spread) for name, spread in spreads.items()},
        **asdict(verdict),
    }
