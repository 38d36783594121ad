"""The costs that devices state as the columns of a fleet, and what a cost that a device does not state is taken for."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.physics.fleet import COSTS

UNLESS_STATED = {  # nothing, and no limit of the battery
    "message_joules": 0.0,
    "message_seconds": 0.0,
    "downlink_message_joules": 0.0,
    "downlink_message_seconds": 0.0,
    "tail_watts": 0.0,
    "tail_seconds": 0.0,
    "promotion_joules": 0.0,
    "battery_joules": math.inf,
}
FREE_UNLESS_STATED = (  # costs that are nothing for a device that does not state them, in a fleet where others do
    "joules_per_sample",
    "seconds_per_sample",
    "downlink_joules_per_bit",
    "codec_joules_per_parameter",
    "codec_joules_per_entry",
    "codec_seconds_per_parameter",
    "codec_seconds_per_entry",
)


def cost_columns(devices: Sequence[Mapping[str, float | None]]) -> dict[str, FloatArray | None]:
    """Return every cost of a fleet, shape (devices,), from what each device states; None where it is unknown."""
    return {name: _column(name, [costs.get(name) for costs in devices]) for name in COSTS}


def _column(name: str, stated: Sequence[float | None]) -> FloatArray | None:
    missing = UNLESS_STATED.get(name, 0.0 if name in FREE_UNLESS_STATED and any(stated) else None)
    filled = [missing if cost is None else cost for cost in stated]
    return None if None in filled else np.array(filled, dtype=np.float64)
