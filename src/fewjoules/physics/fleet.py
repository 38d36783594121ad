"""A fleet as a structure of arrays: costs of a bit, a message and a local step on each device."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError, require_array
from fewjoules.physics.fading import Fading

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
    "downlink_joules_per_bit",
    "downlink_seconds_per_bit",
)


class Fleet:
    """Cost vectors of all devices, each an array of shape (devices,); scalars broadcast.

    Times may be unknown (None). ``battery_joules`` is a budget for the whole training, infinite for devices without a
    limit. ``joules_per_sample`` is charged in addition to each local step for every sample of its batch; downlink costs
    are charged if the run asks for it. Plans include neither. ``fading`` holds the law of each device's channel, for
    runs that draw it. Names are used in messages; without them devices are numbered from 0.
    """

    __slots__ = (
        "battery_joules",
        "downlink_joules_per_bit",
        "downlink_seconds_per_bit",
        "fading",
        "joules_per_bit",
        "joules_per_sample",
        "joules_per_step",
        "message_joules",
        "message_seconds",
        "names",
        "seconds_per_bit",
        "seconds_per_step",
    )

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
        downlink_joules_per_bit: ArrayLike | None = None,
        downlink_seconds_per_bit: ArrayLike | None = None,
        fading: Sequence[Fading | None] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Check every array and broadcast all to one shape."""
        given = {
            "joules_per_bit": joules_per_bit,
            "joules_per_step": joules_per_step,
            "message_joules": message_joules,
            "seconds_per_bit": seconds_per_bit,
            "seconds_per_step": seconds_per_step,
            "message_seconds": message_seconds,
            "battery_joules": battery_joules,
            "joules_per_sample": joules_per_sample,
            "downlink_joules_per_bit": downlink_joules_per_bit,
            "downlink_seconds_per_bit": downlink_seconds_per_bit,
        }
        checked = {
            name: require_array(name, values, infinite=name == "battery_joules")
            for name, values in given.items()
            if values is not None
        }
        lists: dict[str, Sequence[object] | None] = {"names": names, "fading": fading}
        size = _common_size(checked, lists)
        for name in given:
            array = checked.get(name)
            setattr(self, name, None if array is None else _frozen(np.broadcast_to(array, (size,))))
        self.names: tuple[str, ...] | None = None if names is None else tuple(names)
        self.fading: tuple[Fading | None, ...] | None = None if fading is None else tuple(fading)

    joules_per_bit: FloatArray
    joules_per_step: FloatArray
    message_joules: FloatArray
    seconds_per_bit: FloatArray | None
    seconds_per_step: FloatArray | None
    message_seconds: FloatArray
    battery_joules: FloatArray | None
    joules_per_sample: FloatArray | None
    downlink_joules_per_bit: FloatArray | None
    downlink_seconds_per_bit: FloatArray | None

    def __len__(self) -> int:
        """Number of devices."""
        return int(self.joules_per_bit.size)

    def with_message_bits(self, bits: float) -> "Fleet":
        """Return the fleet with the cost of ``bits`` more bits in every message."""
        columns = {name: getattr(self, name) for name in self.__slots__}
        for message, per_bit in (("message_joules", "joules_per_bit"), ("message_seconds", "seconds_per_bit")):
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
    sizes |= {name: len(entries) for name, entries in lists.items() if entries is not None}
    size = max(sizes.values(), default=1) if 0 not in sizes.values() else 0
    for name, length in sizes.items():
        if not 1 <= length <= MAX_DEVICES:
            raise InvalidInputError(f"{name} must have 1 to {MAX_DEVICES} entries, got {length}")
        if length != size:
            raise InvalidInputError(f"{name} must have {size} entries like the longest array, got {length}")
    return size


def _frozen(array: FloatArray) -> FloatArray:
    copy = np.array(array)
    copy.flags.writeable = False
    return copy
