"""The tables of a scenario file as strict pydantic models. docs/scenario.md explains every key."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from fewjoules.convergence.intervals import FittedLaw, LawIntervals
from fewjoules.convergence.rounds import BoundRounds, PaperRounds, PowerLawRounds
from fewjoules.errors import InvalidInputError
from fewjoules.physics.message_size import MAX_ENTRY_BITS, MAX_FIXED_BITS, MAX_SCALE, MessageSize
from fewjoules.planner.problem import MAX_LOCAL_STEPS, MAX_PARAMETERS, MAX_VALUE_BITS
from fewjoules.scenario.schema.base import NonNegative, Positive, Table
from fewjoules.scenario.schema.devices import DeviceTable, ProvenanceTable
from fewjoules.scenario.schema.processors import ClockTable, GpuTable, PointTable, VoltsTable
from fewjoules.scenario.schema.radios import RadioTable
from fewjoules.scenario.schema.training import TrainingTable

AtLeastOne = Annotated[float, Field(ge=1.0)]
Steps = Annotated[int, Field(ge=1, le=MAX_LOCAL_STEPS)]


class MessageSizeTable(Table):
    """model.message_size and model.downlink_message_size."""

    fixed_bits: Annotated[float, Field(ge=0.0, le=MAX_FIXED_BITS)] = 0.0
    scale: Annotated[float, Field(gt=0.0, le=MAX_SCALE)] = 1.0
    entry_bits: Annotated[float, Field(ge=-MAX_ENTRY_BITS, le=MAX_ENTRY_BITS)]

    def law(self) -> MessageSize:
        """The law of messages."""
        return MessageSize(**self.model_dump())


class ModelTable(Table):
    """[model]."""

    parameters: Annotated[int, Field(ge=1, le=MAX_PARAMETERS)] | None = None
    architecture: str | None = None
    flops_per_sample: Positive | None = None
    value_bits: Annotated[int, Field(ge=2, le=MAX_VALUE_BITS)] = 32
    message_size: MessageSizeTable | None = None
    downlink_message_size: MessageSizeTable | None = None


Ends = Annotated[list[float], Field(min_length=2, max_length=2)]


class PaperIntervalsTable(Table):
    """rounds.intervals of kind "paper": [low, high] of each constant."""

    alpha: Ends | None = None
    beta: Ends | None = None


class PowerLawIntervalsTable(Table):
    """rounds.intervals of kind "power-law": [low, high] of each constant."""

    tau: Ends | None = None
    c: Ends | None = None
    a: Ends | None = None
    q: Ends | None = None


class PaperTable(Table):
    """[rounds] of kind "paper"."""

    kind: Literal["paper"]
    alpha: NonNegative
    beta: NonNegative
    intervals: PaperIntervalsTable | None = None
    correlations: list[float] | None = None
    downlink_weight: NonNegative | None = None

    def model(self) -> PaperRounds:
        """The rounds model."""
        return PaperRounds(alpha=self.alpha, beta=self.beta)

    def law_intervals(self) -> LawIntervals | None:
        """The intervals that the file gives."""
        return _checked_intervals(self.model(), self.intervals, self.correlations)


class BoundTable(Table):
    """[rounds] of kind "bound"."""

    kind: Literal["bound"]
    smoothness: Positive
    sigma: Positive
    gradient_bound: Positive
    initial_gap: Positive
    batch: Annotated[float, Field(ge=1.0)]
    epsilon: Positive
    form: Literal["exact", "printed"] = "exact"
    downlink_weight: NonNegative | None = None

    def model(self) -> BoundRounds:
        """The rounds model."""
        return BoundRounds(**self.model_dump(exclude={"kind", "downlink_weight"}))

    def law_intervals(self) -> LawIntervals | None:
        """Constants of the bound are known or guessed, not fitted."""
        return None


class PowerLawTable(Table):
    """[rounds] of kind "power-law"."""

    kind: Literal["power-law"]
    tau: Positive
    c: NonNegative
    a: float
    q: Positive
    intervals: PowerLawIntervalsTable | None = None
    correlations: list[float] | None = None
    downlink_weight: NonNegative | None = None

    def model(self) -> PowerLawRounds:
        """The rounds model."""
        return PowerLawRounds(tau=self.tau, c=self.c, a=self.a, q=self.q)

    def law_intervals(self) -> LawIntervals | None:
        """The intervals that the file gives."""
        return _checked_intervals(self.model(), self.intervals, self.correlations)


def _checked_intervals(law: FittedLaw, table: Table | None, correlations: list[float] | None) -> LawIntervals | None:
    """Refuse intervals that do not hold their constant or leave its range."""
    given = {} if table is None else table.model_dump(exclude_none=True)
    if not given and correlations is None:
        return None
    intervals = {name: (low, high) for name, (low, high) in given.items()}
    try:
        for name, ends in intervals.items():
            for end in ends:
                replace(law, **{name: end})
        return LawIntervals(law, intervals, correlations)
    except InvalidInputError as error:
        raise InvalidInputError(f"rounds.intervals: {error}") from error


class SparsityTable(Table):
    """limits.sparsity and limits.downlink_sparsity."""

    min: AtLeastOne
    max: AtLeastOne


class StepRangeTable(Table):
    """limits.local_steps as a range: every whole number from min to max."""

    min: Steps
    max: Steps


class LimitsTable(Table):
    """[limits]; ``local_steps`` is {min, max} or a list."""

    sparsity: SparsityTable
    local_steps: Annotated[
        Annotated[StepRangeTable, Tag("range")] | Annotated[list[Steps], Field(min_length=1), Tag("list")],
        Discriminator(lambda value: "list" if isinstance(value, list) else "range"),
    ]
    round_seconds: Positive | None = None
    downlink_sparsity: (
        Annotated[
            Annotated[AtLeastOne, Tag("number")] | Annotated[SparsityTable, Tag("range")],
            Discriminator(lambda given: "range" if isinstance(given, dict | SparsityTable) else "number"),
        ]
        | None
    ) = None

    def downlink_limits(self) -> tuple[float, float] | None:
        """Return the limits of the server's sparsity; None where the file does not give them."""
        given = self.downlink_sparsity
        if not isinstance(given, SparsityTable):
            return None if given is None else (given, given)
        if given.min > given.max:
            raise InvalidInputError(
                f"limits.downlink_sparsity.min must be at most max = {given.max:g}, got {given.min:g}"
            )
        return given.min, given.max

    def choices(self) -> tuple[int, ...] | range:
        """Return every H that may be chosen."""
        steps = self.local_steps
        if isinstance(steps, list):
            return tuple(steps)
        if steps.min > steps.max:
            raise InvalidInputError(f"limits.local_steps.min must be at most max = {steps.max}, got {steps.min}")
        return range(steps.min, steps.max + 1)


class DevicesTable(Table):
    """The devices of a file alone, and what it says of the model."""

    device: Annotated[list[DeviceTable], Field(min_length=1)]
    model: ModelTable = ModelTable()


class ScenarioTables(Table):
    """The whole file."""

    version: Annotated[int, Field(ge=1, le=1)] = 1
    model: ModelTable
    rounds: PaperTable | BoundTable | PowerLawTable = Field(discriminator="kind")
    limits: LimitsTable
    device: Annotated[list[DeviceTable], Field(min_length=1)]
    training: TrainingTable | None = None


TABLES: dict[tuple[str, ...], type[Table]] = {
    (): ScenarioTables,
    ("model",): ModelTable,
    ("model", "message_size"): MessageSizeTable,
    ("model", "downlink_message_size"): MessageSizeTable,
    ("rounds", "paper"): PaperTable,
    ("rounds", "bound"): BoundTable,
    ("rounds", "power-law"): PowerLawTable,
    ("rounds", "paper", "intervals"): PaperIntervalsTable,
    ("rounds", "power-law", "intervals"): PowerLawIntervalsTable,
    ("limits",): LimitsTable,
    ("limits", "sparsity"): SparsityTable,
    ("limits", "downlink_sparsity", "range"): SparsityTable,
    ("limits", "local_steps", "range"): StepRangeTable,
    ("device",): DeviceTable,
    ("device", "radio"): RadioTable,
    ("device", "gpu"): GpuTable,
    ("device", "gpu", "core_hertz", "range"): ClockTable,
    ("device", "gpu", "core_volts", "line"): VoltsTable,
    ("device", "point"): PointTable,
    ("device", "provenance", "kinds"): ProvenanceTable,
    ("training",): TrainingTable,
}
