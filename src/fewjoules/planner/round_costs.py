"""What one round costs the devices: joules by kind, and seconds.

Messages have bits that depend on their sparsity and bits that do not. The second, ``fixed_bits`` of the law of their
size, count among the costs of a message whatever its length.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.physics.fleet import Fleet
from fewjoules.physics.message_size import MessageSize
from fewjoules.physics.tail import planned_tail_joules, total_least_joules, total_tail_joules
from fewjoules.planner.downlink import Downlink


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """Costs of a round for a fleet, a model of ``parameters``, a law of messages and a server, if it is charged.

    Methods that take a ``downlink_sparsity`` assume the server's least one if it is not given.
    """

    fleet: Fleet
    parameters: int
    message: MessageSize
    server: Downlink | None

    # ---- messages of the devices ----

    def message_joules(self, sparsity: ArrayLike) -> FloatArray:
        """Joules of each device to send its update, shape (devices,)."""
        return self.fleet.joules_per_bit * self._sparsity_bits(sparsity) + self._uplink("joules")

    def sending_joules(self, sparsity: ArrayLike) -> FloatArray:
        """Joules of each device for what it sends, as far as its sparsity decides: bits and entries."""
        bits = self.fleet.joules_per_bit * self._sparsity_bits(sparsity)
        return bits + self._entries("joules", self._sent(sparsity))

    def scaled_joules_per_bit(self) -> FloatArray:
        """Joules of each device for a bit of formula (25), of which the message has ``scale`` bits."""
        return self.fleet.joules_per_bit * self.message.scale

    def entry_bits(self) -> FloatArray | float:
        """Bits of an entry beside log2 delta, with the codec's joules for it as bits."""
        return self.message.entry_bits + self.codec_entry_bits()

    def codec_entry_bits(self) -> FloatArray | float:
        """Joules of the codec for one entry as bits of the uplink, for the frontier; 0 where bits are free.

        A device whose bits are free is planned without what its entries cost: bounds stay below the truth.
        """
        per_entry, per_bit = self.fleet.codec_joules_per_entry, self.scaled_joules_per_bit()
        if per_entry is None or not np.any(per_entry > 0.0):
            return 0.0
        return np.divide(per_entry, per_bit, out=np.zeros(len(self.fleet)), where=per_bit > 0.0)

    def _sparsity_bits(self, sparsity: ArrayLike) -> FloatArray:
        return self.message.sparsity_bits(self.parameters, sparsity)

    def _sent(self, sparsity: ArrayLike) -> FloatArray:
        return self.parameters / np.asarray(sparsity, dtype=np.float64)

    def _uplink(self, unit: str) -> FloatArray:
        """Joules or seconds of a device's message whatever its sparsity."""
        fixed: FloatArray = getattr(self.fleet, f"message_{unit}")
        per_bit: FloatArray | None = getattr(self.fleet, f"{unit}_per_bit")
        return fixed if per_bit is None else fixed + per_bit * self.message.fixed_bits

    # ---- the server's broadcast ----

    def downlink_joules(self, downlink_sparsity: float | None = None) -> FloatArray:
        """Joules of each device to receive the broadcast, shape (devices,)."""
        costs = self.fleet.downlink_joules_per_bit
        if self.server is None or costs is None:
            return np.zeros(len(self.fleet))
        return costs * self._broadcast_bits(downlink_sparsity) + self._downlink("joules")

    def broadcast_joules(self, downlink_sparsity: float | None = None) -> float:
        """Joules of all devices for the broadcast, as far as its sparsity decides: bits and entries."""
        costs = self.fleet.downlink_joules_per_bit
        if self.server is None or costs is None:
            return 0.0
        entries = self._entries("joules", self._received(downlink_sparsity))
        return float(np.sum(costs)) * self._broadcast_bits(downlink_sparsity) + float(np.sum(entries))

    def joules_per_received_entry(self) -> float:
        """Joules of all devices to decode one entry of the broadcast."""
        return float(np.sum(self._entries("joules", 1.0)))

    def _broadcast_bits(self, downlink_sparsity: float | None) -> float:
        """Bits of the server's message to a device that depend on its sparsity, on average."""
        assert self.server is not None
        chosen = self._received_sparsity(self.server, downlink_sparsity)
        return float(self.server.message_size.sparsity_bits(self.parameters, chosen))

    def _received(self, downlink_sparsity: float | None) -> float:
        """Entries of that message."""
        if self.server is None:
            return 0.0
        return self.parameters / self._received_sparsity(self.server, downlink_sparsity)

    @staticmethod
    def _received_sparsity(server: Downlink, downlink_sparsity: float | None) -> float:
        return server.received_sparsity(server.sparsity[0] if downlink_sparsity is None else downlink_sparsity)

    def _downlink(self, unit: str) -> FloatArray:
        """Joules or seconds of the broadcast whatever its sparsity."""
        assert self.server is not None
        fixed: FloatArray = getattr(self.fleet, f"downlink_message_{unit}")
        per_bit: FloatArray | None = getattr(self.fleet, f"downlink_{unit}_per_bit")
        return fixed if per_bit is None else fixed + per_bit * self.server.message_size.fixed_bits

    # ---- a whole round ----

    def joules_by_kind(
        self, local_steps: int, sparsity: ArrayLike, downlink_sparsity: float | None = None
    ) -> dict[str, FloatArray]:
        """Joules of each device in one round by kind, each of shape (devices,)."""
        entries = self._sent(sparsity) + self._received(downlink_sparsity)
        return {
            "uplink": self.message_joules(sparsity),
            "downlink": self.downlink_joules(downlink_sparsity),
            "tail": self._tails(local_steps),
            "compute": local_steps * self.fleet.joules_per_step,
            "codec": self._coding("joules") + self._entries("joules", entries),
        }

    def joules(self, local_steps: int, sparsity: ArrayLike, downlink_sparsity: float | None = None) -> FloatArray:
        """Joules of each device in one round, shape (devices,)."""
        return self.sending_joules(sparsity) + self.joules_beside_sending(local_steps, downlink_sparsity)

    def joules_beside_sending(self, local_steps: int, downlink_sparsity: float | None = None) -> FloatArray:
        """Joules of each device in one round beside its ``sending_joules``, shape (devices,)."""
        radio = self._uplink("joules") + self.downlink_joules(downlink_sparsity) + self._tails(local_steps)
        received = self._entries("joules", self._received(downlink_sparsity))
        return radio + local_steps * self.fleet.joules_per_step + self._coding("joules") + received

    def fixed_joules(self, local_steps: IntArray) -> FloatArray:
        """Joules of a round of all devices that no sparsity changes, for each H; points are the cheapest."""
        fleet, steps = self.fleet, local_steps.astype(np.float64)
        if fleet.operating_points is not None:
            least = total_least_joules(fleet, fleet.operating_points, steps, self.server is not None)
            return self.fixed_message_joules() + least
        tails = total_tail_joules(fleet, fleet.seconds_per_step, steps, self.server is not None)
        return self.fixed_message_joules() + tails + steps * float(np.sum(fleet.joules_per_step))

    def fixed_message_joules(self) -> float:
        """Joules of a round of all devices that no choice changes: messages whatever their length, and coding."""
        joules = float(np.sum(self._uplink("joules"))) + float(np.sum(self._coding("joules")))
        return joules if self.server is None else joules + float(np.sum(self._downlink("joules")))

    def most_joules(self, least_sparsity: float, local_steps: IntArray) -> float:
        """An upper bound on the joules of any round; the largest H is the last one. To check that they are finite."""
        entries = self._entries("joules", 2.0 * self.parameters)
        return (
            float(self._sparsity_bits(least_sparsity)) * float(np.sum(self.fleet.joules_per_bit))
            + float(np.sum(self.downlink_joules(1.0) + entries))
            + float(self.fixed_joules(local_steps[-1:])[0])
        )

    def fixed_seconds(self, local_steps: int, downlink_sparsity: float | None = None) -> FloatArray | None:
        """Seconds of each device in one round without what its sparsity decides, or None if a time is unknown."""
        fleet = self.fleet
        if fleet.seconds_per_step is None or (self.server is not None and fleet.downlink_seconds_per_bit is None):
            return None
        seconds = self._uplink("seconds") + self._coding("seconds") + local_steps * fleet.seconds_per_step
        seconds = seconds + self._entries("seconds", self._received(downlink_sparsity))
        if self.server is not None and fleet.downlink_seconds_per_bit is not None:
            bits = self._broadcast_bits(downlink_sparsity)
            seconds = seconds + fleet.downlink_seconds_per_bit * bits + self._downlink("seconds")
        return seconds

    def seconds(
        self, local_steps: int, sparsity: ArrayLike, downlink_sparsity: float | None = None
    ) -> FloatArray | None:
        """Seconds of each device in one round, or None if a time is unknown."""
        rest = self.fixed_seconds(local_steps, downlink_sparsity)
        if rest is None or self.fleet.seconds_per_bit is None:
            return None
        sent = self.fleet.seconds_per_bit * self._sparsity_bits(sparsity)
        return sent + self._entries("seconds", self._sent(sparsity)) + rest

    def _tails(self, local_steps: int) -> FloatArray:
        return planned_tail_joules(self.fleet, self.fleet.seconds_per_step, local_steps, self.server is not None)

    def _coding(self, unit: str) -> FloatArray:
        """Joules or seconds of a pass of the codec over the model."""
        costs = getattr(self.fleet, f"codec_{unit}_per_parameter")
        return np.zeros(len(self.fleet)) if costs is None else costs * float(self.parameters)

    def _entries(self, unit: str, count: ArrayLike) -> FloatArray:
        """Joules or seconds of the codec for these numbers of entries."""
        costs = getattr(self.fleet, f"codec_{unit}_per_entry")
        return np.zeros(len(self.fleet)) if costs is None else costs * count
