"""A fleet as a structure of arrays: what bits, messages, local steps and coding cost each device."""

from collections.abc import Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.errors import InvalidInputError, require_array, shown
from fewjoules.physics.fading import Fading
from fewjoules.physics.points import OperatingPoints
from fewjoules.provenance import Codes, Marks, codes_of

MAX_DEVICES = 10_000_000
COSTS = (
    "joules_per_bit",
    "joules_per_step",
    "message_joules",
    "seconds_per_bit",
    "seconds_per_step",
    "message_seconds",
    "battery_joules",
    "joules_per_sample",
    "seconds_per_sample",
    "downlink_joules_per_bit",
    "downlink_seconds_per_bit",
    "downlink_message_joules",
    "downlink_message_seconds",
    "tail_watts",
    "tail_seconds",
    "promotion_joules",
    "codec_joules_per_parameter",
    "codec_joules_per_entry",
    "codec_seconds_per_parameter",
    "codec_seconds_per_entry",
)
_ALWAYS_KNOWN = (
    "joules_per_bit",
    "joules_per_step",
    "message_joules",
    "message_seconds",
    "downlink_message_joules",
    "downlink_message_seconds",
    "tail_watts",
    "tail_seconds",
    "promotion_joules",
)


class Fleet:
    """What bits, messages, steps and coding cost each device: arrays of shape (devices,), or numbers for all of them.

    Times that are None are unknown; other costs that are None are nothing. docs/costs.md says how they add up.

    Args:
        joules_per_bit: Sending one bit.
        joules_per_step: One local step, besides its samples.
        message_joules: Sending any message, besides its bits.
        seconds_per_bit: Sending one bit.
        seconds_per_step: One local step, besides its samples.
        message_seconds: Sending any message, besides its bits.
        battery_joules: Joules that a device may spend on the whole training; infinite without a limit.
        joules_per_sample: Each sample of a batch, added to the step.
        seconds_per_sample: Each sample of a batch, added to the step.
        downlink_joules_per_bit: Receiving one bit; None leaves the downlink out of plans.
        downlink_seconds_per_bit: Receiving one bit.
        downlink_message_joules: Receiving any message, besides its bits.
        downlink_message_seconds: Receiving any message, besides its bits.
        tail_watts: Power of the radio while it stays up after a message.
        tail_seconds: How long it stays up.
        promotion_joules: Waking the radio.
        codec_joules_per_parameter: Selection, for each parameter of the model.
        codec_joules_per_entry: Encoding or decoding one entry.
        codec_seconds_per_parameter: Selection, for each parameter of the model.
        codec_seconds_per_entry: Encoding or decoding one entry.
        operating_points: Settings of the processors to choose from; ``at_points`` takes one for each device.
        fading: The law of each device's channel, for runs that draw it.
        provenance: How well joules are known: a mark ("measured", "fitted", "profile" or "assumed"), or a mapping of
            kinds ("uplink", "downlink", "tail", "compute", "codec") to a mark or to one for each device.
        names: Names of the devices in messages; by default numbers from 0.

    Raises:
        InvalidInputError: A cost is negative or not finite, or arrays have different lengths.

    Examples:
        >>> fj.Fleet(joules_per_bit=[3e-7, 1e-6, 4e-8], joules_per_step=0.1)  # three devices
    """

    __slots__ = (*COSTS, "fading", "names", "operating_points", "provenance")

    def __init__(
        self,
        *,
        joules_per_bit: ArrayLike,
        joules_per_step: ArrayLike,
        message_joules: ArrayLike = 0.0,
        seconds_per_bit: ArrayLike | None = None,
        seconds_per_step: ArrayLike | None = None,
        message_seconds: ArrayLike = 0.0,
        battery_joules: ArrayLike | None = None,
        joules_per_sample: ArrayLike | None = None,
        seconds_per_sample: ArrayLike | None = None,
        downlink_joules_per_bit: ArrayLike | None = None,
        downlink_seconds_per_bit: ArrayLike | None = None,
        downlink_message_joules: ArrayLike = 0.0,
        downlink_message_seconds: ArrayLike = 0.0,
        tail_watts: ArrayLike = 0.0,
        tail_seconds: ArrayLike = 0.0,
        promotion_joules: ArrayLike = 0.0,
        codec_joules_per_parameter: ArrayLike | None = None,
        codec_joules_per_entry: ArrayLike | None = None,
        codec_seconds_per_parameter: ArrayLike | None = None,
        codec_seconds_per_entry: ArrayLike | None = None,
        operating_points: OperatingPoints | None = None,
        fading: Sequence[Fading | None] | None = None,
        provenance: Marks = "assumed",
        names: Sequence[str] | None = None,
    ) -> None:
        """Check every array and broadcast all to one shape."""
        given = {name: value for name, value in locals().items() if name in COSTS}
        for name in _ALWAYS_KNOWN:
            if given[name] is None:
                raise InvalidInputError(f"{name} must be finite numbers of at least 0, one or one a device, got None")
        checked = {
            name: require_array(name, values, infinite=name == "battery_joules")
            for name, values in given.items()
            if values is not None
        }
        if not isinstance(operating_points, OperatingPoints | None):
            raise InvalidInputError(
                f"operating_points must be a fewjoules.OperatingPoints, got {shown(operating_points)}"
            )
        points = None if operating_points is None else operating_points.joules_per_step[0]
        lists: dict[str, Sequence[object] | None] = {"names": names, "fading": fading, "operating_points": points}
        size = _common_size(checked, lists)
        for name in COSTS:
            array = checked.get(name)
            setattr(self, name, None if array is None else _frozen(array, size))
        self.names: tuple[str, ...] | None = None if names is None else tuple(names)
        self.fading: tuple[Fading | None, ...] | None = None if fading is None else tuple(fading)
        self.operating_points = operating_points
        self.provenance: dict[str, Codes] = codes_of(provenance, size)
        self._require_gap_times()

    joules_per_bit: FloatArray
    joules_per_step: FloatArray
    message_joules: FloatArray
    seconds_per_bit: FloatArray | None
    seconds_per_step: FloatArray | None
    message_seconds: FloatArray
    battery_joules: FloatArray | None
    joules_per_sample: FloatArray | None
    seconds_per_sample: FloatArray | None
    downlink_joules_per_bit: FloatArray | None
    downlink_seconds_per_bit: FloatArray | None
    downlink_message_joules: FloatArray
    downlink_message_seconds: FloatArray
    tail_watts: FloatArray
    tail_seconds: FloatArray
    promotion_joules: FloatArray
    codec_joules_per_parameter: FloatArray | None
    codec_joules_per_entry: FloatArray | None
    codec_seconds_per_parameter: FloatArray | None
    codec_seconds_per_entry: FloatArray | None

    def _require_gap_times(self) -> None:
        """Refuse a tail if nothing tells whether an upload follows the download within it."""
        if self.seconds_per_step is None and self.has_downlink and bool(np.any(self.tail_seconds > 0.0)):
            raise InvalidInputError(
                "tail_seconds with a downlink needs seconds_per_step of every device, which tells whether an upload "
                "follows its download within the tail; got none"
            )

    @property
    def has_downlink(self) -> bool:
        """Whether the devices state what receiving costs them."""
        return self.downlink_joules_per_bit is not None

    def __len__(self) -> int:
        """Number of devices."""
        return int(self.joules_per_bit.size)

    def changed(self, **columns: Any) -> "Fleet":
        """Return the fleet with other values of some arguments."""
        return Fleet(**{name: getattr(self, name) for name in self.__slots__} | columns)

    def at_points(self, chosen: IntArray) -> "Fleet":
        """Return the fleet with each device at its chosen operating point."""
        if self.operating_points is None:
            raise InvalidInputError("the fleet has no operating points to choose from")
        return self.changed(**self.operating_points.at(chosen))

    def with_batch(self, batch_size: int) -> "Fleet":
        """Return the fleet with the samples of a batch in the cost of each local step, as plans need it."""
        columns = {name: getattr(self, name) for name in self.__slots__}
        for unit in ("joules", "seconds"):
            per_step, per_sample = columns[f"{unit}_per_step"], columns[f"{unit}_per_sample"]
            if per_step is not None and per_sample is not None:
                columns[f"{unit}_per_step"] = per_step + batch_size * per_sample
            columns[f"{unit}_per_sample"] = None
        points = self.operating_points
        columns["operating_points"] = None if points is None else points.with_batch(batch_size)
        return Fleet(**columns)

    def taking_part(self, fraction: float) -> "Fleet":
        """Return the fleet with the mean joules of devices that take part in this fraction of all rounds.

        Times stay those of a round in which a device takes part, and batteries hold what they held.
        """
        spent = [name for name in COSTS if "joules" in name and name != "battery_joules"]
        columns = {name: getattr(self, name) for name in (*spent, "tail_watts")}
        scaled = {name: None if column is None else column * fraction for name, column in columns.items()}
        points = self.operating_points
        return self.changed(**scaled, operating_points=None if points is None else points.taking_part(fraction))

    def with_message_bits(self, bits: float) -> "Fleet":
        """Return the fleet with the cost of ``bits`` more bits in every message, both ways."""
        columns = {name: getattr(self, name) for name in self.__slots__}
        pairs = [("message_joules", "joules_per_bit"), ("message_seconds", "seconds_per_bit")]
        pairs += [(f"downlink_{message}", f"downlink_{per_bit}") for message, per_bit in pairs]
        for message, per_bit in pairs:
            if columns[per_bit] is None:
                continue
            with np.errstate(over="ignore"):
                columns[message] = columns[message] + columns[per_bit] * bits
            if not np.isfinite(columns[message]).all():
                most = columns[per_bit].max()
                raise InvalidInputError(f"{per_bit} times {bits:g} bits of a message must be finite, got {most:g}")
        return Fleet(**columns)

    def __repr__(self) -> str:
        """Show the size and which optional costs are known."""
        known = [
            name
            for name in ("seconds_per_bit", "seconds_per_step", "battery_joules")
            if getattr(self, name) is not None
        ]
        return f"Fleet({len(self)} devices{', with ' if known else ''}{', '.join(known)})"

    def device_name(self, device: int) -> str:
        """Name of a device in messages."""
        return repr(self.names[device]) if self.names is not None else str(device)


def _common_size(arrays: dict[str, FloatArray], lists: dict[str, Sequence[object] | None]) -> int:
    sizes = {name: array.size for name, array in arrays.items() if array.ndim == 1}
    for name, entries in lists.items():
        if not isinstance(entries, Sized | None):
            raise InvalidInputError(f"{name} must be a list with an entry for each device, got {shown(entries)}")
    sizes |= {name: len(entries) for name, entries in lists.items() if entries is not None}
    size = max(sizes.values(), default=1) if 0 not in sizes.values() else 0
    for name, length in sizes.items():
        if not 1 <= length <= MAX_DEVICES:
            raise InvalidInputError(f"{name} must have 1 to {MAX_DEVICES} entries, got {length}")
        if length != size:
            raise InvalidInputError(f"{name} must have {size} entries like the longest array, got {length}")
    return size


def _frozen(array: FloatArray, size: int) -> FloatArray:
    """Make an array of ``require_array``, which nobody else has, read-only of shape (size,).

    A scalar stays one number in memory.
    """
    array.flags.writeable = False
    return np.broadcast_to(array, (size,))
