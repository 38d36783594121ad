"""The control problem (27) of [LI21]: the choices and their costs."""

import itertools
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.convergence.rounds import RoundsModel
from fewjoules.errors import FewJoulesWarning, InvalidInputError, require_array, require_integer, require_number, shown
from fewjoules.physics.fleet import Fleet
from fewjoules.physics.radio import estimated_message_bits
from fewjoules.physics.tail import planned_tail_joules, total_least_joules, total_tail_joules
from fewjoules.planner.downlink import Downlink
from fewjoules.provenance import COMPUTE_KINDS, RADIO_KINDS, joules_by_mark

MAX_PARAMETERS = 10**12
MAX_SPARSITY = float(MAX_PARAMETERS)  # the sparsity at which the largest model sends one entry
MAX_LOCAL_STEPS = 1_000_000
MAX_LOCAL_STEP_CHOICES = 100_000
MAX_VALUE_BITS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Costs of a choice of H and sparsity over the whole training."""

    rounds: float
    radio_joules: float
    compute_joules: float
    seconds: float | None
    joules: Mapping[str, Mapping[str, float]]  # by kind, and by where they come from

    @property
    def energy_joules(self) -> float:
        """Joules of the whole training, objective (27) of [LI21]."""
        return self.radio_joules + self.compute_joules


@dataclass(frozen=True, kw_only=True)
class ControlProblem:
    """Choose H from ``local_steps`` and each device's sparsity in ``sparsity`` = (min, max) for least energy.

    ``round_seconds`` is an optional deadline of each round; batteries are part of the fleet. A largest
    sparsity above the number of parameters is lowered to it with a warning. ``downlink`` is the server's choice; by
    default it is planned, within the same limits, where the fleet states what receiving costs, and "free" leaves it
    out. Local steps cost the same whatever their batch: ``Fleet.with_batch`` includes the samples.
    """

    fleet: Fleet
    rounds: RoundsModel
    parameters: int
    sparsity: tuple[float, float]
    local_steps: Iterable[int]
    value_bits: int = 32
    round_seconds: float | None = None
    downlink: Downlink | Literal["free"] | None = None

    def __post_init__(self) -> None:
        """Check the problem and make ``local_steps`` a sorted tuple."""
        parameters = require_integer("parameters", self.parameters, low=1, high=MAX_PARAMETERS)
        require_integer("value_bits", self.value_bits, low=2, high=MAX_VALUE_BITS)
        object.__setattr__(self, "sparsity", _checked_limits(self.sparsity, parameters))
        object.__setattr__(self, "local_steps", _checked_steps(self.local_steps))
        if self.round_seconds is not None:
            require_number("round_seconds", self.round_seconds, low=0.0, above=True)
        object.__setattr__(self, "downlink", self._checked_downlink())
        if self.fleet.joules_per_sample is not None and np.any(self.fleet.joules_per_sample > 0.0):
            message = "the plan leaves out joules_per_sample; plan with fleet.with_batch(size) to include it"
            warnings.warn(message, FewJoulesWarning, stacklevel=4)
        self._require_finite_energy()

    def _checked_downlink(self) -> Downlink | Literal["free"]:
        """Return the server's choice within the number of parameters; by default the limits of the devices."""
        if self.downlink is None:
            return Downlink(sparsity=self.sparsity, value_bits=self.value_bits) if self.fleet.has_downlink else "free"
        if isinstance(self.downlink, str):
            if self.downlink != "free":
                raise InvalidInputError(f"downlink must be 'free' or a Downlink, got {shown(self.downlink)}")
            return "free"
        if not self.fleet.has_downlink:
            raise InvalidInputError("a planned downlink needs downlink_joules_per_bit of every device, got none")
        low, high = self.downlink.sparsity
        if low > self.parameters:
            raise InvalidInputError(
                f"downlink sparsity min must be at most the number of parameters {self.parameters}, got {low:g}"
            )
        high = min(high, float(self.parameters))
        low = high if self.downlink.weight == 0.0 else low  # a server that delays nothing sends the least
        return replace(self.downlink, sparsity=(low, high))

    def _require_finite_energy(self) -> None:
        """Refuse costs and constants whose products overflow."""
        low, high = self.sparsity
        most = self.server.sparsity[1] if self.server is not None else 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            rounds = max(self.predicted_rounds(h, high, most) for h in self.step_choices[[0, -1]].tolist())
            per_round = (
                float(self.message_bits(low)) * float(np.sum(self.fleet.joules_per_bit))
                + float(np.sum(self.downlink_joules(1.0) + self._entries("joules", 2.0 * self.parameters)))
                + float(self.fixed_joules(self.step_choices[-1:])[0])
            )
        if not np.isfinite(rounds * per_round):
            raise InvalidInputError(
                f"rounds times joules of a round must be finite, got up to {rounds:g} times {per_round:g}: the costs "
                "of the devices or the constants of the rounds model are too large"
            )

    @property
    def step_choices(self) -> IntArray:
        """All H to choose from in increasing order, shape (choices,)."""
        return np.fromiter(self.local_steps, dtype=np.int64)

    @property
    def devices(self) -> int:
        """Number of devices, M."""
        return len(self.fleet)

    @property
    def constrained(self) -> bool:
        """Whether a deadline or a battery limits the plan."""
        batteries = self.fleet.battery_joules
        return self.round_seconds is not None or (batteries is not None and bool(np.isfinite(batteries).any()))

    @property
    def server(self) -> Downlink | None:
        """The server's choice; None where the downlink is not charged."""
        return self.downlink if isinstance(self.downlink, Downlink) else None

    def with_choices(
        self, *, sparsity: tuple[float, float] | None = None, local_steps: Iterable[int] | None = None
    ) -> "ControlProblem":
        """Return the problem with other limits; those of the sparsity are the server's too."""
        changed = replace(self, local_steps=self.local_steps if local_steps is None else local_steps)
        if sparsity is None:
            return changed
        server = self.server
        downlink = self.downlink if server is None else replace(server, sparsity=sparsity)
        return replace(changed, sparsity=sparsity, downlink=downlink)

    def with_downlink_at(self, sparsity: float) -> "ControlProblem":
        """Return the problem with the server's sparsity given."""
        return self if self.server is None else replace(self, downlink=self.server.at(sparsity))

    def message_bits(self, sparsity: ArrayLike) -> FloatArray:
        """Return the bits of a message by formula (25) of [LI21]; the fleet's costs include the radio's overhead."""
        return estimated_message_bits(self.parameters, sparsity, self.value_bits)

    def predicted_rounds(self, local_steps: int, sparsity: ArrayLike, downlink_sparsity: float | None = None) -> float:
        """Return K(delta, H) for one sparsity per device, or one for all."""
        mean_power = float(np.mean(np.power(sparsity, self.rounds.exponent))) + self.server_power(downlink_sparsity)
        return float(self.rounds.rounds(mean_power, local_steps, self.devices))

    def server_power(self, downlink_sparsity: float | None = None) -> float:
        """What the server adds to the mean power; at its least sparsity unless told another."""
        if self.server is None:
            return 0.0
        chosen = self.server.sparsity[0] if downlink_sparsity is None else downlink_sparsity
        return self.server.power(chosen, self.rounds.exponent)

    def message_joules(self, sparsity: ArrayLike) -> FloatArray:
        """Joules of each device to send its update, shape (devices,)."""
        return self.fleet.joules_per_bit * self.message_bits(sparsity) + self.fleet.message_joules

    def downlink_bits(self, downlink_sparsity: float | None = None) -> float:
        """Bits of the broadcast; at the server's least sparsity unless told another, and 0 where it is free."""
        if self.server is None:
            return 0.0
        chosen = self.server.sparsity[0] if downlink_sparsity is None else downlink_sparsity
        return float(estimated_message_bits(self.parameters, chosen, self.server.value_bits))

    def joules_per_received_entry(self) -> float:
        """Joules of all devices to decode one entry of the broadcast."""
        return float(np.sum(self._entries("joules", 1.0)))

    def broadcast_joules(self, downlink_sparsity: float | None = None) -> float:
        """Joules of all devices for the bits and the entries of the broadcast."""
        costs = self.fleet.downlink_joules_per_bit
        if self.server is None or costs is None:
            return 0.0
        entries = self._entries("joules", self._received(downlink_sparsity))
        return float(np.sum(costs)) * self.downlink_bits(downlink_sparsity) + float(np.sum(entries))

    def downlink_joules(self, downlink_sparsity: float | None = None) -> FloatArray:
        """Joules of each device to receive the broadcast, shape (devices,)."""
        costs = self.fleet.downlink_joules_per_bit
        if self.server is None or costs is None:
            return np.zeros(self.devices)
        return costs * self.downlink_bits(downlink_sparsity) + self.fleet.downlink_message_joules

    def round_joules_by_kind(
        self, local_steps: int, sparsity: ArrayLike, downlink_sparsity: float | None = None
    ) -> dict[str, FloatArray]:
        """Joules of each device in one round by kind, each of shape (devices,)."""
        fleet = self.fleet
        return {
            "uplink": self.message_joules(sparsity),
            "downlink": self.downlink_joules(downlink_sparsity),
            "tail": planned_tail_joules(fleet, fleet.seconds_per_step, local_steps, self.server is not None),
            "compute": local_steps * fleet.joules_per_step,
            "codec": self._coding("joules")
            + self._entries("joules", self._sent(sparsity) + self._received(downlink_sparsity)),
        }

    def round_joules(self, local_steps: int, sparsity: ArrayLike, downlink_sparsity: float | None = None) -> FloatArray:
        """Joules of each device in one round, shape (devices,)."""
        return self.sending_joules(sparsity) + self.joules_beside_bits(local_steps, downlink_sparsity)

    def sending_joules(self, sparsity: ArrayLike) -> FloatArray:
        """Joules of each device for the bits and the entries that it sends."""
        bits = self.fleet.joules_per_bit * self.message_bits(sparsity)
        return bits + self._entries("joules", self._sent(sparsity))

    def _sent(self, sparsity: ArrayLike) -> FloatArray:
        return self.parameters / np.asarray(sparsity, dtype=np.float64)

    def _received(self, downlink_sparsity: float | None) -> float:
        if self.server is None:
            return 0.0
        return self.parameters / (self.server.sparsity[0] if downlink_sparsity is None else downlink_sparsity)

    def joules_beside_bits(self, local_steps: int, downlink_sparsity: float | None = None) -> FloatArray:
        """Joules of each device in one round beside what it sends, shape (devices,)."""
        fleet = self.fleet
        tails = planned_tail_joules(fleet, fleet.seconds_per_step, local_steps, self.server is not None)
        radio = fleet.message_joules + self.downlink_joules(downlink_sparsity) + tails
        received = self._entries("joules", self._received(downlink_sparsity))
        return radio + local_steps * fleet.joules_per_step + self._coding("joules") + received

    def fixed_joules(self, local_steps: IntArray) -> FloatArray:
        """Joules of a round of all devices beside the bits of their messages, for each H; points are the cheapest."""
        fleet, steps = self.fleet, local_steps.astype(np.float64)
        if fleet.operating_points is not None:
            least = total_least_joules(fleet, fleet.operating_points, steps, self.server is not None)
            return self.fixed_message_joules() + least
        tails = total_tail_joules(fleet, fleet.seconds_per_step, steps, self.server is not None)
        return self.fixed_message_joules() + tails + steps * float(np.sum(fleet.joules_per_step))

    def fixed_message_joules(self) -> float:
        """Joules of a round of all devices that depend on nothing: messages whatever their length, and coding."""
        joules = float(np.sum(self.fleet.message_joules)) + float(np.sum(self._coding("joules")))
        return joules if self.server is None else joules + float(np.sum(self.fleet.downlink_message_joules))

    def _coding(self, unit: str) -> FloatArray:
        """Joules or seconds of a pass of the codec over the model."""
        costs = getattr(self.fleet, f"codec_{unit}_per_parameter")
        return np.zeros(self.devices) if costs is None else costs * float(self.parameters)

    def _entries(self, unit: str, count: ArrayLike) -> FloatArray:
        """Joules or seconds of the codec for these numbers of entries."""
        costs = getattr(self.fleet, f"codec_{unit}_per_entry")
        return np.zeros(self.devices) if costs is None else costs * count

    def entry_bits(self) -> FloatArray | float:
        """Joules of the codec for one entry as bits of the uplink, for the frontier; 0 where bits are free.

        A device whose bits are free is planned without what its entries cost: bounds stay below the truth.
        """
        per_entry, per_bit = self.fleet.codec_joules_per_entry, self.fleet.joules_per_bit
        if per_entry is None or not np.any(per_entry > 0.0):
            return 0.0
        return np.divide(per_entry, per_bit, out=np.zeros(self.devices), where=per_bit > 0.0)

    def fixed_seconds(self, local_steps: int, downlink_sparsity: float | None = None) -> FloatArray | None:
        """Seconds of each device in one round without the bits that it sends, or None if a time is unknown."""
        fleet = self.fleet
        if fleet.seconds_per_step is None or (self.server is not None and fleet.downlink_seconds_per_bit is None):
            return None
        seconds = fleet.message_seconds + self._coding("seconds") + local_steps * fleet.seconds_per_step
        seconds = seconds + self._entries("seconds", self._received(downlink_sparsity))
        if self.server is not None and fleet.downlink_seconds_per_bit is not None:
            bits = self.downlink_bits(downlink_sparsity)
            seconds = seconds + fleet.downlink_seconds_per_bit * bits + fleet.downlink_message_seconds
        return seconds

    def device_seconds(
        self, local_steps: int, sparsity: ArrayLike, downlink_sparsity: float | None = None
    ) -> FloatArray | None:
        """Seconds of each device in one round, or None if a time is unknown."""
        rest = self.fixed_seconds(local_steps, downlink_sparsity)
        if rest is None or self.fleet.seconds_per_bit is None:
            return None
        sent = self.fleet.seconds_per_bit * self.message_bits(sparsity)
        return sent + self._entries("seconds", self._sent(sparsity)) + rest

    def require_device_seconds(
        self, local_steps: int, sparsity: ArrayLike, downlink_sparsity: float | None = None
    ) -> FloatArray:
        """Return the seconds of each device in one round; refuse a fleet with unknown times."""
        seconds = self.device_seconds(local_steps, sparsity, downlink_sparsity)
        if seconds is None:
            more = "" if self.server is None else ", and downlink_seconds_per_bit"
            raise InvalidInputError(
                f"round_seconds needs seconds_per_bit and seconds_per_step of every device (or a radio and a gpu)"
                f"{more}; round_seconds = {self.round_seconds}, but the fleet has unknown times"
            )
        return seconds

    def costs(self, local_steps: int, sparsity: ArrayLike, downlink_sparsity: float | None = None) -> Costs:
        """Evaluate objective (27) of [LI21] as it is written, with all that a round costs."""
        delta = np.broadcast_to(require_array("sparsity", sparsity, low=1.0), (self.devices,))
        rounds = self.predicted_rounds(local_steps, delta, downlink_sparsity)
        seconds = self.device_seconds(local_steps, delta, downlink_sparsity)
        kinds = self.round_joules_by_kind(local_steps, delta, downlink_sparsity)
        marks = self.fleet.provenance
        return Costs(
            rounds=rounds,
            radio_joules=rounds * sum(float(np.sum(kinds[kind])) for kind in RADIO_KINDS),
            compute_joules=rounds * sum(float(np.sum(kinds[kind])) for kind in COMPUTE_KINDS),
            seconds=None if seconds is None else rounds * float(seconds.max()),
            joules={
                kind: {mark: rounds * joules for mark, joules in joules_by_mark(per_round, marks[kind]).items()}
                for kind, per_round in kinds.items()
                if np.any(per_round)
            },
        )


def _checked_limits(limits: Any, parameters: int) -> tuple[float, float]:
    try:
        low, high = limits
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"sparsity must be a pair (min, max), got {shown(limits)}") from error
    low = require_number("sparsity min", low, low=1.0)
    high = require_number("sparsity max", high, low=1.0)
    if low > high:
        raise InvalidInputError(f"sparsity min must be at most sparsity max = {high:g}, got {low:g}")
    if low > parameters:
        raise InvalidInputError(f"sparsity min must be at most the number of parameters {parameters}, got {low:g}")
    if high > parameters:
        message = f"sparsity max {high:g} is above the number of parameters and lowered to {parameters}"
        warnings.warn(message, FewJoulesWarning, stacklevel=5)
        high = float(parameters)
    return low, high


def _checked_steps(steps: Any) -> tuple[int, ...]:
    try:
        chosen = list(itertools.islice(steps, MAX_LOCAL_STEP_CHOICES + 1))  # a range may have no length, others no end
    except TypeError as error:
        raise InvalidInputError(f"local_steps must be whole numbers, got {shown(steps)}") from error
    if not 1 <= len(chosen) <= MAX_LOCAL_STEP_CHOICES:
        got = "more" if chosen else "none"
        raise InvalidInputError(f"local_steps must offer 1 to {MAX_LOCAL_STEP_CHOICES} choices, got {got}")
    return tuple(sorted({require_integer("local_steps", h, low=1, high=MAX_LOCAL_STEPS) for h in chosen}))
