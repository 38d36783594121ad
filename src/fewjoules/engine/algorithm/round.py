"""Plan and result of one round: what the server asks of each participant, and what comes back."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from fewjoules.arrays import Flags, FloatArray, IntArray
from fewjoules.engine.algorithm.last_rounds import LastRounds
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.participation import Cohort, importance_of, uniform_cohort
from fewjoules.engine.algorithm.rule import InnerRule
from fewjoules.engine.algorithm.schedule import learning_rates
from fewjoules.engine.algorithm.streams import stream
from fewjoules.errors import DivergedError
from fewjoules.planner.plan import kept_of


@dataclass(frozen=True, slots=True)
class ClientOrder:
    """Instructions for one client in one round, as plain data that fit a message.

    ``k`` entries are sent as ``values``; ``batch_sizes`` and ``rates`` have one entry for each of the H local steps,
    the first of which is number ``first_step`` of the run, each by ``rule``. If the client's last upload is later than
    ``accepted_round``, it was lost and the client adds it back to its residual.
    """

    round: int
    client: int
    seed: int
    first_step: int
    k: int
    compressor: str
    values: str
    levels: int
    batch_sizes: tuple[int, ...]
    rates: tuple[float, ...]
    rule: InnerRule
    error_feedback: bool
    residual_decay: float
    accepted_round: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ClientOrder":
        """Return the order that ``to_dict`` wrote."""
        lists = {name: tuple(data[name]) for name in ("batch_sizes", "rates")}
        return cls(**{**data, **lists, "rule": InnerRule(**data["rule"])})

    @property
    def local_steps(self) -> int:
        """Number of local steps, H."""
        return len(self.rates)

    def draws(self, *more: int) -> np.random.Generator:
        """Random generator of this client's compressor in this round."""
        return stream(self.seed, "compressor", self.round, self.client, *more)


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """Plan of round ``number`` (from 1): its participants and, with one entry each, their instructions.

    ``shares`` holds the weights of their updates in the mean, ``kept`` holds k and ``accepted`` the last accepted
    rounds; ``batch_sizes`` is (steps, participants) and ``rates`` is (steps,). ``step_scale`` is what the guard left of
    the step size; ``rates`` are scaled by it already. ``waited`` is how long the round had to wait for participants.
    """

    number: int
    options: TrainingOptions
    participants: IntArray
    shares: FloatArray
    kept: IntArray
    batch_sizes: IntArray
    rates: FloatArray
    accepted: IntArray
    step_scale: float = 1.0
    waited: float = 0.0

    @property
    def first_step(self) -> int:
        """Number of the round's first local step in the whole run, from 0."""
        return (self.number - 1) * self.options.local_steps

    def parts(self, chunk: int) -> list[slice]:
        """Return slices of at most ``chunk`` participants that cover all of them."""
        everyone = self.participants.size
        return [slice(start, min(start + chunk, everyone)) for start in range(0, everyone, chunk)]

    def of(self, part: slice) -> "RoundPlan":
        """Return the plan restricted to a slice of the participants."""
        return replace(
            self,
            participants=self.participants[part],
            shares=self.shares[part],
            kept=self.kept[part],
            batch_sizes=self.batch_sizes[:, part],
            accepted=self.accepted[part],
        )

    def order(self, row: int) -> ClientOrder:
        """Return the order of the participant at ``row``."""
        return ClientOrder(
            round=self.number,
            client=int(self.participants[row]),
            seed=self.options.seed,
            first_step=self.first_step,
            k=int(self.kept[row]),
            compressor=self.options.compressor,
            values=self.options.values,
            levels=self.options.levels,
            batch_sizes=tuple(self.batch_sizes[:, row].tolist()),
            rates=tuple(self.rates.tolist()),
            rule=InnerRule.of(self.options),
            error_feedback=self.options.error_feedback,
            residual_decay=self.options.residual_decay,
            accepted_round=int(self.accepted[row]),
        )


@dataclass(frozen=True, slots=True)
class Uploads:
    """Sent entries, payload sizes and training losses of the participants; ``losses`` is (steps, participants).

    ``written`` marks the payloads that were really encoded; the others were only sized. Where devices are remote,
    ``told`` marks those that replied; what the others did is not known.
    """

    entries: IntArray
    payload_bytes: IntArray
    written: Flags
    losses: FloatArray
    correct: FloatArray
    told: Flags | None = None

    @classmethod
    def nothing(cls, shape: tuple[int, ...]) -> "Uploads":
        """Return no uploads and unknown losses for a round of ``shape``, (steps, participants)."""
        none, unknown = np.zeros(shape[1], dtype=np.int64), np.full(shape, np.nan)
        return cls(none, none, np.zeros(shape[1], dtype=bool), unknown, unknown)

    @classmethod
    def joined(cls, parts: "Sequence[Uploads]") -> "Uploads":
        """Return the uploads of all participants from those of some after the other."""
        return cls(
            *(
                np.concatenate([getattr(one, name) for one in parts])
                for name in ("entries", "payload_bytes", "written")
            ),
            *(np.concatenate([getattr(one, name) for one in parts], axis=1) for name in ("losses", "correct")),
        )


@dataclass(frozen=True, slots=True)
class Received:
    """What each participant was sent of the model: bytes of weights and buffers, and entries of the weights."""

    payload_bytes: IntArray
    entries: IntArray

    @classmethod
    def nothing(cls, participants: int) -> "Received":
        """Return zeros for so many participants."""
        return cls(np.zeros(participants, dtype=np.int64), np.zeros(participants, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class RoundResult:
    """Result of a round: which uploads were ``delivered``, their mean, and the mean of their buffers.

    ``uploads()`` may wait until payload sizes are known. Where devices are remote, ``reached`` marks the participants
    that are known to have the model from before the round, and ``received`` is what was really sent to each.
    """

    mean_update: torch.Tensor
    buffers: torch.Tensor
    delivered: Flags
    uploads: Callable[[], Uploads]
    reached: Flags | None = None
    received: Received | None = None


def plan_round(
    options: TrainingOptions,
    kept: IntArray,
    sizes: IntArray,
    accepted: IntArray | LastRounds,
    number: int,
    *,
    step_scale: float = 1.0,
    cohort: Cohort | None = None,
) -> RoundPlan:
    """Choose the participants of round ``number`` and write their instructions.

    ``kept`` holds k of each client, ``sizes`` its number of samples, ``accepted`` its last accepted round: (clients,).
    Every step size of the schedule is multiplied by ``step_scale``. Without a ``cohort`` they are drawn uniformly.
    """
    if cohort is None:
        cohort = uniform_cohort(options, importance_of(options, sizes), number)
    clients = cohort.clients
    first_step = (number - 1) * options.local_steps
    return RoundPlan(
        number=number,
        options=options,
        participants=clients,
        shares=cohort.shares,
        kept=kept[clients],
        batch_sizes=batch_sizes(
            first_step, options.local_steps, options.batch_size, options.batch_growth, sizes[clients]
        ),
        rates=step_scale * learning_rates(options, number),
        accepted=accepted[clients],
        step_scale=step_scale,
        waited=cohort.waited,
    )


def kept_entries(options: TrainingOptions, parameters: int) -> IntArray:
    """Return k of each client: the fraction 1/delta of all parameters, at least one."""
    return kept_of(np.asarray(options.sparsity), parameters)


def batch_sizes(first_step: int, steps: int, initial: int | None, growth: float, sizes: IntArray) -> IntArray:
    """Return b_t of line 4 from ``first_step`` on, capped by each client's data: (steps, clients).

    An ``initial`` of None means all data at every step.
    """
    if initial is None:
        return np.tile(sizes, (steps, 1))
    largest = int(sizes.max())
    grown = [_grown(initial, growth, step, largest) for step in range(first_step, first_step + steps)]
    return np.minimum(np.array(grown, dtype=np.int64)[:, None], sizes[None, :])


def _grown(initial: int, growth: float, step: int, largest: int) -> int:
    if step * math.log(growth) > math.log(largest / initial) + 1.0:
        return largest
    return min(math.floor(growth**step * initial), largest)


def require_finite(losses: FloatArray, number: int, clients: IntArray) -> None:
    """Stop at the first loss, (steps, clients), that is NaN or infinite and say whose it was."""
    bad = np.argwhere(~np.isfinite(losses))
    if bad.size:
        step, row = bad[0]
        raise DivergedError(
            f"training diverged: the loss of client {clients[row]} at local step {step + 1} of round {number} is "
            f"{losses[step, row]}; a smaller learning rate may help"
        )
