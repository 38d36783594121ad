"""Sums of joules, seconds, bytes and samples over the rounds of a run."""

import math
from dataclasses import dataclass

from fewjoules.engine.accounts import round_seconds
from fewjoules.ledger.schema import RowArray


@dataclass(slots=True)
class Totals:
    """Sums over all rounds so far; joules and seconds are NaN where costs are unknown."""

    joules: float = 0.0
    radio_joules: float = 0.0
    compute_joules: float = 0.0
    planned_uplink_joules: float = 0.0
    uplink_joules: float = 0.0
    seconds: float = 0.0
    payload_bytes: int = 0
    samples: int = 0

    def add(self, rows: RowArray, waited_seconds: float = 0.0) -> tuple[float, float]:
        """Add the ledger rows of a round that began after a wait; return its joules and seconds."""
        uplink = math.fsum(rows["uplink_joules"])
        radio = uplink + math.fsum(rows["downlink_joules"]) + math.fsum(rows["tail_joules"])
        compute = math.fsum(rows["compute_joules"]) + math.fsum(rows["codec_joules"])
        seconds = waited_seconds + round_seconds(rows)
        self.radio_joules += radio
        self.compute_joules += compute
        self.joules += radio + compute
        self.uplink_joules += uplink
        self.planned_uplink_joules += math.fsum(rows["planned_uplink_joules"])
        self.seconds += seconds
        self.payload_bytes += int(rows["payload_bytes"].sum())
        self.samples += int(rows["samples"].sum())
        return radio + compute, seconds
