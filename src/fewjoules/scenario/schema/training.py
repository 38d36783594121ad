"""[training] of a scenario file. docs/scenario.md explains every key."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from fewjoules.errors import InvalidInputError
from fewjoules.measurements import read_columns
from fewjoules.scenario.schema.base import Positive, Table

Data = Literal["digits", "mnist", "fashion-mnist", "cifar10", "qmnist"]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]


class TrainingTable(Table):
    """[training]: everything about a run that the plan does not say."""

    data: Data | None = None
    partition: Literal["iid", "dirichlet", "shards", "writers"] = "iid"
    dirichlet_concentration: Positive | None = None
    shards_per_client: Count | None = None
    learning_rate: Annotated[float, Field(gt=0.0, le=3e38)] | None = None
    schedule: Literal["constant", "cosine", "step"] = "constant"
    decay_rounds: list[Count] = Field(default_factory=list)
    decay_factor: Positive = 0.1
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    batch_size: Count | Literal["all"] = 32
    batch_growth: Annotated[float, Field(ge=1.0)] = 1.0
    error_feedback: bool = True
    compressor: Literal["top-k", "random-k", "ternary", "qsgd", "none"] = "top-k"
    values: Literal["float32", "float16", "bfloat16", "int8", "qsgd", "ternary"] = "float32"
    levels: Annotated[int, Field(ge=1, le=127)] = 15
    weighting: Literal["equal", "samples"] = "equal"
    participation: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    failure_probability: Share = 0.0
    failure_trace: str | None = None
    downlink: Literal["free", "charged"] = "free"
    channel: Literal["average", "drawn"] = "average"
    coherence_blocks: Annotated[int, Field(ge=2, le=1_000_000)] = 10
    target_accuracy: Share | None = None
    rounds: Count | None = None
    energy_budget_joules: Positive | None = None
    time_budget_seconds: Positive | None = None
    evaluate_every: Count | None = None
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0

    def check(self) -> None:
        """What one key asks of another."""
        for key, partition in (("dirichlet_concentration", "dirichlet"), ("shards_per_client", "shards")):
            given = getattr(self, key)
            if (given is not None) != (self.partition == partition):
                wanted = "is missing" if given is None else "is unused"
                raise InvalidInputError(
                    f"training.{key} {wanted}: {key} and partition = {partition!r} go together, "
                    f"got partition = {self.partition!r}"
                )
        if (self.schedule == "step") != bool(self.decay_rounds):
            raise InvalidInputError(
                f"training.decay_rounds and schedule = 'step' go together, "
                f"got {self.decay_rounds} and {self.schedule!r}"
            )

    def require(self, key: str) -> Any:
        """A key that training cannot do without."""
        value = getattr(self, key)
        if value is None:
            raise InvalidInputError(f"training.{key} is missing")
        return value

    def options(self, folder: Path) -> dict[str, Any]:
        """Keyword arguments of ``TrainingOptions`` that do not come from a plan."""
        own = {"data", "partition", "dirichlet_concentration", "shards_per_client", "failure_trace", "rounds"}
        given = self.model_dump(exclude=own)
        given["learning_rate"] = self.require("learning_rate")
        given["decay_rounds"] = tuple(self.decay_rounds)
        given["batch_size"] = None if self.batch_size == "all" else self.batch_size
        given["failures"] = {} if self.failure_trace is None else _read_failures(folder / self.failure_trace)
        return given


def _read_failures(path: Path) -> dict[int, set[int]]:
    """Columns ``round`` (from 1) and ``device`` (from 0): whose upload is lost when."""
    columns = read_columns(path, ("round", "device"), low=0.0)
    failures: dict[int, set[int]] = {}
    for number, device in zip(columns["round"], columns["device"], strict=True):
        if number != int(number) or device != int(device) or number < 1:
            raise InvalidInputError(
                f"{path}: round must be a whole number from 1 and device one from 0, got {number:g} and {device:g}"
            )
        failures.setdefault(int(number), set()).add(int(device))
    return failures
