"""comparison.json: what each scheme comes to over its seeds, and every run. docs/ledger.md describes it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fewjoules.reports.seeds import SchemeRuns, Verdict, grouped, verdicts
from fewjoules.runs.files import COMPARISON_VERSION, RUN
from fewjoules.runs.results import RunResults
from fewjoules.runs.sealed import read_sealed


def comparison_json(
    scenario: str,
    runs: Sequence[RunResults],
    diverged: Mapping[str, int],
    *,
    seeds: Sequence[int],
    rates: Mapping[str, float],
) -> str:
    """Return the content of comparison.json, schemes and runs ranked; ``diverged`` counts by scheme the seeds lost."""
    groups = grouped(runs, diverged)
    outcomes = [read_sealed(run.folder / RUN) for group in groups for run in group.runs]
    document = {
        "version": COMPARISON_VERSION,
        "scenario": scenario,
        "seeds": list(seeds),
        "rates": dict(rates),
        "diverged": dict(diverged),
        "schemes": [_summary(*pair) for pair in zip(groups, verdicts(groups), strict=True)],
        "runs": [{key: value for key, value in one.items() if key != "checksums"} for one in outcomes],
    }
    return json.dumps(document, indent=1)


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
        "scheme": group.name,
        "local_steps": group.runs[0].summary.local_steps,
        "seeds": group.seeds,
        "reached": sum(run.summary.reached for run in group.runs),
        "missed": group.missed,
        "diverged": group.diverged,
        **{name: None if spread is None else asdict(spread) for name, spread in spreads.items()},
        **asdict(verdict),
    }
