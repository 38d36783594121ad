"""Joules and seconds of a round: the messages and local steps of each device at the costs of the fleet."""

import numpy as np

from fewjoules.arrays import Flags, FloatArray, IntArray
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import RoundPlan, Uploads
from fewjoules.engine.algorithm.streams import stream
from fewjoules.errors import InvalidInputError
from fewjoules.ledger.schema import LEDGER, RowArray
from fewjoules.physics.fleet import Fleet


class Accounts:
    """Charges rounds to the devices of a fleet; without a fleet, joules and seconds are NaN."""

    def __init__(self, fleet: Fleet | None, options: TrainingOptions) -> None:
        """Refuse options that need costs which the fleet does not have."""
        self.fleet, self.options = fleet, options
        if fleet is not None and len(fleet) != options.clients:
            raise InvalidInputError(
                f"the fleet must have one device for each of {options.clients} clients, got {len(fleet)}"
            )
        if options.channel == "drawn":
            self._require_channels()
        if options.downlink == "charged" and (fleet is None or fleet.downlink_joules_per_bit is None):
            raise InvalidInputError("downlink = 'charged' needs a fleet with downlink_joules_per_bit of every device")
        if options.energy_budget_joules is not None and fleet is None:
            raise InvalidInputError("energy_budget_joules needs a fleet")
        if options.time_budget_seconds is not None:
            self._require_times()

    @property
    def charges_downlink(self) -> bool:
        """Whether devices pay for what they receive: by default, where the fleet states what a bit costs."""
        if self.options.downlink is None:
            return self.fleet is not None and self.fleet.downlink_joules_per_bit is not None
        return self.options.downlink == "charged"

    def rows(self, plan: RoundPlan, delivered: Flags, uploads: Uploads, downlink_bytes: IntArray) -> RowArray:
        """Ledger rows of the round, one for each participant; a device that did not reply is charged nothing."""
        told = np.ones(plan.participants.size, dtype=bool) if uploads.told is None else uploads.told
        rows = LEDGER.new_rows(plan.participants.size)
        rows["round"], rows["device"] = plan.number, plan.participants
        rows["delivered"], rows["local_steps"] = delivered, np.where(told, self.options.local_steps, 0)
        rows["samples"], rows["entries"] = np.where(told, plan.batch_sizes.sum(axis=0), 0), uploads.entries
        rows["payload_bytes"], rows["payload_written"] = uploads.payload_bytes, uploads.written
        rows["downlink_bytes"] = downlink_bytes
        if self.fleet is not None:
            self._charge(self.fleet, rows, told)
        return rows

    def _charge(self, fleet: Fleet, rows: RowArray, told: Flags) -> None:
        device, bits, steps = rows["device"], 8.0 * rows["payload_bytes"], rows["local_steps"]
        slowdown = self._slowdown(int(rows["round"][0]), device)
        rows["planned_uplink_joules"] = fleet.joules_per_bit[device] * bits + told * fleet.message_joules[device]
        rows["uplink_joules"] = slowdown * rows["planned_uplink_joules"]
        rows["compute_joules"] = fleet.joules_per_step[device] * steps
        if fleet.joules_per_sample is not None:
            rows["compute_joules"] += fleet.joules_per_sample[device] * rows["samples"]
        if fleet.seconds_per_bit is not None:
            rows["uplink_seconds"] = slowdown * (
                fleet.seconds_per_bit[device] * bits + told * fleet.message_seconds[device]
            )
        if fleet.seconds_per_step is not None:
            rows["compute_seconds"] = fleet.seconds_per_step[device] * steps
        self._charge_downlink(fleet, rows)

    def _charge_downlink(self, fleet: Fleet, rows: RowArray) -> None:
        bits = 8.0 * rows["downlink_bytes"]
        charged = self.charges_downlink
        joules, seconds = fleet.downlink_joules_per_bit, fleet.downlink_seconds_per_bit
        rows["downlink_joules"] = joules[rows["device"]] * bits if charged and joules is not None else 0.0
        if not charged:
            rows["downlink_seconds"] = 0.0
        elif seconds is not None:
            rows["downlink_seconds"] = seconds[rows["device"]] * bits

    def _slowdown(self, number: int, devices: IntArray) -> FloatArray:
        if self.options.channel == "average" or self.fleet is None or self.fleet.fading is None:
            return np.ones(devices.size)
        blocks, seed = self.options.coherence_blocks, self.options.seed
        laws = [self.fleet.fading[device] for device in devices]
        draws = [
            1.0 if law is None else law.draw_slowdown(stream(seed, "channel", number, int(device)), blocks)
            for law, device in zip(laws, devices, strict=True)
        ]
        return np.array(draws)

    def _require_times(self) -> None:
        needed = ["seconds_per_bit", "seconds_per_step"]
        if self.charges_downlink:
            needed.append("downlink_seconds_per_bit")
        for name in needed:
            if self.fleet is None or getattr(self.fleet, name) is None:
                raise InvalidInputError(f"time_budget_seconds needs a fleet with {name} of every device")

    def _require_channels(self) -> None:
        laws = None if self.fleet is None else self.fleet.fading
        if laws is None:
            raise InvalidInputError("channel = 'drawn' needs a fleet with the fading of every device")
        for device, law in enumerate(laws):
            if law is None and self.fleet is not None:
                name = self.fleet.device_name(device)
                raise InvalidInputError(f"channel = 'drawn' needs [device.radio]; device {name} has a measured cost")
            problem = None if law is None else law.problem(self.options.coherence_blocks)
            if problem is not None and self.fleet is not None:
                name = self.fleet.device_name(device)
                raise InvalidInputError(
                    f"channel = 'drawn' needs finite expected energy per message; on device {name} it is not: {problem}"
                )


def round_seconds(rows: RowArray) -> float:
    """Return the seconds of the slowest device of a round; NaN if any time is unknown."""
    return float(np.max(rows["uplink_seconds"] + rows["downlink_seconds"] + rows["compute_seconds"]))
