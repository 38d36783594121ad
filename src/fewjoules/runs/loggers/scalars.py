"""The numbers of a round, by the names under which loggers write them."""

import math

from fewjoules.runs.callbacks import OngoingRun


def scalars_of(run: OngoingRun, *, evaluated: bool) -> dict[str, float]:
    """Return the finite numbers of the last round; those of the test set only if it was evaluated."""
    metrics = {name.replace("_", "/", 1): value for name, value in run.metrics.items()}
    totals = run.totals
    found = {name: value for name, value in metrics.items() if evaluated or name.startswith("train/")}
    found |= {
        "energy/total_joules": totals.joules,
        "energy/radio_joules": totals.radio_joules,
        "energy/compute_joules": totals.compute_joules,
        "time/total_seconds": totals.seconds,
        "uplink/total_bits": 8.0 * totals.payload_bytes,
    }
    return {name: value for name, value in found.items() if math.isfinite(value)}
