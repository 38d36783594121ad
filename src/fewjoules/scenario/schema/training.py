"""[training] of a scenario file: the options of a run and where its data come from. docs/scenario.md explains each."""

from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pydantic

from fewjoules.datasets.shapes import DATASETS
from fewjoules.engine.algorithm.declared import Choice, Flag, MetricTarget, Number, Rounds, Whole
from fewjoules.engine.algorithm.options import TrainingOptions, overridden
from fewjoules.errors import InvalidInputError
from fewjoules.measurements import read_columns
from fewjoules.own_code import is_own
from fewjoules.physics.availability import Availability
from fewjoules.planner.recipe import Recipe
from fewjoules.scenario.folder import ScenarioFolder
from fewjoules.scenario.schema.base import Positive, Table

OTHERWISE = ("local_steps", "sparsity", "failures", "availability")  # given by a plan or by a file of their own
_PARTITION_KEYS = {"dirichlet_concentration": "dirichlet", "shards_per_client": "shards", "partition_file": "file"}
OPTIONS = {option.name: option for option in fields(TrainingOptions) if option.name not in OTHERWISE}


def option_type(option: "Field[Any]") -> Any:
    """Return the type of an option in a file, with its limits."""
    check = option.metadata["check"]
    kind: Any
    if isinstance(check, Number):
        limits: dict[str, Any] = {"gt" if check.above else "ge": check.low}
        limits |= {"lt" if check.below else "le": check.high} if check.high < float("inf") else {}
        kind = Annotated[float, pydantic.Field(**limits)]
    elif isinstance(check, Whole):
        kind = Annotated[int, pydantic.Field(ge=check.low, le=check.high)]
    elif isinstance(check, Choice):
        kind = Literal[check.names]
    elif isinstance(check, Flag):
        kind = bool
    elif isinstance(check, MetricTarget):
        kind = Annotated[str, pydantic.AfterValidator(_metric_target)]
    else:
        assert isinstance(check, Rounds)
        kind = list[Annotated[int, pydantic.Field(ge=1, le=check.high)]]
    return kind | Literal["all"] if option.name == "batch_size" else kind


def _in_file(option: "Field[Any]") -> tuple[Any, Any]:
    """Return type and default of an option; options that only training requires may be missing from a file."""
    required = option.default is MISSING and option.default_factory is MISSING
    if required or (option.metadata["optional"] and option.default is None):
        return option_type(option) | None, None
    return option_type(option), list(option.default) if isinstance(option.default, tuple) else option.default


def _metric_target(text: str) -> str:
    try:
        MetricTarget().require("target_metric", text)
    except InvalidInputError as error:
        raise ValueError("must be a metric, >= or <=, and a number, such as 'f1 >= 0.8'") from error
    return text


def _known_data(name: str) -> str:
    if name not in DATASETS and not is_own(name):
        raise ValueError(f"must be {', '.join(map(repr, DATASETS))} or 'package.module:function'")
    return name


if TYPE_CHECKING:

    class OptionsTable(Table):
        """Every option of ``TrainingOptions`` that a file may set."""

        def __getattr__(self, name: str) -> Any:
            """Return an option, as declared in ``TrainingOptions``."""
else:
    OptionsTable = pydantic.create_model(
        "OptionsTable", __base__=Table, **{name: _in_file(option) for name, option in OPTIONS.items()}
    )


class TrainingTable(OptionsTable):
    """[training]: the options of a run that do not come from a plan."""

    data: Annotated[str, pydantic.AfterValidator(_known_data)] | None = None
    partition: Literal["iid", "dirichlet", "shards", "writers", "roles", "file"] = "iid"
    dirichlet_concentration: Positive | None = None
    shards_per_client: Annotated[int, pydantic.Field(ge=1, le=10_000_000)] | None = None
    partition_file: str | None = None
    data_memory_gib: Annotated[float, pydantic.Field(ge=0.0)] | None = None
    failure_trace: str | None = None
    availability_trace: str | None = None
    availability_period_seconds: Positive | None = None

    def check(self) -> None:
        """Refuse keys that contradict each other."""
        for key, partition in _PARTITION_KEYS.items():
            given = getattr(self, key)
            if (given is not None) != (self.partition == partition):
                wanted = "is missing" if given is None else "is unused"
                raise InvalidInputError(
                    f"training.{key} {wanted}: {key} and partition = {partition!r} go together, "
                    f"got partition = {self.partition!r}"
                )
        if self.availability_period_seconds is not None and self.availability_trace is None:
            raise InvalidInputError("training.availability_period_seconds needs training.availability_trace")
        try:
            TrainingOptions.of(**{"learning_rate": 1.0} | self.stated(), local_steps=1, sparsity=[1.0], rounds=1)
        except InvalidInputError as error:
            raise InvalidInputError(f"training.{error}") from error

    def require(self, key: str) -> Any:
        """Return a key that training needs, or refuse a file without it."""
        value = getattr(self, key)
        if value is None:
            raise InvalidInputError(f"training.{key} is missing")
        return value

    def options(self, folder: ScenarioFolder, recipe: Recipe | None = None) -> dict[str, Any]:
        """Return the keyword arguments of ``TrainingOptions.of`` that the file gives; those of a recipe win."""
        if recipe is None:
            self.require("learning_rate")
        failures = (
            {}
            if self.failure_trace is None
            else _read_failures(folder.file("training.failure_trace", self.failure_trace))
        )
        chosen = {} if recipe is None else recipe.options()
        return overridden(self.stated(), chosen) | {"failures": failures} | self._availability(folder)

    def _availability(self, folder: ScenarioFolder) -> dict[str, Any]:
        if self.availability_trace is None:
            return {}
        path = folder.file("training.availability_trace", self.availability_trace)
        return {"availability": Availability.read(path, period_seconds=self.availability_period_seconds)}

    def stated(self) -> dict[str, Any]:
        """Return the options that the file states, without the rounds."""
        traces = {"failure_trace", "availability_trace", "availability_period_seconds"}
        own = {"data", "data_memory_gib", "partition", *_PARTITION_KEYS, *traces, "rounds"}
        return plain_options(self.model_dump(exclude=own, exclude_unset=True))


def plain_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return options of a file as ``TrainingOptions`` takes them."""
    changed = dict(given)
    if given.get("batch_size") == "all":
        changed["batch_size"] = None
    if "decay_rounds" in given:
        changed["decay_rounds"] = tuple(given["decay_rounds"])
    return changed


def _read_failures(path: Path) -> dict[int, set[int]]:
    """Read lost uploads from the columns ``round`` (from 1) and ``device`` (from 0)."""
    columns = read_columns(path, ("round", "device"), low=0.0)
    failures: dict[int, set[int]] = {}
    for number, device in zip(columns["round"], columns["device"], strict=True):
        if number != int(number) or device != int(device) or number < 1:
            raise InvalidInputError(
                f"{path}: round must be a whole number from 1 and device one from 0, got {number:g} and {device:g}"
            )
        failures.setdefault(int(number), set()).add(int(device))
    return failures
