"""Scenario files: a fleet, a model, a rounds model and limits in TOML. docs/scenario.md lists every key."""

import tomllib
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fewjoules.convergence.intervals import LawIntervals
from fewjoules.convergence.rounds import RoundsModel
from fewjoules.datasets.shapes import CLASSES, SHAPES
from fewjoules.engine.models.architectures import ARCHITECTURES, Images
from fewjoules.engine.models.architectures.base import is_own
from fewjoules.errors import InvalidInputError
from fewjoules.files import read_text
from fewjoules.physics.fleet import COSTS, MAX_DEVICES, Fleet
from fewjoules.planner.problem import ControlProblem
from fewjoules.provenance import KINDS, MARKS
from fewjoules.scenario.folder import ScenarioFolder
from fewjoules.scenario.schema.devices import DeviceTable, RadioTable
from fewjoules.scenario.schema.sentences import validate
from fewjoules.scenario.schema.tables import ModelTable, ScenarioTables
from fewjoules.scenario.schema.training import TrainingTable

MAX_SCENARIO_BYTES = 64 * 2**20
FREE_UNLESS_STATED = (  # joules of devices that do not state them, in a fleet where others do
    "joules_per_sample",
    "downlink_joules_per_bit",
    "codec_joules_per_parameter",
    "codec_joules_per_entry",
)
STATISTIC_BITS = 32  # bits of a running mean or variance, all of which every message carries


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One [[device]] entry: ``count`` equal devices."""

    name: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A checked scenario. ``text`` is the file as it was read; files that it names are looked up in ``folder``.

    They must lie below it unless ``allow_outside``. ``statistics`` is how many numbers every message carries besides
    the update. ``rounds_intervals`` are those of the constants of the rounds law, if the file gives any.
    """

    name: str
    text: str
    folder: Path
    fleet: Fleet
    groups: tuple[Group, ...]
    rounds: RoundsModel
    rounds_intervals: LawIntervals | None
    parameters: int
    statistics: int
    architecture: str | None
    value_bits: int
    sparsity: tuple[float, float]
    local_steps: tuple[int, ...] | range
    round_seconds: float | None
    training: TrainingTable | None
    allow_outside: bool = False

    @property
    def files(self) -> ScenarioFolder:
        """Where files that the scenario names are looked up."""
        return ScenarioFolder(self.folder, self.allow_outside)

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
        try:
            return ControlProblem(
                fleet=self.fleet.with_message_bits(STATISTIC_BITS * self.statistics) if self.statistics else self.fleet,
                rounds=self.rounds,
                parameters=self.parameters,
                value_bits=self.value_bits,
                sparsity=self.sparsity,
                local_steps=self.local_steps,
                round_seconds=self.round_seconds,
            )
        except InvalidInputError as error:
            raise InvalidInputError(f"{self.name}: {error}") from error

    @classmethod
    def from_text(cls, text: str, name: str, folder: Path, *, allow_outside: bool = False) -> "Scenario":
        """Make a scenario from the text of a file; ``name`` names the file in errors."""
        try:
            tables = validate(ScenarioTables, _parse(text))
            scenario = cls._from_tables(tables, name, text, ScenarioFolder(folder, allow_outside))
            _require_times(tables, scenario.round_seconds)
            _require_downlinks(tables)
        except InvalidInputError as error:
            raise InvalidInputError(f"{name}: {error}") from error
        return scenario

    @classmethod
    def _from_tables(cls, tables: ScenarioTables, name: str, text: str, files: ScenarioFolder) -> "Scenario":
        limits, training = tables.limits, tables.training
        if training is not None:
            training.check()
        parameters, statistics = _sizes(tables.model, training, files.path)
        return cls(
            name=name,
            text=text,
            folder=files.path,
            fleet=_fleet(tables.device, files),
            groups=tuple(Group(name=d.name, count=d.count) for d in tables.device),
            rounds=tables.rounds.model(),
            rounds_intervals=tables.rounds.law_intervals(),
            parameters=parameters,
            statistics=statistics,
            architecture=tables.model.architecture,
            value_bits=tables.model.value_bits,
            sparsity=(limits.sparsity.min, limits.sparsity.max),
            local_steps=limits.choices(),
            round_seconds=limits.round_seconds,
            training=training,
            allow_outside=files.allow_outside,
        )


def _parse(text: str) -> dict[str, Any]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"must be TOML ({error})") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError("must be TOML; a number or the nesting is too large") from error
    devices = data.get("device")
    for number, device in enumerate(devices if isinstance(devices, list) else [], start=1):
        if isinstance(device, dict):
            device.setdefault("name", f"device-{number}")
    return data


def _sizes(model: ModelTable, training: TrainingTable | None, folder: Path) -> tuple[int, int]:
    """Return the numbers of parameters and statistics of the model."""
    parameters, architecture = model.parameters, model.architecture
    if (parameters is None) == (architecture is None):
        given = "both" if parameters is not None else "neither"
        raise InvalidInputError(f"model needs exactly one of parameters and architecture, got {given}")
    if parameters is not None:
        return parameters, 0
    assert architecture is not None
    own = is_own(architecture)
    if not own and architecture not in ARCHITECTURES:
        raise InvalidInputError(
            f"model.architecture must be one of {', '.join(ARCHITECTURES)} or 'package.module:function', "
            f"got {architecture!r}"
        )
    data = (training and training.data) or (None if own else ARCHITECTURES[architecture].usual_data)
    if data is None:
        raise InvalidInputError(
            f"model.architecture = {architecture!r} needs training.data, such as data = 'digits' in [training]"
        )
    images = Images(*SHAPES[data], CLASSES)
    return _sizes_of_own(architecture, images, folder) if own else _known_sizes(architecture, images, data)


def _known_sizes(architecture: str, images: Images, data: str) -> tuple[int, int]:
    known = ARCHITECTURES[architecture]
    if min(images.height, images.width) < known.smallest_side:
        raise InvalidInputError(
            f"model.architecture = {architecture!r} needs larger images than training.data = {data!r}"
        )
    return known.parameters(images), known.statistics


def _sizes_of_own(architecture: str, images: Images, folder: Path) -> tuple[int, int]:
    """Build the network to count its numbers; this loads PyTorch and runs the user's function."""
    from fewjoules.engine.models.networks import build, parameter_count, statistics_count

    try:
        network = build(architecture, **asdict(images), seed=0, folder=folder)
    except InvalidInputError as error:
        raise InvalidInputError(f"model.{error}") from error
    return parameter_count(network), statistics_count(network)


def _fleet(devices: list[DeviceTable], folder: ScenarioFolder) -> Fleet:
    total = sum(device.count for device in devices)
    if not 1 <= total <= MAX_DEVICES:
        raise InvalidInputError(f"the counts of all devices must sum to 1 to {MAX_DEVICES}, got {total}")
    rates: dict[RadioTable, float] = {}
    costs = []
    for device in devices:
        try:
            costs.append(device.costs(folder, rates))
        except InvalidInputError as error:
            raise InvalidInputError(f"device {device.name!r}: {error}") from error
    counts = [device.count for device in devices]

    def column(key: str) -> np.ndarray[Any, np.dtype[np.float64]] | None:
        values = [cost[key] for cost in costs]
        if key in FREE_UNLESS_STATED and any(values):
            values = [value or 0.0 for value in values]
        if any(value is None for value in values):
            return None
        return np.repeat(np.array(values, dtype=np.float64), counts)

    names = [device.name for device in devices for _ in range(device.count)]
    laws = [None if device.radio is None else device.radio.fading_law(folder, rates) for device in devices]
    fading = [law for law, count in zip(laws, counts, strict=True) for _ in range(count)]
    columns = {key: column(key) for key in COSTS}
    marks = [device.marks() for device in devices]
    provenance = {
        kind: np.repeat(np.array([MARKS.index(one[kind]) for one in marks], np.uint8), counts) for kind in KINDS
    }
    return Fleet(**columns, names=names, fading=fading, provenance=provenance)  # type: ignore[arg-type]


def device_costs(path: str | Path) -> dict[str, float]:
    """Return the known costs of the device of a file with one [[device]] entry, as keyword arguments of ``Fleet``."""
    file = Path(path)
    try:
        devices = _parse(read_text(file, max_bytes=MAX_SCENARIO_BYTES)).get("device")
        if not isinstance(devices, list) or len(devices) != 1:
            raise InvalidInputError("must have exactly one [[device]] entry")
        table = validate(DeviceTable, devices[0])
        costs = table.costs(ScenarioFolder(file.parent, allow_outside=False), {})
    except InvalidInputError as error:
        raise InvalidInputError(f"{file}: {error}") from error
    return {name: float(value) for name, value in costs.items() if value is not None and value != float("inf")}


def _require_downlinks(tables: ScenarioTables) -> None:
    """Refuse to charge the downlink by request if a device does not state its cost."""
    if tables.training is None or tables.training.downlink != "charged":
        return
    for device in tables.device:
        stated = device.radio is not None and device.radio.downlink_watts is not None
        if not stated and device.downlink_joules_per_bit is None:
            raise InvalidInputError(
                f"device {device.name!r}: downlink_joules_per_bit is missing; training.downlink = 'charged' needs it"
            )


def _require_times(tables: ScenarioTables, round_seconds: float | None) -> None:
    """Refuse a deadline if times are missing, and name the first device without them."""
    if round_seconds is None:
        return
    for device in tables.device:
        for key, known in (
            ("seconds_per_bit", device.radio is not None or device.seconds_per_bit is not None),
            ("seconds_per_step", device.gpu is not None or device.seconds_per_step is not None),
        ):
            if not known:
                raise InvalidInputError(
                    f"device {device.name!r}: {key} is missing, but limits.round_seconds = {round_seconds:g} needs it"
                )
