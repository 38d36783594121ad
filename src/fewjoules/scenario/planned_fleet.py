"""The fleet as plans see it: with what the model and the batch add to its costs."""

import numpy as np

from fewjoules.physics.fleet import Fleet

STATISTIC_BITS = 32  # bits of a running mean or variance, all of which every message carries


def needs_batch(fleet: Fleet) -> bool:
    """Whether the fleet has costs of a sample, so that a local step costs more with a larger batch."""
    points = fleet.operating_points
    by_sample = fleet.joules_per_sample is not None or fleet.seconds_per_sample is not None
    return by_sample or (points is not None and bool(np.any(points.joules_per_sample + points.seconds_per_sample)))


def planned_fleet(fleet: Fleet, statistics: int, batch_size: int | None) -> Fleet:
    """Return the fleet with the model's statistics in every message and the samples of a batch in every step.

    ``batch_size`` may be None only if no cost depends on it.
    """
    sending = fleet.with_message_bits(STATISTIC_BITS * statistics) if statistics else fleet
    if not needs_batch(fleet):
        return sending
    assert batch_size is not None
    return sending.with_batch(batch_size)
