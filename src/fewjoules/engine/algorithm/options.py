"""Everything a training run may be told, checked once."""

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.codec.values import KINDS, MAX_LEVELS
from fewjoules.errors import InvalidInputError, require_array, require_integer, require_number
from fewjoules.planner.problem import MAX_LOCAL_STEPS

MAX_ROUNDS = 10_000_000
LARGEST_RATE = 3e38  # what float32 can hold
PRECISIONS = ("float32", "tf32", "bf16")
COMPRESSORS = ("top-k", "random-k", "ternary", "qsgd", "none")
SCHEDULES = ("constant", "cosine", "step")
EVALUATE_STEPS = 10  # without ``evaluate_every``, the test set is looked at about every so many local steps


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """FT-LSGD-DB with its options; see docs/training.md.

    ``sparsity`` has one entry a client; ``batch_size`` None is all local data at every step; ``failures`` names the
    clients whose upload is lost, by round (from 1).
    """

    local_steps: int
    sparsity: FloatArray
    rounds: int
    learning_rate: float
    schedule: str = "constant"
    decay_rounds: tuple[int, ...] = ()
    decay_factor: float = 0.1
    momentum: float = 0.0
    batch_size: int | None = 32
    batch_growth: float = 1.0
    error_feedback: bool = True
    compressor: str = "top-k"
    values: str = "float32"
    levels: int = 15
    weighting: str = "equal"
    participation: float = 1.0
    failure_probability: float = 0.0
    failures: Mapping[int, Set[int]] = field(default_factory=dict)
    downlink: str = "free"
    channel: str = "average"
    coherence_blocks: int = 10
    seed: int = 0
    target_accuracy: float | None = None
    energy_budget_joules: float | None = None
    time_budget_seconds: float | None = None
    evaluate_every: int | None = None
    precision: str = "float32"

    def __post_init__(self) -> None:
        """Refuse what no run can be."""
        require_integer("local_steps", self.local_steps, low=1, high=MAX_LOCAL_STEPS)
        require_integer("rounds", self.rounds, low=1, high=MAX_ROUNDS)
        require_number("learning_rate", self.learning_rate, low=0.0, high=LARGEST_RATE, above=True)
        require_number("decay_factor", self.decay_factor, low=0.0, above=True)
        require_number("batch_growth", self.batch_growth, low=1.0)
        require_number("failure_probability", self.failure_probability, low=0.0, high=1.0)
        require_number("participation", self.participation, low=0.0, high=1.0, above=True)
        require_integer("coherence_blocks", self.coherence_blocks, low=2, high=1_000_000)
        require_integer("seed", self.seed, low=0, high=2**63 - 1)
        require_integer("levels", self.levels, low=1, high=MAX_LEVELS)
        require_array("sparsity", self.sparsity, low=1.0)
        if not 0.0 <= require_number("momentum", self.momentum, low=0.0) < 1.0:
            raise InvalidInputError(f"momentum must be at least 0 and below 1, got {self.momentum!r}")
        if not isinstance(self.error_feedback, bool):
            raise InvalidInputError(f"error_feedback must be true or false, got {self.error_feedback!r}")
        self._check_optional()
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InvalidInputError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        self._check_failures()
        if self.compressor in ("qsgd", "ternary") and self.values not in ("float32", self.compressor):
            raise InvalidInputError(f"compressor = {self.compressor!r} has values of its own kind, got {self.values!r}")
        if self.values == "ternary" and self.compressor != "ternary":
            raise InvalidInputError(f"values = 'ternary' needs compressor = 'ternary', got {self.compressor!r}")

    def _check_optional(self) -> None:
        if self.batch_size is not None:
            require_integer("batch_size", self.batch_size, low=1, high=2**31 - 1)
        if self.evaluate_every is not None:
            require_integer("evaluate_every", self.evaluate_every, low=1, high=MAX_ROUNDS)
        if self.target_accuracy is not None:
            require_number("target_accuracy", self.target_accuracy, low=0.0, high=1.0)
        for name in ("energy_budget_joules", "time_budget_seconds"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), low=0.0, above=True)
        if not isinstance(self.decay_rounds, list | tuple):
            raise InvalidInputError(f"decay_rounds must be a list of rounds, got {self.decay_rounds!r}")
        for number in self.decay_rounds:
            require_integer("decay_rounds", number, low=1, high=MAX_ROUNDS)
        if (self.schedule == "step") != bool(self.decay_rounds):
            raise InvalidInputError(
                f"decay_rounds and schedule = 'step' go together, got {list(self.decay_rounds)} and {self.schedule!r}"
            )

    def _check_failures(self) -> None:
        if not isinstance(self.failures, Mapping):
            raise InvalidInputError(f"failures must be a mapping of rounds to sets of clients, got {self.failures!r}")
        for number, devices in self.failures.items():
            if not isinstance(devices, Set | list | tuple):
                raise InvalidInputError(f"failures[{number!r}] must be a set of clients, got {devices!r}")
            require_integer("failures: the round", number, low=1, high=MAX_ROUNDS)
            for device in devices:
                require_integer(f"failures: a device of round {number}", device, low=0, high=self.clients - 1)

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return int(np.size(self.sparsity))

    @property
    def evaluation_rounds(self) -> int:
        """The test set is looked at every so many rounds, and after the last."""
        return self.evaluate_every or math.ceil(EVALUATE_STEPS / self.local_steps)

    def learning_rates(self, first_step: int) -> FloatArray:
        """Step sizes of the H steps of a round."""
        steps = np.arange(first_step, first_step + self.local_steps)
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1.0 + np.cos(np.pi * steps / (self.rounds * self.local_steps)))
        passed = sum(first_step // self.local_steps >= number for number in self.decay_rounds)
        rate = self.learning_rate
        for _ in range(passed):
            rate = min(rate * self.decay_factor, LARGEST_RATE)
        return np.full(self.local_steps, rate)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold; two runs with equal ones are the same run."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["sparsity"] = np.asarray(self.sparsity).tolist()
        plain["decay_rounds"] = list(self.decay_rounds)
        plain["failures"] = {str(number): sorted(devices) for number, devices in sorted(self.failures.items())}
        return plain


CHOICES = {
    "schedule": SCHEDULES,
    "compressor": COMPRESSORS,
    "values": tuple(KINDS),
    "weighting": ("equal", "samples"),
    "downlink": ("free", "charged"),
    "channel": ("average", "drawn"),
    "precision": PRECISIONS,
}
