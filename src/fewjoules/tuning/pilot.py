"""One pilot run: what is trained, the curve that it leaves, and who trains it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from fewjoules.physics.message_fit import MessageObservation

OptionValue = str | int | float | bool

BLOWN_UP = 3.0  # a loss above so many times the first one, or as far above one below 0, has blown up
_LEAST_LOSS = 1e-300  # whose logarithm stands for that of 0
_END = 0.5  # the loss of a pilot is its least from this part of the steps on: a spike is no failure


@dataclass(frozen=True, kw_only=True)
class PilotSpec:
    """What a pilot trains: options of the recipe, H, sparsities, and when it ends.

    It ends after ``steps`` local steps (rounded up to whole rounds), at the target if ``to_target``, or when the loss
    on the data kept aside has fallen to ``level``. Pilots with a ``start`` above 0 begin with other weights and
    batches.
    """

    options: Mapping[str, OptionValue]
    local_steps: int
    sparsity: tuple[float, ...]
    steps: int
    downlink_sparsity: float | None = None
    to_target: bool = False
    level: float | None = None
    start: int = 0

    @property
    def rounds(self) -> int:
        """The most rounds that it takes."""
        return math.ceil(self.steps / self.local_steps)

    @property
    def learning_rate(self) -> float:
        """Its step size."""
        return float(self.options["learning_rate"])

    @property
    def key(self) -> str:
        """What distinguishes the pilot from all others."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def training_key(self) -> str:
        """What distinguishes the training from others, however long it is followed."""
        told = asdict(self)
        return json.dumps({name: told[name] for name in _TRAINING}, sort_keys=True)


_TRAINING = ("options", "local_steps", "sparsity", "downlink_sparsity", "start")


@dataclass(frozen=True, kw_only=True)
class PilotResult:
    """The curve of a pilot on the data kept aside, how it ended, and what its messages and those to it took."""

    spec: PilotSpec
    rounds: int
    steps: tuple[int, ...]
    losses: tuple[float, ...]
    metrics: tuple[float, ...]
    reached: bool
    diverged: bool
    messages: tuple[MessageObservation, ...] = ()
    broadcasts: tuple[MessageObservation, ...] = ()

    @property
    def local_steps_taken(self) -> int:
        """Local steps of each client."""
        return self.rounds * self.spec.local_steps

    @property
    def alive(self) -> bool:
        """Whether the loss is finite and has not blown up."""
        if self.diverged or not self.losses:
            return False
        return not has_blown_up(self.losses[-1], self.losses[0])

    def final_loss(self) -> float:
        """Return the least loss of the second half; infinity for a run that blew up."""
        if not self.alive:
            return math.inf
        last = [one for at, one in zip(self.steps, self.losses, strict=True) if at >= _END * self.steps[-1]]
        return min(last)

    def steps_to_loss(self, level: float) -> float | None:
        """Return the steps after which the loss was at most ``level``, between two evaluations by their logarithms."""
        best = np.fmin.accumulate(np.asarray(self.losses, dtype=np.float64))
        below = np.flatnonzero(best <= level)
        if not below.size:
            return None
        at = int(below[0])
        if at == 0:
            return float(self.steps[0])
        if not math.isfinite(best[at - 1]):
            return float(self.steps[at])
        high, aim, low = (math.log(max(one, _LEAST_LOSS)) for one in (best[at - 1], level, best[at]))
        part = (high - aim) / (high - low) if high > low else 1.0
        return float(self.steps[at - 1] + part * (self.steps[at] - self.steps[at - 1]))

    def loss_after(self, steps: float) -> float:
        """Return the least loss up to so many steps."""
        seen = [loss for at, loss in zip(self.steps, self.losses, strict=True) if at <= steps]
        return min(seen or list(self.losses[:1]) or [math.inf])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold, with null for an unknown metric."""
        known = [value if math.isfinite(value) else None for value in self.metrics]
        return asdict(self) | {"metrics": known}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PilotResult":
        """Return the result that ``to_dict`` wrote."""
        told = dict(data["spec"])
        spec = PilotSpec(**told | {"sparsity": tuple(told["sparsity"])})
        curves = {name: tuple(data[name]) for name in ("steps", "losses")}
        curves["metrics"] = tuple(math.nan if value is None else value for value in data["metrics"])
        sizes = {
            name: tuple(MessageObservation(**one) for one in data.get(name, ())) for name in ("messages", "broadcasts")
        }
        return cls(**{**data, **curves, **sizes, "spec": spec})


def has_blown_up(loss: float, first: float) -> bool:
    """Whether a loss is not finite, or far above that of the untrained model."""
    return not math.isfinite(loss) or loss > first + (BLOWN_UP - 1.0) * abs(first)


class Laboratory(Protocol):
    """Trains pilots on data of which a part is kept aside."""

    @property
    def clients(self) -> int:
        """Number of clients."""

    def start(self) -> tuple[float, ...]:
        """Return loss and accuracy of the untrained model on the data kept aside."""

    def run(self, specs: Sequence[PilotSpec]) -> list[PilotResult]:
        """Train pilots, several at once where that is faster, and return their results in order."""
