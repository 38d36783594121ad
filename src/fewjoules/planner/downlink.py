"""The server as one more sender: its bits cost every device, and its sparsity delays training like a device's.

With the downlink charged, a broadcast of sparsity delta_s costs sum_m (downlink joules per bit of m) for each of its
bits. What the server keeps back arrives later, as with a device's error feedback, so the mean power becomes

    s = mean_m(delta_m^q) + w (delta_s^q - 1),

with a weight w that pilot runs give; delta_s = 1 leaves the law as it was fitted. On the frontier the server minimises
c_s h(x) + mu w exp(q x): the problem of a device with cost c_s / w, counted w times. So its tangents add to those of
the devices, the sum stays convex, and the bounds of pareto.py hold as they are.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError, require_integer, require_number, shown
from fewjoules.physics.message_size import MessageSize, require_message_size
from fewjoules.planner.catch_up import CatchUpFrontier, received_sparsity
from fewjoules.planner.frontier import Frontier, Points, Senders

USUAL_WEIGHT = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Downlink:
    """The server's choice: how sparse its messages to the devices are.

    Args:
        sparsity: Limits (min, max); equal limits leave no choice.
        weight: How much the server's sparsity slows training down, compared with that of all devices.
        value_bits: Bits of a value in formula (25) of [LI21].
        message: The law of its messages, in place of formula (25).
        participation: Fraction of the devices in each round. Devices that were away receive all that changed
            meanwhile (catch_up.py).
    """

    sparsity: tuple[float, float] = (1.0, 1.0)
    weight: float = USUAL_WEIGHT
    value_bits: int = 32
    message: MessageSize | None = None
    participation: float = 1.0

    def __post_init__(self) -> None:
        """Refuse values that no server can have."""
        require_number("downlink weight", self.weight, low=0.0)
        require_integer("downlink value_bits", self.value_bits, low=2, high=64)
        require_message_size("downlink message", self.message)
        require_number("downlink participation", self.participation, low=0.0, high=1.0, above=True)
        try:
            low, high = self.sparsity
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"downlink sparsity must be a pair (min, max), got {shown(self.sparsity)}"
            ) from error
        require_number("downlink sparsity min", low, low=1.0)
        require_number("downlink sparsity max", high, low=low)

    @property
    def message_size(self) -> MessageSize:
        """The law of its messages."""
        return self.message or MessageSize.formula_25(self.value_bits)

    @property
    def chosen(self) -> bool:
        """Whether there is a choice."""
        return self.sparsity[0] < self.sparsity[1]

    def at(self, sparsity: float) -> "Downlink":
        """Return the downlink without a choice."""
        return replace(self, sparsity=(sparsity, sparsity))

    def received_sparsity(self, sparsity: float) -> float:
        """Return the mean sparsity of what a device that takes part receives."""
        return float(received_sparsity(sparsity, self.participation))

    def power(self, sparsity: float, exponent: float) -> float:
        """Return what the server adds to the mean power."""
        return float(self.weight * (sparsity**exponent - 1.0))


class DownlinkFrontier:
    """The frontier of the devices with the server's added: the same interface, and ``downlink_sparsity``."""

    def __init__(
        self,
        clients: Senders,
        downlink: Downlink,
        *,
        joules_per_bit: float,
        joules_per_entry: float,
        parameters: int,
        exponent: float,
    ) -> None:
        """Costs of a bit and of decoding an entry are those of all devices together."""
        self._clients, self._downlink = clients, downlink
        low, high = downlink.sparsity
        law = downlink.message_size
        cost = joules_per_bit * law.scale
        entry_bits = law.entry_bits + (joules_per_entry / cost if cost > 0.0 else 0.0)
        shape: dict[str, Any] = {
            "parameters": parameters,
            "entry_bits": entry_bits,
            "exponent": exponent,
            "lower": low,
            "upper": high,
        }
        self._server: Senders
        if downlink.participation == 1.0:
            self._server = Frontier(np.array([cost / downlink.weight]), **shape)
        else:
            self._server = CatchUpFrontier(cost / downlink.weight, participation=downlink.participation, **shape)

    @property
    def devices(self) -> int:
        """Number of devices, without the server."""
        return self._clients.devices

    @property
    def log_multiplier_range(self) -> tuple[float, float]:
        """Return ln(mu) below which all senders are at their upper bound, and above which at the lower."""
        ranges = [self._clients.log_multiplier_range, self._server.log_multiplier_range]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def points(self, log_multipliers: ArrayLike) -> Points:
        """Return the points where tangents of these slopes touch the frontier, in the order given."""
        ours, servers = self._clients.points(log_multipliers), self._server.points(log_multipliers)
        weight = self._downlink.weight
        return Points(
            ours.log_multiplier,
            ours.mean_power + weight * (servers.mean_power - 1.0),
            ours.radio_joules + weight * servers.radio_joules,
        )

    def sparsity(self, log_multiplier: float) -> FloatArray:
        """Return the sparsity of each device where the tangent of this slope touches the frontier."""
        return self._clients.sparsity(log_multiplier)

    def downlink_sparsity(self, log_multiplier: float) -> float:
        """Return the server's sparsity there."""
        return float(self._server.sparsity(log_multiplier)[0])
