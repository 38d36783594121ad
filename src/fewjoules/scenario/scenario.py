"""Scenario files: a fleet, a model, a rounds model and limits in TOML. docs/scenario.md lists every key."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fewjoules.convergence.intervals import LawIntervals
from fewjoules.convergence.participation import USUAL_PARTICIPATION_WEIGHT
from fewjoules.convergence.rounds import RoundsModel
from fewjoules.engine.algorithm.participation import participants_of
from fewjoules.errors import InvalidInputError
from fewjoules.files import parse_toml, read_text
from fewjoules.physics.fleet import MAX_DEVICES, Fleet
from fewjoules.physics.message_size import MessageSize
from fewjoules.physics.points import OperatingPoints
from fewjoules.planner.downlink import USUAL_WEIGHT, Downlink
from fewjoules.planner.partial import with_participants
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.recipe import Recipe
from fewjoules.provenance import KINDS, MARKS
from fewjoules.scenario.costs import cost_columns
from fewjoules.scenario.folder import ScenarioFolder
from fewjoules.scenario.needed_costs import require_downlinks, require_times
from fewjoules.scenario.network import flops_per_sample, sizes
from fewjoules.scenario.planned_fleet import needs_batch, planned_fleet
from fewjoules.scenario.profiles import with_profiles
from fewjoules.scenario.schema.devices import DeviceTable
from fewjoules.scenario.schema.processors import StepCosts
from fewjoules.scenario.schema.radios import Costs, RadioTable
from fewjoules.scenario.schema.recipe import RecipeSearch
from fewjoules.scenario.schema.rounds import law_fields
from fewjoules.scenario.schema.sentences import validate
from fewjoules.scenario.schema.tables import DevicesTable, ScenarioTables
from fewjoules.scenario.schema.training import TrainingTable

MAX_SCENARIO_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One [[device]] entry: ``count`` equal devices."""

    name: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A scenario file that was read and checked; make one by ``from_toml``, ``from_text`` or ``embedded``.

    Args:
        name: Name of the file, for messages.
        text: The file as it was read.
        folder: Where files that it names are looked up; they must lie below it unless ``allow_outside``.
        fleet: Costs of all devices.
        groups: Name and number of devices of each [[device]].
        rounds: The rounds law; None in a file without [rounds].
        rounds_intervals: Intervals of the law's constants, if the file gives any.
        parameters: Size of the model.
        statistics: How many numbers every message carries besides the update.
        architecture: Name of the network, if the file has one.
        architecture_sizes: What the file states of the network's sizes.
        context: Characters that a network for text sees.
        value_bits: Bits of a value in formula (25) of [LI21].
        message_size: The law of the devices' messages, in place of formula (25).
        downlink_message_size: The law of the server's messages.
        sparsity: Limits (min, max).
        local_steps: All H to choose from.
        round_seconds: Deadline of a round.
        downlink_sparsity: Limits of the server's sparsity.
        downlink_weight: How much the server's sparsity slows training down.
        training: The [training] table.
        allow_outside: Whether files may lie outside ``folder``.
        law_participation: Fraction of devices in each round with which the law was measured.
        participation_weight: How much partial participation slows training down.
        recipe: Optimiser and messages of [recipe].
        recipe_fields: What the recipe plans with in place of fields of the same names.
        recipe_search: What the file tells of how the recipe was found.

    Examples:
        >>> fj.solve(fj.Scenario.from_toml("fleet.toml").problem())
    """

    name: str
    text: str
    folder: Path
    fleet: Fleet
    groups: tuple[Group, ...]
    rounds: RoundsModel | None
    rounds_intervals: LawIntervals | None
    parameters: int
    statistics: int
    architecture: str | None
    architecture_sizes: Mapping[str, int]
    context: int | None
    value_bits: int
    message_size: MessageSize | None
    downlink_message_size: MessageSize | None
    sparsity: tuple[float, float]
    local_steps: tuple[int, ...] | range
    round_seconds: float | None
    downlink_sparsity: tuple[float, float] | None
    downlink_weight: float | None
    training: TrainingTable | None
    allow_outside: bool = False
    law_participation: float = 1.0
    participation_weight: float | None = None
    recipe: Recipe | None = None
    recipe_fields: Mapping[str, Any] = field(default_factory=dict)
    recipe_search: RecipeSearch = field(default_factory=RecipeSearch)

    @property
    def files(self) -> ScenarioFolder:
        """Where files that the scenario names are looked up."""
        return ScenarioFolder(self.folder, self.allow_outside)

    @property
    def participants(self) -> int:
        """How many devices take part in each round."""
        return participants_of(1.0 if self.training is None else self.training.participation, len(self.fleet))

    @classmethod
    def from_toml(cls, path: str | Path, *, allow_outside: bool = False) -> "Scenario":
        """Read a scenario file; an error is one sentence that names the file and the key.

        Files that it names must lie below its folder unless ``allow_outside``.
        """
        file = Path(path)
        text = read_text(file, max_bytes=MAX_SCENARIO_BYTES)
        return cls.from_text(text, str(path), file.parent, allow_outside=allow_outside)

    @classmethod
    def embedded(cls) -> "Scenario":
        """Return the scenario that ships with FewJoules: 12 devices in four radio groups."""
        text = resources.files("fewjoules.embedded").joinpath("four-groups.toml").read_text(encoding="utf-8")
        return cls.from_text(text, "four-groups (embedded)", Path())

    def problem(self) -> ControlProblem:
        """Return the control problem of the scenario; messages include the model's statistics."""
        if self.rounds is None:
            raise self._without_law("[rounds] is missing; only scheme fewest can be planned, by [recipe.rounds]")
        try:
            problem = ControlProblem(
                fleet=self._planned_fleet(),
                rounds=self.rounds,
                parameters=self.parameters,
                value_bits=self.value_bits,
                message=self.message_size,
                sparsity=self.sparsity,
                local_steps=self.local_steps,
                round_seconds=self.round_seconds,
                downlink=self._downlink(),
            )
            return self._with_participants(problem)
        except InvalidInputError as error:
            raise InvalidInputError(f"{self.name}: {error}") from error

    def _with_participants(self, problem: ControlProblem) -> ControlProblem:
        """Return the problem with as many devices in each round as [training] says."""
        weight = self.participation_weight
        return with_participants(
            problem,
            self.participants,
            weight=USUAL_PARTICIPATION_WEIGHT if weight is None else weight,
            law_participation=participants_of(self.law_participation, problem.devices) / problem.devices,
        )

    def recipe_problem(self) -> ControlProblem:
        """Return the control problem of the recipe: its rounds law, its limits and its batch."""
        return self.under_recipe().problem()

    def under_recipe(self) -> "Scenario":
        """Return the scenario as its recipe plans it."""
        if self.recipe is None:
            raise self._without_law("scheme fewest needs [recipe], which is missing; fewjoules tune finds one")
        training = self.training
        if "batch_size" in self.recipe.optimiser:
            batch = self.recipe.optimiser["batch_size"]
            training = (training or TrainingTable()).model_copy(update={"batch_size": batch or "all"})
        return replace(self, training=training, **self.recipe_fields)

    def _without_law(self, problem: str) -> InvalidInputError:
        if self.rounds is None and self.recipe is None:
            problem = "[rounds] and [recipe] are missing; fewjoules tune finds them"
        return InvalidInputError(f"{self.name}: {problem}")

    def _planned_fleet(self) -> Fleet:
        """Return the fleet with the model's statistics in every message and the samples of a batch in every step."""
        batch = None if self.training is None else self.training.batch_size
        if needs_batch(self.fleet) and not isinstance(batch, int):
            raise InvalidInputError(
                "joules_per_sample and seconds_per_sample need training.batch_size, a number, so that a plan knows how "
                f"many samples a step takes, got {'no [training]' if self.training is None else batch!r}"
            )
        return planned_fleet(self.fleet, self.statistics, batch if isinstance(batch, int) else None)

    def _downlink(self) -> Downlink | Literal["free"]:
        """Return the server's choice, where receiving costs something and is charged."""
        if not self.fleet.has_downlink or (self.training is not None and self.training.downlink == "free"):
            return "free"
        weight = USUAL_WEIGHT if self.downlink_weight is None else self.downlink_weight
        return Downlink(
            sparsity=self.downlink_sparsity or self.sparsity,
            weight=weight,
            value_bits=self.value_bits,
            message=self.downlink_message_size,
        )

    @classmethod
    def from_text(cls, text: str, name: str, folder: Path, *, allow_outside: bool = False) -> "Scenario":
        """Make a scenario from the text of a file; ``name`` names the file in errors."""
        try:
            files = ScenarioFolder(folder, allow_outside)
            tables = _tables(_parse(text), files)
            scenario = cls._from_tables(tables, name, text, files)
            require_times(tables)
            require_downlinks(tables)
        except InvalidInputError as error:
            raise InvalidInputError(f"{name}: {error}") from error
        return scenario

    @classmethod
    def _from_tables(cls, tables: ScenarioTables, name: str, text: str, files: ScenarioFolder) -> "Scenario":
        model, training, recipe = tables.model, tables.training, tables.recipe
        if training is not None:
            training.check()
        parameters, statistics = sizes(model, training, files.path)
        counted = any(device.joules_per_flop is not None for device in tables.device)
        flops = flops_per_sample(model, training, files.path) if counted else None
        return cls(
            name=name,
            text=text,
            folder=files.path,
            fleet=_fleet(tables.device, files, flops),
            groups=tuple(Group(name=d.name, count=d.count) for d in tables.device),
            **law_fields(tables.rounds),
            **tables.limits.fields(),
            parameters=parameters,
            statistics=statistics,
            architecture=model.architecture,
            architecture_sizes=model.sizes(),
            context=model.context,
            value_bits=model.value_bits,
            message_size=None if model.message_size is None else model.message_size.law(),
            downlink_message_size=None if model.downlink_message_size is None else model.downlink_message_size.law(),
            training=training,
            allow_outside=files.allow_outside,
            recipe=None if recipe is None else recipe.recipe(training),
            recipe_fields={} if recipe is None else recipe.scenario_fields(),
            recipe_search=RecipeSearch() if recipe is None else recipe.search(),
        )


def _parse(text: str) -> dict[str, Any]:
    data = parse_toml(text)
    devices = data.get("device")
    for number, device in enumerate(devices if isinstance(devices, list) else [], start=1):
        if isinstance(device, dict):
            device.setdefault("name", f"device-{number}")
    return data


def _tables(data: dict[str, Any], files: ScenarioFolder) -> ScenarioTables:
    """Return the checked tables, with the devices completed by their profiles."""
    devices, profile_keys = with_profiles(data.get("device"), files)
    tables = validate(ScenarioTables, data if devices is None else data | {"device": devices})
    for device, keys in zip(tables.device, profile_keys, strict=True):
        device.remember_profile(keys)
    return tables


def _fleet(devices: list[DeviceTable], folder: ScenarioFolder, flops_per_sample: float | None) -> Fleet:
    total = sum(device.count for device in devices)
    if not 1 <= total <= MAX_DEVICES:
        raise InvalidInputError(f"the counts of all devices must sum to 1 to {MAX_DEVICES}, got {total}")
    rates: dict[RadioTable, float] = {}
    costs = []
    for device in devices:
        try:
            costs.append(device.costs(folder, rates, flops_per_sample))
        except InvalidInputError as error:
            raise InvalidInputError(f"device {device.name!r}: {error}") from error
    counts = [device.count for device in devices]
    names = [device.name for device in devices for _ in range(device.count)]
    laws = [None if device.radio is None else device.radio.fading_law(folder, rates) for device in devices]
    fading = [law for law, count in zip(laws, counts, strict=True) for _ in range(count)]
    columns = {
        name: None if column is None else np.repeat(column, counts) for name, column in cost_columns(costs).items()
    }
    marks = [device.marks() for device in devices]
    provenance = {
        kind: np.repeat(np.array([MARKS.index(one[kind]) for one in marks], np.uint8), counts) for kind in KINDS
    }
    points = _operating_points(devices, costs)
    return Fleet(
        **columns,  # type: ignore[arg-type]
        names=names,
        fading=fading,
        provenance=provenance,
        operating_points=points,
    )


def _operating_points(devices: list[DeviceTable], costs: list[Costs]) -> OperatingPoints | None:
    """Return the points of a fleet in which a device has several to choose from; the others then have one."""
    every = [device.points() for device in devices]
    most = max(map(len, every))
    if most < 2:
        return None
    fields = StepCosts._fields
    single = [StepCosts(*(cost[name] or 0.0 for name in fields)) for cost in costs]
    tables = np.full((len(fields), most, len(devices)), np.inf)
    for number, points in enumerate(every):
        for place, point in enumerate(points or [single[number]]):
            tables[:, place, number] = point
    counts = [device.count for device in devices]
    return OperatingPoints.of(*np.repeat(tables, counts, axis=2))


class StatedDevice(NamedTuple):
    """The known costs of a device, as keyword arguments of ``Fleet``, and the mark of each kind of its joules."""

    costs: dict[str, float]
    marks: dict[str, str]


def read_device(path: str | Path) -> StatedDevice:
    """Return the device of a file with one [[device]] entry."""
    file = Path(path)
    try:
        data, files = _parse(read_text(file, max_bytes=MAX_SCENARIO_BYTES)), ScenarioFolder(file.parent)
        devices, profile_keys = with_profiles(data.get("device"), files)
        if not isinstance(devices, list) or len(devices) != 1:
            raise InvalidInputError("must have exactly one [[device]] entry")
        tables = validate(DevicesTable, {"device": devices, "model": data.get("model", {})})
        device = tables.device[0]
        device.remember_profile(profile_keys[0])
        costs = device.costs(files, {}, tables.model.flops_per_sample)
    except InvalidInputError as error:
        raise InvalidInputError(f"{file}: {error}") from error
    return StatedDevice({name: float(cost) for name, cost in costs.items() if cost is not None}, device.marks())
