"""The control problem (27) of [LI21]: the choices and their costs."""

import itertools
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.convergence.rounds import RoundsModel
from fewjoules.errors import FewJoulesWarning, InvalidInputError, require_array, require_integer, require_number, shown
from fewjoules.physics.fleet import Fleet
from fewjoules.physics.radio import estimated_message_bits

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

    @property
    def energy_joules(self) -> float:
        """Joules of the whole training, objective (27) of [LI21]."""
        return self.radio_joules + self.compute_joules


@dataclass(frozen=True, kw_only=True)
class ControlProblem:
    """Choose H from ``local_steps`` and each device's sparsity in ``sparsity`` = (min, max) for least energy.

    ``round_seconds`` is an optional deadline of each round; batteries are part of the fleet. A largest
    sparsity above the number of parameters is lowered to it with a warning.
    """

    fleet: Fleet
    rounds: RoundsModel
    parameters: int
    sparsity: tuple[float, float]
    local_steps: Iterable[int]
    value_bits: int = 32
    round_seconds: float | None = None

    def __post_init__(self) -> None:
        """Check the problem and make ``local_steps`` a sorted tuple."""
        parameters = require_integer("parameters", self.parameters, low=1, high=MAX_PARAMETERS)
        require_integer("value_bits", self.value_bits, low=2, high=MAX_VALUE_BITS)
        object.__setattr__(self, "sparsity", _checked_limits(self.sparsity, parameters))
        object.__setattr__(self, "local_steps", _checked_steps(self.local_steps))
        if self.round_seconds is not None:
            require_number("round_seconds", self.round_seconds, low=0.0, above=True)
        self._require_finite_energy()

    def _require_finite_energy(self) -> None:
        """Refuse costs and constants whose products overflow."""
        low, high = self.sparsity
        with np.errstate(over="ignore", invalid="ignore"):
            rounds = max(self.predicted_rounds(h, high) for h in self.step_choices[[0, -1]].tolist())
            per_round = (
                float(self.message_bits(low)) * float(np.sum(self.fleet.joules_per_bit))
                + float(np.sum(self.fleet.message_joules))
                + float(self.step_choices[-1]) * float(np.sum(self.fleet.joules_per_step))
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

    def with_choices(
        self, *, sparsity: tuple[float, float] | None = None, local_steps: Iterable[int] | None = None
    ) -> "ControlProblem":
        """Return the problem with other limits."""
        changed = replace(self, local_steps=self.local_steps if local_steps is None else local_steps)
        return changed if sparsity is None else replace(changed, sparsity=sparsity)

    def message_bits(self, sparsity: ArrayLike) -> FloatArray:
        """Return the bits of a message by formula (25) of [LI21]; the fleet's costs include the radio's overhead."""
        return estimated_message_bits(self.parameters, sparsity, self.value_bits)

    def predicted_rounds(self, local_steps: int, sparsity: ArrayLike) -> float:
        """Return K(delta, H) for one sparsity per device, or one for all."""
        mean_power = float(np.mean(np.power(sparsity, self.rounds.exponent)))
        return float(self.rounds.rounds(mean_power, local_steps, self.devices))

    def message_joules(self, sparsity: ArrayLike) -> FloatArray:
        """Radio joules of each device in one round, shape (devices,)."""
        return self.fleet.joules_per_bit * self.message_bits(sparsity) + self.fleet.message_joules

    def round_joules(self, local_steps: int, sparsity: ArrayLike) -> FloatArray:
        """Joules of each device in one round, shape (devices,)."""
        return self.message_joules(sparsity) + local_steps * self.fleet.joules_per_step

    def device_seconds(self, local_steps: int, sparsity: ArrayLike) -> FloatArray | None:
        """Seconds of each device in one round, or None if a time is unknown."""
        fleet = self.fleet
        if fleet.seconds_per_bit is None or fleet.seconds_per_step is None:
            return None
        radio = fleet.seconds_per_bit * self.message_bits(sparsity) + fleet.message_seconds
        return radio + local_steps * fleet.seconds_per_step

    def require_device_seconds(self, local_steps: int, sparsity: ArrayLike) -> FloatArray:
        """Return the seconds of each device in one round; refuse a fleet with unknown times."""
        seconds = self.device_seconds(local_steps, sparsity)
        if seconds is None:
            raise InvalidInputError(
                "round_seconds needs seconds_per_bit and seconds_per_step of every device (or a radio and a gpu); "
                f"round_seconds = {self.round_seconds}, but the fleet has unknown times"
            )
        return seconds

    def costs(self, local_steps: int, sparsity: ArrayLike) -> Costs:
        """Evaluate objective (27) of [LI21] as it is written."""
        delta = np.broadcast_to(require_array("sparsity", sparsity, low=1.0), (self.devices,))
        rounds = self.predicted_rounds(local_steps, delta)
        seconds = self.device_seconds(local_steps, delta)
        return Costs(
            rounds=rounds,
            radio_joules=rounds * float(np.sum(self.message_joules(delta))),
            compute_joules=rounds * local_steps * float(np.sum(self.fleet.joules_per_step)),
            seconds=None if seconds is None else rounds * float(seconds.max()),
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
