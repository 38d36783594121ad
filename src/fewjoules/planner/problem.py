"""The control problem (27) of [LI21]: the choices and their costs."""

import itertools
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.convergence.rounds import RoundsModel
from fewjoules.errors import FewJoulesWarning, InvalidInputError, require_array, require_integer, require_number, shown
from fewjoules.physics.fleet import Fleet
from fewjoules.physics.message_size import MessageSize, require_message_size
from fewjoules.planner.downlink import Downlink
from fewjoules.planner.round_costs import RoundCosts
from fewjoules.planner.training_costs import Costs, expected_slowest

MAX_PARAMETERS = 10**12
MAX_SPARSITY = float(MAX_PARAMETERS)  # the sparsity at which the largest model sends one entry
MAX_LOCAL_STEPS = 1_000_000
MAX_LOCAL_STEP_CHOICES = 100_000
MAX_VALUE_BITS = 64


@dataclass(frozen=True, kw_only=True)
class ControlProblem:
    """What a plan chooses from, and for what: H and the sparsity of each device, for the least energy.

    Batteries are part of the fleet. Local steps cost the same whatever their batch; ``Fleet.with_batch`` includes the
    samples. Where only some devices take part in each round, ``planner.partial`` makes the problem.

    Args:
        fleet: What bits, messages and steps cost each device.
        rounds: How many rounds training takes.
        parameters: Size d of the model.
        sparsity: Limits (min, max) for each device; a max above ``parameters`` is lowered to it with a warning.
        local_steps: All H to choose from.
        value_bits: Bits of a value in formula (25) of [LI21], the size of a message by default.
        round_seconds: Deadline of each round.
        downlink: The server's choice, or "free" to leave the downlink out. By default it is planned within the same
            limits where the fleet states what receiving costs.
        message: The law of the devices' messages, in place of formula (25).
        cohort: How many devices take part in each round, where not all do.

    Raises:
        InvalidInputError: An argument is refused; the message names it.
    """

    fleet: Fleet
    rounds: RoundsModel
    parameters: int
    sparsity: tuple[float, float]
    local_steps: Iterable[int]
    value_bits: int = 32
    round_seconds: float | None = None
    downlink: Downlink | Literal["free"] | None = None
    message: MessageSize | None = None
    cohort: int | None = None

    def __post_init__(self) -> None:
        """Check the problem and make ``local_steps`` a sorted tuple."""
        if not isinstance(self.fleet, Fleet):
            raise InvalidInputError(f"fleet must be a fewjoules.Fleet, got {shown(self.fleet)}")
        if not isinstance(self.rounds, RoundsModel) or isinstance(self.rounds, type):
            raise InvalidInputError(
                f"rounds must be a rounds model, such as a fewjoules.PowerLawRounds, got {shown(self.rounds)}"
            )
        parameters = require_integer("parameters", self.parameters, low=1, high=MAX_PARAMETERS)
        require_integer("value_bits", self.value_bits, low=2, high=MAX_VALUE_BITS)
        require_message_size("message", self.message)
        object.__setattr__(self, "sparsity", _checked_limits(self.sparsity, parameters))
        object.__setattr__(self, "local_steps", _checked_steps(self.local_steps))
        if self.round_seconds is not None:
            require_number("round_seconds", self.round_seconds, low=0.0, above=True)
        if self.cohort is not None:
            require_integer("cohort", self.cohort, low=1, high=self.devices)
        object.__setattr__(self, "downlink", self._checked_downlink())
        if self.fleet.joules_per_sample is not None and np.any(self.fleet.joules_per_sample > 0.0):
            message = "the plan leaves out joules_per_sample; plan with fleet.with_batch(size) to include it"
            warnings.warn(message, FewJoulesWarning, stacklevel=4)
        self._require_plannable_messages()
        self._require_finite_energy()

    def _checked_downlink(self) -> Downlink | Literal["free"]:
        """Return the server's choice within the number of parameters; by default the limits of the devices."""
        if self.downlink is None:
            return Downlink(sparsity=self.sparsity, value_bits=self.value_bits) if self.fleet.has_downlink else "free"
        if not isinstance(self.downlink, Downlink):
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

    def _require_plannable_messages(self) -> None:
        """Refuse laws of messages for which plans could not be proved; a sparsity that is given needs no proof."""
        (low, high), exponent, server = self.sparsity, self.rounds.exponent, self.server
        if low < high:
            self.message_size.require_plannable("messages", low, exponent, batteries=self.has_batteries)
        if server is not None and server.chosen:
            name, least = "the server's messages", server.received_sparsity(server.sparsity[0])
            server.message_size.require_plannable(name, least, exponent, batteries=False)

    def _require_finite_energy(self) -> None:
        """Refuse costs and constants whose products overflow."""
        low, high = self.sparsity
        most = self.server.sparsity[1] if self.server is not None else 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            rounds = max(self.predicted_rounds(h, high, most) for h in self.step_choices[[0, -1]].tolist())
            per_round = self.round_costs.most_joules(low, self.step_choices)
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
        return self.round_seconds is not None or self.has_batteries

    @property
    def has_batteries(self) -> bool:
        """Whether a battery limits the plan."""
        batteries = self.fleet.battery_joules
        return batteries is not None and bool(np.isfinite(batteries).any())

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

    @cached_property
    def round_costs(self) -> RoundCosts:
        """What one round costs the devices."""
        return RoundCosts(self.fleet, self.parameters, self.message_size, self.server)

    @property
    def message_size(self) -> MessageSize:
        """The law of the devices' messages: ``message``, or formula (25) with ``value_bits``."""
        return self.message or MessageSize.formula_25(self.value_bits)

    def round_joules(self, local_steps: int, sparsity: ArrayLike, downlink_sparsity: float | None = None) -> FloatArray:
        """Joules of each device in one round, shape (devices,)."""
        return self.round_costs.joules(local_steps, sparsity, downlink_sparsity)

    def device_seconds(
        self, local_steps: int, sparsity: ArrayLike, downlink_sparsity: float | None = None
    ) -> FloatArray | None:
        """Seconds of each device in one round, or None if a time is unknown."""
        return self.round_costs.seconds(local_steps, sparsity, downlink_sparsity)

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
        kinds = self.round_costs.joules_by_kind(local_steps, delta, downlink_sparsity)
        slowest = None if seconds is None else expected_slowest(seconds, self.cohort or self.devices)
        return Costs.of(rounds, kinds, slowest, self.fleet.provenance)


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
