"""The tables of a scenario file as strict pydantic models. docs/scenario.md explains every key."""

from typing import Annotated

from pydantic import Field

from fewjoules.engine.models.architectures.base import MAX_CONTEXT, MAX_SIZES
from fewjoules.planner.problem import MAX_PARAMETERS, MAX_VALUE_BITS
from fewjoules.scenario.schema.base import Positive, Table
from fewjoules.scenario.schema.devices import DeviceTable, ProvenanceTable
from fewjoules.scenario.schema.limits import LimitsTable, SparsityTable, StepRangeTable
from fewjoules.scenario.schema.message_size import MessageSizeTable
from fewjoules.scenario.schema.processors import ClockTable, GpuTable, PointTable, VoltsTable
from fewjoules.scenario.schema.radios import RadioTable
from fewjoules.scenario.schema.recipe import RecipeMessageTable, RecipeOptimiserTable, RecipeTable
from fewjoules.scenario.schema.rounds import (
    BoundTable,
    PaperIntervalsTable,
    PaperTable,
    PowerLawIntervalsTable,
    PowerLawTable,
    RoundsTable,
)
from fewjoules.scenario.schema.training import TrainingTable


class ModelTable(Table):
    """[model]."""

    parameters: Annotated[int, Field(ge=1, le=MAX_PARAMETERS)] | None = None
    architecture: str | None = None
    width: Annotated[int, Field(ge=1, le=MAX_SIZES["width"])] | None = None
    depth: Annotated[int, Field(ge=1, le=MAX_SIZES["depth"])] | None = None
    heads: Annotated[int, Field(ge=1, le=MAX_SIZES["heads"])] | None = None
    context: Annotated[int, Field(ge=1, le=MAX_CONTEXT)] | None = None
    flops_per_sample: Positive | None = None
    value_bits: Annotated[int, Field(ge=2, le=MAX_VALUE_BITS)] = 32
    message_size: MessageSizeTable | None = None
    downlink_message_size: MessageSizeTable | None = None

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the network that the file states."""
        return {name: value for name in MAX_SIZES if (value := getattr(self, name)) is not None}


class DevicesTable(Table):
    """The devices of a file alone, and what it says of the model."""

    device: Annotated[list[DeviceTable], Field(min_length=1)]
    model: ModelTable = ModelTable()


class ScenarioTables(Table):
    """The whole file."""

    version: Annotated[int, Field(ge=1, le=1)] = 1
    model: ModelTable
    rounds: RoundsTable | None = None
    limits: LimitsTable
    device: Annotated[list[DeviceTable], Field(min_length=1)]
    training: TrainingTable | None = None
    recipe: RecipeTable | None = None


_ROUNDS: dict[tuple[str, ...], type[Table]] = {
    ("rounds", "paper"): PaperTable,
    ("rounds", "bound"): BoundTable,
    ("rounds", "power-law"): PowerLawTable,
    ("rounds", "paper", "intervals"): PaperIntervalsTable,
    ("rounds", "power-law", "intervals"): PowerLawIntervalsTable,
}
_LIMITS: dict[tuple[str, ...], type[Table]] = {
    ("limits",): LimitsTable,
    ("limits", "sparsity"): SparsityTable,
    ("limits", "downlink_sparsity", "range"): SparsityTable,
    ("limits", "local_steps", "range"): StepRangeTable,
}
_MESSAGE_SIZES: dict[tuple[str, ...], type[Table]] = {
    ("message_size",): MessageSizeTable,
    ("downlink_message_size",): MessageSizeTable,
}
TABLES: dict[tuple[str, ...], type[Table]] = {
    (): ScenarioTables,
    ("model",): ModelTable,
    **{("model", *key): table for key, table in _MESSAGE_SIZES.items()},
    **_ROUNDS,
    **_LIMITS,
    ("device",): DeviceTable,
    ("device", "radio"): RadioTable,
    ("device", "gpu"): GpuTable,
    ("device", "gpu", "core_hertz", "range"): ClockTable,
    ("device", "gpu", "core_volts", "line"): VoltsTable,
    ("device", "point"): PointTable,
    ("device", "provenance", "kinds"): ProvenanceTable,
    ("training",): TrainingTable,
    ("recipe",): RecipeTable,
    ("recipe", "optimiser"): RecipeOptimiserTable,
    ("recipe", "message"): RecipeMessageTable,
    **{("recipe", *key): table for key, table in (_ROUNDS | _LIMITS | _MESSAGE_SIZES).items()},
}
