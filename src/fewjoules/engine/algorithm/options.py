"""All options of a training run, declared and checked once. docs/training.md explains each of them."""

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.codec.values import KINDS, MAX_LEVELS
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.declared import (
    Available,
    Choice,
    Flag,
    LostUploads,
    MetricTarget,
    Number,
    Rate,
    Rounds,
    Sparsities,
    Whole,
    as_plain,
    option,
)
from fewjoules.engine.algorithm.presets import PRESETS, preset_options
from fewjoules.engine.algorithm.step_sizes import StepSizes
from fewjoules.errors import InvalidInputError, require_integer, shown
from fewjoules.ledger.target import OPTIONS, Target
from fewjoules.physics.availability import AvailableDevices, availability_of
from fewjoules.planner.problem import MAX_LOCAL_STEPS, MAX_SPARSITY

MAX_ROUNDS = 10_000_000
LARGEST_RATE = 3e38  # what float32 can hold
PRECISIONS = ("float32", "tf32", "bf16")
USUAL_MOMENTUM = 0.9
INNER_CONSTANTS = ("momentum", "momentum_state", "adam_beta2", "adam_epsilon")  # of one inner optimiser, not of others
# options that say something only together with the first one: whoever changes that one leaves the others behind
COMPANIONS = {
    "inner": INNER_CONSTANTS,
    "schedule": ("decay_rounds", "decay_factor"),
    "outer": ("outer_momentum", "outer_rate", "outer_beta2", "outer_epsilon"),
    "compressor": ("values", "levels"),
}
EVALUATE_STEPS = 10  # without ``evaluate_every``, the model is evaluated about every so many local steps
_RATE = Number(0.0, LARGEST_RATE, above=True)
_EPSILON = Number(0.0, 1e19, above=True)  # whose square float32 can hold
_DECAY = Number(0.0, 1.0, below=True)


def overridden(options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with some replaced; the constants of a replaced optimiser, schedule or compressor are left out."""
    replaced = [first for first in COMPANIONS if first in changes and changes[first] != options.get(first)]
    left_behind = {name for first in replaced for name in COMPANIONS[first]}
    return {name: value for name, value in options.items() if name not in left_behind} | dict(changes)


def require_known(caller: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an option that a function does not take; the message names those that it takes."""
    known = tuple(dict.fromkeys(known))
    for name in given:
        if name not in known:
            raise InvalidInputError(f"{shown(name)} is no option of {caller}, which takes {', '.join(known)}")


def _is_function(rate: Any) -> bool:
    return callable(rate) or isinstance(rate, StepSizes)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of FT-LSGD-DB and the family of methods around it.

    ``sparsity`` has one entry per client; a ``batch_size`` of None means all local data at every step; ``failures``
    maps a round (from 1) to the clients whose upload is lost in it. ``inner``, ``momentum`` and ``momentum_state`` may
    be left out: a momentum above 0 then selects inner momentum, reset to zero at the start of every round. Without
    ``downlink``, receiving is charged where the fleet states what it costs (``Accounts.charges_downlink``). Without
    ``guard``, a run is guarded against divergence where its clients can go back, which remote devices cannot.
    """

    local_steps: int = option(Whole(1, MAX_LOCAL_STEPS))
    sparsity: FloatArray = option(Sparsities(MAX_SPARSITY))
    rounds: int = option(Whole(1, MAX_ROUNDS))
    learning_rate: float | StepSizes = option(Rate(0.0, LARGEST_RATE, above=True))
    preset: str | None = option(Choice(tuple(PRESETS)), optional=True)
    schedule: str = option(Choice(("constant", "cosine", "step")), "constant")
    warmup_rounds: int = option(Whole(0, MAX_ROUNDS), 0)
    decay_rounds: tuple[int, ...] = option(Rounds(MAX_ROUNDS), ())
    decay_factor: float = option(Number(0.0, above=True), 0.1)
    inner: str | None = option(Choice(("sgd", "momentum", "adamw")), optional=True)
    momentum: float | None = option(_DECAY, optional=True)
    momentum_state: str | None = option(Choice(("reset", "kept", "cleared")), optional=True)
    adam_beta2: float = option(_DECAY, 0.999)
    adam_epsilon: float = option(_EPSILON, 1e-8)
    weight_decay: float = option(Number(0.0), 0.0)
    gradient_clip: float | None = option(Number(0.0, above=True), optional=True)
    outer: str = option(Choice(("none", "momentum", "nesterov", "adam")), "none")
    outer_momentum: float = option(_DECAY, USUAL_MOMENTUM)
    outer_rate: float = option(_RATE, 1.0)
    outer_beta2: float = option(_DECAY, 0.99)
    outer_epsilon: float = option(_EPSILON, 1e-3)
    averaging: float = option(Number(0.0, 1.0), 0.0)
    batch_size: int | None = option(Whole(1, 2**31 - 1), 32, optional=True)
    batch_growth: float = option(Number(1.0), 1.0)
    error_feedback: bool = option(Flag(), True)
    residual_decay: float = option(Number(0.0, 1.0), 1.0)
    kept_values: str = option(Choice(("float32", "bfloat16")), "float32")
    compressor: str = option(Choice(tuple(COMPRESSORS)), "top-k")
    values: str = option(Choice(tuple(KINDS)), "float32")
    levels: int = option(Whole(1, MAX_LEVELS), 15)
    weighting: str = option(Choice(("equal", "samples")), "equal")
    participation: float = option(Number(0.0, 1.0, above=True), 1.0)
    sampling: str = option(Choice(("uniform", "battery", "energy")), "uniform")
    availability: AvailableDevices | None = option(Available(), optional=True)
    failure_probability: float = option(Number(0.0, 1.0), 0.0)
    failures: Mapping[int, Set[int]] = option(LostUploads(MAX_ROUNDS), factory=dict)
    downlink: str | None = option(Choice(("free", "charged")), optional=True)
    downlink_sparsity: float = option(Number(1.0, MAX_SPARSITY), 1.0)
    downlink_values: str = option(Choice(tuple(KINDS)), "float32")
    channel: str = option(Choice(("average", "drawn")), "average")
    coherence_blocks: int = option(Whole(2, 1_000_000), 10)
    seed: int = option(Whole(0, 2**63 - 1), 0)
    target_accuracy: float | None = option(Number(0.0, 1.0), optional=True)
    target_loss: float | None = option(Number(0.0, above=True), optional=True)
    target_perplexity: float | None = option(Number(1.0, above=True), optional=True)
    target_metric: str | None = option(MetricTarget(), optional=True)
    energy_budget_joules: float | None = option(Number(0.0, above=True), optional=True)
    time_budget_seconds: float | None = option(Number(0.0, above=True), optional=True)
    evaluate_every: int | None = option(Whole(1, MAX_ROUNDS), optional=True)
    guard: bool | None = option(Flag(), optional=True)
    precision: str = option(Choice(PRECISIONS), "float32")
    clients_at_a_time: int | None = option(Whole(1, 2**31 - 1), optional=True)

    @classmethod
    def of(cls, **given: Any) -> "TrainingOptions":
        """Make options; those not given come from the preset, if one is named."""
        own = tuple(cls.__dataclass_fields__)
        known = (*(name for name in own if name not in OPTIONS), "target")  # which says all of OPTIONS
        require_known("train", sorted(set(given) - set(own)), known)
        preset = given.get("preset")
        usual = {} if preset is None else preset_options(preset)
        if given.get("inner", usual.get("inner")) != usual.get("inner"):
            usual = {name: value for name, value in usual.items() if name not in INNER_CONSTANTS}
        return cls(**usual | given)

    def __post_init__(self) -> None:
        """Refuse invalid options and fill in those that depend on others."""
        for one in fields(self):
            value = as_plain(getattr(self, one.name))
            object.__setattr__(self, one.name, value)
            if value is not None or not one.metadata["optional"]:
                one.metadata["check"].require(one.name, value)
        for number, devices in self.failures.items():
            for device in devices:
                require_integer(f"failures: a device of round {number}", device, low=0, high=self.clients - 1)
        self._require_pairs()
        self._fill_in()

    def _require_pairs(self) -> None:
        """Refuse options that contradict each other."""
        if (self.schedule == "step") != bool(self.decay_rounds):
            raise InvalidInputError(
                f"decay_rounds and schedule = 'step' go together, got {list(self.decay_rounds)} and {self.schedule!r}"
            )
        if _is_function(self.learning_rate) and (self.schedule != "constant" or self.warmup_rounds):
            raise InvalidInputError(
                "learning_rate as a function goes with schedule = 'constant' and without warmup_rounds, "
                f"got {self.schedule!r} and {self.warmup_rounds}"
            )
        COMPRESSORS[self.compressor].require_values(self.values)
        if self.inner == "sgd" and self.momentum:
            raise InvalidInputError(
                f"momentum goes with inner = 'momentum' or 'adamw', got {self.momentum!r} and 'sgd'"
            )
        if self.inner == "adamw" and self.momentum_state == "cleared":
            raise InvalidInputError("momentum_state = 'cleared' goes with inner = 'momentum', got 'adamw'")
        given = {name: getattr(self, name) for name in OPTIONS if getattr(self, name) is not None}
        if len(given) > 1:
            got = ", ".join(f"{name} = {value!r}" for name, value in given.items())
            raise InvalidInputError(f"{' and '.join(given)} are several targets, and a run has at most one, got {got}")

    def _fill_in(self) -> None:
        asked = self.momentum or self.momentum_state in ("kept", "cleared")
        inner = self.inner or ("momentum" if asked else "sgd")
        momentum = 0.0 if inner == "sgd" else USUAL_MOMENTUM if self.momentum is None else float(self.momentum)
        state = self.momentum_state or ("kept" if inner == "adamw" else "reset")
        state = "reset" if inner == "sgd" else state  # which has none: a backend need not ask for both
        available = None if self.availability is None else availability_of(self.availability)
        filled = {"inner": inner, "momentum": momentum, "momentum_state": state, "availability": available}
        if _is_function(self.learning_rate):
            filled["learning_rate"] = self._step_sizes(self.learning_rate)
        for name, value in filled.items():
            object.__setattr__(self, name, value)

    def _step_sizes(self, given: Any) -> StepSizes:
        """Return the step sizes of every round; those of other options with the same function are asked anew."""
        if isinstance(given, StepSizes) and (given.rounds, given.local_steps) == (self.rounds, self.local_steps):
            return given
        function = given.function if isinstance(given, StepSizes) else given
        return StepSizes(function, self.rounds, self.local_steps, LARGEST_RATE)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return int(np.size(self.sparsity))

    @property
    def target(self) -> Target | None:
        """The target at which the run stops, if it has one."""
        return Target.of({name: getattr(self, name) for name in OPTIONS})

    @property
    def compresses_downlink(self) -> bool:
        """Whether the server sends less than the exact change of the weights and keeps the rest."""
        return self.downlink_sparsity > 1.0 or self.downlink_values != "float32"

    @property
    def evaluation_rounds(self) -> int:
        """Number of rounds between two evaluations; the last round is always evaluated."""
        return self.evaluate_every or math.ceil(EVALUATE_STEPS / self.local_steps)

    def evaluates_after(self, number: int) -> bool:
        """Whether the model is evaluated after this round, if there is a test set."""
        return number % self.evaluation_rounds == 0 or number == self.rounds

    def to_dict(self) -> dict[str, Any]:
        """Return the options as values that JSON can hold; runs with equal values are the same run."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["sparsity"] = np.asarray(self.sparsity).tolist()
        plain["decay_rounds"] = list(self.decay_rounds)
        if isinstance(self.learning_rate, StepSizes):
            plain["learning_rate"] = self.learning_rate.describe()
        plain["availability"] = None if self.availability is None else self.availability.describe()
        plain["failures"] = {str(number): sorted(devices) for number, devices in sorted(self.failures.items())}
        return plain
