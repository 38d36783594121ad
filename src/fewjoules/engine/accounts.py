"""Joules and seconds of a round: the messages and local steps of each device at the costs of the fleet."""

import numpy as np

from fewjoules.arrays import Flags, FloatArray, IntArray
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import RoundPlan, Uploads
from fewjoules.engine.algorithm.streams import stream
from fewjoules.errors import InvalidInputError
from fewjoules.ledger.schema import LEDGER, RowArray
from fewjoules.physics.fleet import Fleet
from fewjoules.physics.tail import tail_joules
from fewjoules.provenance import KINDS


class Accounts:
    """Charges rounds to the devices of a fleet; without a fleet, joules and seconds are NaN."""

    fleet: Fleet | None
    options: TrainingOptions
    parameters: int

    def __init__(self, fleet: Fleet | None, options: TrainingOptions, parameters: int) -> None:
        """Refuse options that need costs which the fleet does not have; the model has this many ``parameters``."""
        self.fleet, self.options, self.parameters = fleet, options, parameters
        if fleet is not None and len(fleet) != options.clients:
            raise InvalidInputError(
                f"the fleet must have one device for each of {options.clients} clients, got {len(fleet)}"
            )
        if options.channel == "drawn":
            self._require_channels()
        if self.charges_downlink and (fleet is None or fleet.downlink_joules_per_bit is None):
            raise InvalidInputError("downlink = 'charged' needs a fleet with downlink_joules_per_bit of every device")
        if options.energy_budget_joules is not None and fleet is None:
            raise InvalidInputError("energy_budget_joules needs a fleet")
        if options.time_budget_seconds is not None:
            missing = self.missing_times()
            if missing:
                raise InvalidInputError(f"time_budget_seconds needs a fleet with {missing[0]} of every device")

    @property
    def charges_downlink(self) -> bool:
        """Whether devices are charged for what they receive: by default, where the fleet states what a bit costs."""
        if self.options.downlink is None:
            return self.fleet is not None and self.fleet.downlink_joules_per_bit is not None
        return self.options.downlink == "charged"

    def rows(
        self,
        plan: RoundPlan,
        delivered: Flags,
        uploads: Uploads,
        downlink_bytes: IntArray,
        received_entries: IntArray | None = None,
    ) -> RowArray:
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
            self._charge_coding(self.fleet, rows, told, received_entries)
            self._charge_tails(self.fleet, rows, told)
        return rows

    def _charge(self, fleet: Fleet, rows: RowArray, told: Flags) -> None:
        device, bits, steps = rows["device"], 8.0 * rows["payload_bytes"], rows["local_steps"]
        slowdown = self._slowdown(int(rows["round"][0]), device)
        rows["planned_uplink_joules"] = fleet.joules_per_bit[device] * bits + told * fleet.message_joules[device]
        rows["uplink_joules"] = slowdown * rows["planned_uplink_joules"]
        rows["compute_joules"] = fleet.joules_per_step[device] * steps
        if fleet.joules_per_sample is not None:
            rows["compute_joules"] += fleet.joules_per_sample[device] * rows["samples"]
        for kind in KINDS:
            rows[f"{kind}_mark"] = fleet.provenance[kind][device]
        if fleet.seconds_per_bit is not None:
            rows["uplink_seconds"] = slowdown * (
                fleet.seconds_per_bit[device] * bits + told * fleet.message_seconds[device]
            )
        if fleet.seconds_per_step is not None:
            rows["compute_seconds"] = fleet.seconds_per_step[device] * steps
            if fleet.seconds_per_sample is not None:
                rows["compute_seconds"] += fleet.seconds_per_sample[device] * rows["samples"]
        self._charge_downlink(fleet, rows)

    def _charge_downlink(self, fleet: Fleet, rows: RowArray) -> None:
        device, bits, received = rows["device"], 8.0 * rows["downlink_bytes"], rows["downlink_bytes"] > 0
        joules, seconds = fleet.downlink_joules_per_bit, fleet.downlink_seconds_per_bit
        rows["downlink_joules"] = rows["downlink_seconds"] = 0.0
        if not self.charges_downlink:
            return
        if joules is not None:
            rows["downlink_joules"] = joules[device] * bits + received * fleet.downlink_message_joules[device]
        rows["downlink_seconds"] = np.nan
        if seconds is not None:
            rows["downlink_seconds"] = seconds[device] * bits + received * fleet.downlink_message_seconds[device]

    def _charge_coding(self, fleet: Fleet, rows: RowArray, told: Flags, received_entries: IntArray | None) -> None:
        """Charge a pass over the parameters, and every entry that is sent or received."""
        device, entries = rows["device"], rows["entries"] + (0 if received_entries is None else received_entries)
        for unit in ("joules", "seconds"):
            rows[f"codec_{unit}"] = 0.0
            per_parameter, per_entry = (getattr(fleet, f"codec_{unit}_per_{what}") for what in ("parameter", "entry"))
            if per_parameter is not None:
                rows[f"codec_{unit}"] += told * per_parameter[device] * self.parameters
            if per_entry is not None:
                rows[f"codec_{unit}"] += told * per_entry[device] * entries

    def _charge_tails(self, fleet: Fleet, rows: RowArray, told: Flags) -> None:
        gap = rows["compute_seconds"] + rows["codec_seconds"]
        rows["tail_joules"] = told * tail_joules(fleet, rows["device"], gap, self.charges_downlink)

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

    def missing_times(self) -> list[str]:
        """Return the costs without which the seconds of a round are not known."""
        needed = ["seconds_per_bit", "seconds_per_step"]
        if self.charges_downlink:
            needed.append("downlink_seconds_per_bit")
        return [name for name in needed if self.fleet is None or getattr(self.fleet, name) is None]

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
    parts = ("uplink", "downlink", "compute", "codec")
    return float(np.max(sum(rows[f"{part}_seconds"] for part in parts)))
