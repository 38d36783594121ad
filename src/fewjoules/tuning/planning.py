"""What tuning needs of the planner: plans and prices for each kind of messages, whose sizes it learns from pilots."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, Protocol

import numpy as np

from fewjoules.convergence.rounds import RoundsModel
from fewjoules.physics.message_fit import MessageObservation, fit_message_size, usual_bits
from fewjoules.physics.message_size import MessageSize, least_entry_bits
from fewjoules.planner.choosing_points import PointChoices, at_points
from fewjoules.planner.downlink import Downlink
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.schemes import flexible
from fewjoules.tuning.belief import LEAST_Q, Choice
from fewjoules.tuning.pilot import OptionValue, PilotResult

EXACT = "float32"  # values of a server that rounds nothing
COARSE_SPARSITY = 4.0  # messages of coarse values are planned from here on, where their law holds
BATCH_FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # times the usual batch
SMALLEST_BATCH = 2
_ROUNDING = 1e-9  # by which a sparsity may miss the least one that is fast enough
_PRIOR_SPARSITIES = (4.0, 16.0, 64.0, 256.0)  # at which the usual sizes of messages are taken


@dataclass(frozen=True, slots=True)
class MessageKind:
    """A way to send values: its options, and by how much its rounding is expected to delay training."""

    values: str
    options: Mapping[str, OptionValue]
    delay: float

    @property
    def coarse(self) -> bool:
        """Whether an entry takes so few bits that its position is most of them."""
        return self.values == "ternary"


# delays: docs/tuning.md
MESSAGES = MappingProxyType(
    {
        "float32": MessageKind("float32", {"compressor": "top-k", "values": "float32"}, 1.0),
        "int8": MessageKind("int8", {"compressor": "top-k", "values": "int8"}, 1.01),
        "ternary": MessageKind("ternary", {"compressor": "ternary", "values": "float32"}, 1.05),
    }
)


@dataclass(frozen=True, slots=True)
class Batches:
    """The batch that is usual, the largest that every client has samples for, and the control problem with any."""

    usual: int
    largest: int
    problem_at: Callable[[int], ControlProblem]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Batch sizes to choose from, the smallest first."""
        found = {int(self.usual * factor) for factor in BATCH_FACTORS}
        return tuple(sorted({self.usual, *(one for one in found if SMALLEST_BATCH <= one <= self.largest)}))


class Planning(Protocol):
    """Plans with a rounds law for one way to send values, and knows what a round costs."""

    def plan(self, law: RoundsModel, message: str, local_steps: int | None = None) -> Plan:
        """Return the certified plan, with any H or with this one."""

    def round_joules(self, message: str, local_steps: int, sparsity: Sequence[float], downlink: float | None) -> float:
        """Return the joules of all devices in a round."""

    def messages(self) -> Mapping[str, tuple[Mapping[str, OptionValue], float]]:
        """Return the ways to send values: the options of each, and the factor on rounds that is expected of it."""

    def learn_sizes(self, results: Sequence[PilotResult]) -> None:
        """Fit the sizes of messages to those of pilots."""

    @property
    def downlink_weight(self) -> float:
        """Weight of the server's sparsity in the law."""

    @property
    def batch_size(self) -> int | None:
        """The batch whose samples are in the costs, if there are several to choose from."""

    @property
    def batches(self) -> Batches | None:
        """Batches to choose from; None where a sample has no price of its own."""

    def limit_sparsity(self, most: float) -> None:
        """Plan messages up to this sparsity from now on, or up to a smaller limit of the problem."""

    def at_batch(self, size: int) -> "Planning":
        """Return the planning of the same devices with another batch."""

    @property
    def downlink_kinds(self) -> Sequence[str]:
        """Kinds of values to choose from for the server's messages."""

    def at_downlink(self, values: str) -> "Planning":
        """Return the planning of the same devices with another kind of values from the server."""


def choice_of(plan: Plan, downlink_weight: float) -> Choice:
    """Return H and the sparsities of a plan as a belief takes them."""
    values, counts = np.unique(np.round(plan.sparsity, 6), return_counts=True)
    server = plan.downlink_sparsity
    return Choice(
        local_steps=plan.local_steps,
        sparsity=tuple(values.tolist()),
        shares=tuple((counts / counts.sum()).tolist()),
        downlink_sparsity=1.0 if server is None else server,
        downlink_weight=0.0 if server is None else downlink_weight,
    )


@dataclass
class FleetPlanning:
    """Plans for one fleet, model and limits; ``problem`` has any rounds model.

    ``batches`` may be chosen where a sample has a price; ``batch_size`` is the one of ``problem``. The server sends
    ``downlink_values``, whose sizes are ``downlink_sizes``.
    """

    problem: ControlProblem
    kinds: Sequence[str] = tuple(MESSAGES)
    sizes: dict[str, MessageSize] = field(default_factory=dict)
    downlink_values: str = EXACT
    downlink_sizes: dict[str, MessageSize] = field(default_factory=dict)
    batches: Batches | None = None
    batch_size: int | None = None
    most_sparsity: float = math.inf

    def __post_init__(self) -> None:
        """Start from the usual batch and from the sizes that messages usually have."""
        if self.batch_size is None and self.batches is not None:
            self.batch_size = self.batches.usual
        for kind in self.kinds:
            self.sizes.setdefault(kind, _usual_size(self.problem.parameters, kind, self._least_entry_bits(kind)))
        for kind in self.downlink_kinds:
            least = self._least_downlink_entry_bits(kind)
            self.downlink_sizes.setdefault(kind, _usual_size(self.problem.parameters, kind, least))

    @property
    def downlink_weight(self) -> float:
        """Weight of the server's sparsity in the law."""
        return 0.0 if self.problem.server is None else self.problem.server.weight

    def limit_sparsity(self, most: float) -> None:
        """Plan messages up to this sparsity from now on, or up to a smaller limit of the problem."""
        self.most_sparsity = most

    def at_batch(self, size: int) -> "FleetPlanning":
        """Return the planning with another batch; it learns the sizes of messages together with this one."""
        if self.batches is None or size == self.batch_size:
            return self
        return replace(self, problem=self.batches.problem_at(size), batch_size=size)

    @property
    def downlink_kinds(self) -> Sequence[str]:
        """Kinds of values to choose from for the server's messages.

        Where the downlink is free there is nothing to choose; where devices stay away, they receive float32 values
        whatever the kind.
        """
        server = self.problem.server
        return (EXACT,) if server is None or server.participation < 1.0 else tuple(MESSAGES)

    def at_downlink(self, values: str) -> "FleetPlanning":
        """Return the planning with other values from the server; they learn the sizes of messages together."""
        return self if values == self.downlink_values else replace(self, downlink_values=values)

    def messages(self) -> dict[str, tuple[Mapping[str, OptionValue], float]]:
        """Return the options and the expected delay of each kind, together with those of the server's messages."""
        charged = self.problem.server is not None
        server = {"downlink_values": self.downlink_values} if charged else {}
        delay = MESSAGES[self.downlink_values].delay
        return {kind: ({**MESSAGES[kind].options, **server}, delay * MESSAGES[kind].delay) for kind in self.kinds}

    def plan(self, law: RoundsModel, message: str, local_steps: int | None = None) -> Plan:
        """Return the certified plan, with any H or with this one."""
        problem = self.problem_of(law, message)
        chosen = problem if local_steps is None else problem.with_choices(local_steps=(local_steps,))
        return flexible(chosen)

    def round_joules(self, message: str, local_steps: int, sparsity: Sequence[float], downlink: float | None) -> float:
        """Return the joules of all devices in a round, each at its cheapest operating point that is fast enough."""
        problem, delta = self.problem_of(self.problem.rounds, message), np.asarray(sparsity)
        if problem.fleet.operating_points is not None:
            points = PointChoices.of(problem, local_steps)
            in_time = points.lower <= delta * (1.0 + _ROUNDING)
            problem = at_points(problem, np.argmin(np.where(in_time, points.fixed_joules, np.inf), axis=0))
        return float(np.sum(problem.round_joules(local_steps, delta, downlink)))

    def problem_of(self, law: RoundsModel, message: str) -> ControlProblem:
        """Return the control problem with a law and the size of these messages."""
        low, high = self.problem.sparsity
        limits = _limits_of(message, low, max(low, min(high, self.most_sparsity)))
        size, downlink = self.sizes[message], self._downlink()
        return replace(self.problem, rounds=law, message=size, sparsity=limits, downlink=downlink)

    def _downlink(self) -> Downlink | Literal["free"]:
        """Return the server's choice with the size of its messages."""
        server = self.problem.server
        if server is None:
            return "free"
        limits = _limits_of(self.downlink_values, *server.sparsity)
        return replace(server, message=self.downlink_sizes[self.downlink_values], sparsity=limits)

    def learn_sizes(self, results: Sequence[PilotResult]) -> None:
        """Fit the sizes of the kinds that pilots have sent, and of those that were sent to them."""
        sent = [one for result in results for one in result.messages]
        received = [one for result in results for one in result.broadcasts]
        self.sizes |= _fitted(self.problem.parameters, sent, self._least_entry_bits)
        self.downlink_sizes |= _fitted(self.problem.parameters, received, self._least_downlink_entry_bits)

    def _least_entry_bits(self, kind: str) -> float:
        """Return the entry_bits that a law of the devices' messages needs for any plan."""
        low, _ = _limits_of(kind, *self.problem.sparsity)
        return least_entry_bits(low, LEAST_Q, batteries=self.problem.has_batteries)

    def _least_downlink_entry_bits(self, kind: str) -> float:
        """Return the same for the server's messages."""
        server = self.problem.server
        low, _ = _limits_of(kind, *(self.problem.sparsity if server is None else server.sparsity))
        return least_entry_bits(low, LEAST_Q, batteries=False)


def _limits_of(kind: str, low: float, high: float) -> tuple[float, float]:
    """Return the limits of the sparsity that messages of a kind are planned within."""
    return (max(low, min(COARSE_SPARSITY, high)), high) if MESSAGES[kind].coarse else (low, high)


def _fitted(
    parameters: int, observations: Sequence[MessageObservation], least_entry_bits_of: Callable[[str], float]
) -> dict[str, MessageSize]:
    """Return the law of each kind that was observed."""
    return {
        kind: fit_message_size(parameters, observations, least=least_entry_bits_of(kind)).laws[kind]
        for kind in dict.fromkeys(one.values for one in observations)
    }


def _usual_size(parameters: int, kind: str, least: float) -> MessageSize:
    """Return the law that the fit's prior has, by fitting it to itself."""
    points = [one for one in _PRIOR_SPARSITIES if one <= parameters] or [min(2.0, float(parameters))]
    usual = [MessageObservation(kind, one, usual_bits(parameters, kind, one)) for one in points if one >= 2.0]
    return fit_message_size(parameters, usual, least=least).laws[kind] if usual else MessageSize.formula_25(32)
