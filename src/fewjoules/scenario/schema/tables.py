"""The tables of a scenario file as strict pydantic models. docs/scenario.md explains every key."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, Tag

from fewjoules.arrays import FloatArray
from fewjoules.convergence.intervals import FittedLaw, LawIntervals
from fewjoules.convergence.rounds import BoundRounds, PaperRounds, PowerLawRounds
from fewjoules.errors import InvalidInputError
from fewjoules.measurements import read_columns, read_header
from fewjoules.physics import channel
from fewjoules.physics.fading import Fading
from fewjoules.physics.fleet import MAX_DEVICES
from fewjoules.physics.gpu import GpuModel
from fewjoules.physics.radio import Radio
from fewjoules.planner.problem import MAX_LOCAL_STEPS, MAX_PARAMETERS, MAX_VALUE_BITS
from fewjoules.scenario.folder import ScenarioFolder
from fewjoules.scenario.schema.base import NonNegative, Positive, Table
from fewjoules.scenario.schema.training import TrainingTable

MAX_DECIBELS = 200.0
SnrDecibels = Annotated[float, Field(ge=-MAX_DECIBELS, le=MAX_DECIBELS)]
Steps = Annotated[int, Field(ge=1, le=MAX_LOCAL_STEPS)]
Costs = dict[str, float | None]


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("must hold printable characters only")
    return name


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]


class ModelTable(Table):
    """[model]."""

    parameters: Annotated[int, Field(ge=1, le=MAX_PARAMETERS)] | None = None
    architecture: str | None = None
    flops_per_sample: Positive | None = None
    value_bits: Annotated[int, Field(ge=2, le=MAX_VALUE_BITS)] = 32


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

    def model(self) -> BoundRounds:
        """The rounds model."""
        return BoundRounds(**self.model_dump(exclude={"kind"}))

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
    """limits.sparsity."""

    min: Annotated[float, Field(ge=1.0)]
    max: Annotated[float, Field(ge=1.0)]


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

    def choices(self) -> tuple[int, ...] | range:
        """Return every H that may be chosen."""
        steps = self.local_steps
        if isinstance(steps, list):
            return tuple(steps)
        if steps.min > steps.max:
            raise InvalidInputError(f"limits.local_steps.min must be at most max = {steps.max}, got {steps.min}")
        return range(steps.min, steps.max + 1)


class RadioTable(Table):
    """[device.radio]."""

    power_watts: Positive
    bandwidth_hertz: Positive
    mean_snr_db: SnrDecibels | None = None
    fading: Literal["none", "rayleigh", "rician", "nakagami", "trace"] = "rayleigh"
    rician_k: NonNegative | None = None
    nakagami_m: Annotated[float, Field(ge=0.5)] | None = None
    trace: str | None = None
    overhead_scale: Positive = 1.0
    overhead_bits: NonNegative = 0.0

    def radio(self, folder: ScenarioFolder, rates: dict["RadioTable", float]) -> Radio:
        """Return the radio at its average rate; ``rates`` caches the rates of equal radios."""
        if self not in rates:
            rates[self] = self.bandwidth_hertz * self._efficiency(folder)
        if not rates[self] > 0.0:
            raise InvalidInputError(f"radio: the average rate must be above 0 bits per second, got {rates[self]!r}")
        return Radio(
            power_watts=self.power_watts,
            rate_bits_per_second=rates[self],
            overhead_scale=self.overhead_scale,
            overhead_bits=self.overhead_bits,
        )

    def fading_law(self, folder: ScenarioFolder, rates: dict["RadioTable", float]) -> Fading:
        """Return the law of the channel, for runs that draw it."""
        efficiency = rates[self] / self.bandwidth_hertz
        if self.fading != "trace":
            parameter = self.rician_k or self.nakagami_m or 0.0
            return Fading(self.fading, channel.snr_from_decibels(self._mean_snr_db()), efficiency, parameter)
        mean_snr, gains = self._trace(folder.file("radio.trace", str(self.trace)))
        return Fading("trace", mean_snr, efficiency, gains=gains)

    def _efficiency(self, folder: ScenarioFolder) -> float:
        for key, fading in (("rician_k", "rician"), ("nakagami_m", "nakagami"), ("trace", "trace")):
            given = getattr(self, key)
            if (given is not None) != (self.fading == fading):
                wanted = "is missing" if given is None else "is unused"
                raise InvalidInputError(
                    f"radio.{key} {wanted}: {key} and fading = {fading!r} go together, got fading = {self.fading!r}"
                )
        if self.fading == "trace":
            return channel.efficiency_trace(*self._trace(folder.file("radio.trace", str(self.trace))))
        snr = channel.snr_from_decibels(self._mean_snr_db())
        efficiencies: dict[str, Callable[[], float]] = {
            "none": lambda: channel.efficiency_without_fading(snr),
            "rayleigh": lambda: channel.efficiency_rayleigh(snr),
            "rician": lambda: channel.efficiency_rician(snr, self.rician_k or 0.0),
            "nakagami": lambda: channel.efficiency_nakagami(snr, self.nakagami_m or 1.0),
        }
        return efficiencies[self.fading]()

    def _mean_snr_db(self) -> float:
        if self.mean_snr_db is None:
            raise InvalidInputError("radio.mean_snr_db is missing (a number from -200 to 200)")
        return self.mean_snr_db

    def _trace(self, path: Path) -> tuple[float, FloatArray]:
        """Read mean SNR and gains. Column ``gain`` scales the mean SNR; column ``snr_db`` is the SNR itself."""
        header = read_header(path)
        if ("gain" in header) == ("snr_db" in header):
            raise InvalidInputError(
                f"{path}: the header must name exactly one of gain and snr_db, got "
                f"{'both' if 'gain' in header else 'neither'} among {len(header)} columns"
            )
        if "gain" in header:
            gains = read_columns(path, ("gain",), low=0.0)["gain"]
            if not gains.mean() > 0.0:
                raise InvalidInputError(f"{path}: the gains must have a positive mean, got {gains.mean():g}")
            return channel.snr_from_decibels(self._mean_snr_db()), gains
        if self.mean_snr_db is not None:
            raise InvalidInputError(
                f"radio.mean_snr_db must be absent with a trace of snr_db, got {self.mean_snr_db!r}"
            )
        decibels = read_columns(path, ("snr_db",), low=-MAX_DECIBELS, high=MAX_DECIBELS)["snr_db"]
        snr = 10.0 ** (decibels / 10.0)
        return float(snr.mean()), snr


class GpuTable(Table):
    """[device.gpu]."""

    static_watts: NonNegative
    memory_watts_per_hertz: NonNegative
    core_watts_per_volt2_hertz: NonNegative
    static_seconds: NonNegative
    memory_cycles: NonNegative
    core_cycles: NonNegative
    core_volts: Positive
    core_hertz: Positive
    memory_hertz: Positive

    def joules_and_seconds(self) -> tuple[float, float]:
        """Return joules and seconds of one local step at the given voltage and clocks."""
        clocks = {"core_hertz": self.core_hertz, "memory_hertz": self.memory_hertz}
        model = GpuModel(**self.model_dump(exclude={"core_volts", *clocks}))
        return model.step_joules(core_volts=self.core_volts, **clocks), model.step_seconds(**clocks)


class DeviceTable(Table):
    """[[device]]: each joule cost in exactly one form, measured or modelled."""

    name: Name
    count: Annotated[int, Field(ge=1, le=MAX_DEVICES)] = 1
    profile: str | None = None
    joules_per_step: NonNegative | None = None
    seconds_per_step: NonNegative | None = None
    joules_per_flop: NonNegative | None = None
    seconds_per_flop: NonNegative | None = None
    gpu: GpuTable | None = None
    joules_per_bit: NonNegative | None = None
    message_joules: NonNegative | None = None
    seconds_per_bit: NonNegative | None = None
    message_seconds: NonNegative | None = None
    radio: RadioTable | None = None
    battery_joules: Positive | None = None
    joules_per_sample: NonNegative | None = None
    seconds_per_sample: NonNegative | None = None
    downlink_joules_per_bit: NonNegative | None = None
    downlink_seconds_per_bit: NonNegative | None = None

    _profile_keys: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def profile_keys(self) -> frozenset[str]:
        """Dotted keys that the device has from its profile."""
        return self._profile_keys

    def remember_profile(self, keys: frozenset[str]) -> None:
        """Note the keys that the device has from its profile."""
        self._profile_keys = keys

    @property
    def knows_step_seconds(self) -> bool:
        """Whether the seconds of a local step are given in any form."""
        return any(given is not None for given in (self.gpu, self.seconds_per_step, self.seconds_per_flop))

    def costs(self, folder: ScenarioFolder, rates: dict[RadioTable, float], flops_per_sample: float | None) -> Costs:
        """Return the keyword arguments of ``Fleet`` for one such device; ``flops_per_sample`` is the model's."""
        self._require_compute_form()
        self._require_one_form("joules_per_bit", "radio", ("message_joules", "seconds_per_bit", "message_seconds"))
        costs: Costs = {
            "joules_per_step": self.joules_per_step,
            "seconds_per_step": self.seconds_per_step,
            "joules_per_bit": self.joules_per_bit,
            "message_joules": self.message_joules or 0.0,
            "seconds_per_bit": self.seconds_per_bit,
            "message_seconds": self.message_seconds or 0.0,
            "battery_joules": float("inf") if self.battery_joules is None else self.battery_joules,
            "joules_per_sample": self.joules_per_sample,
            "downlink_joules_per_bit": self.downlink_joules_per_bit,
            "downlink_seconds_per_bit": self.downlink_seconds_per_bit,
        }
        if self.gpu is not None:
            costs["joules_per_step"], costs["seconds_per_step"] = self.gpu.joules_and_seconds()
        if self.joules_per_flop is not None:
            costs |= self._operation_costs(flops_per_sample)
        if self.radio is not None:
            radio = self.radio.radio(folder, rates)
            costs |= {
                "joules_per_bit": radio.joules_per_bit,
                "message_joules": radio.message_joules,
                "seconds_per_bit": radio.seconds_per_bit,
                "message_seconds": radio.message_seconds,
            }
        return costs

    def _require_compute_form(self) -> None:
        forms = {"joules_per_step": self.joules_per_step, "joules_per_flop": self.joules_per_flop, "gpu": self.gpu}
        given = [form for form, value in forms.items() if value is not None]
        if len(given) != 1 and given != ["joules_per_step", "joules_per_flop"]:
            found = " and ".join(given).replace("gpu", "[device.gpu]") or "neither"
            raise InvalidInputError(
                "needs exactly one of joules_per_step, joules_per_flop (joules_per_step may stand beside it) and "
                f"[device.gpu], got {found}"
            )
        if self.gpu is not None:
            self._require_absent("seconds_per_step", "[device.gpu]")
        if self.joules_per_flop is not None:
            self._require_absent("joules_per_sample", "joules_per_flop")
            self._require_absent("seconds_per_sample", "joules_per_flop")
        for key, needed in (("seconds_per_flop", "joules_per_flop"), ("seconds_per_step", "seconds_per_flop")):
            wanted = key == "seconds_per_flop" or self.joules_per_flop is not None
            if wanted and getattr(self, key) is not None and getattr(self, needed) is None:
                raise InvalidInputError(f"{needed} is missing: {key} needs it, got {key} = {getattr(self, key)!r}")

    def _operation_costs(self, flops_per_sample: float | None) -> Costs:
        """Return the costs of steps whose samples take ``flops_per_sample`` operations each."""
        assert self.joules_per_flop is not None
        if flops_per_sample is None:
            raise InvalidInputError("joules_per_flop needs flops_per_sample in [model], which is missing")
        timed = self.seconds_per_flop is not None
        return {
            "joules_per_step": self.joules_per_step or 0.0,
            "joules_per_sample": self.joules_per_flop * flops_per_sample,
            "seconds_per_step": self.seconds_per_step or 0.0 if timed else None,
            "seconds_per_sample": (self.seconds_per_flop or 0.0) * flops_per_sample if timed else None,
        }

    def _require_one_form(self, measured: str, modelled: str, extras: tuple[str, ...]) -> None:
        has_measured, has_model = getattr(self, measured) is not None, getattr(self, modelled) is not None
        if has_measured == has_model:
            given = "both" if has_model else "neither"
            raise InvalidInputError(f"needs exactly one of {measured} and [device.{modelled}], got {given}")
        if has_model:
            for key in extras:
                self._require_absent(key, f"[device.{modelled}]")

    def _require_absent(self, key: str, giver: str) -> None:
        if getattr(self, key) is not None:
            raise InvalidInputError(f"{key} must be absent with {giver}, which gives it, got {getattr(self, key)!r}")


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
    ("rounds", "paper"): PaperTable,
    ("rounds", "bound"): BoundTable,
    ("rounds", "power-law"): PowerLawTable,
    ("rounds", "paper", "intervals"): PaperIntervalsTable,
    ("rounds", "power-law", "intervals"): PowerLawIntervalsTable,
    ("limits",): LimitsTable,
    ("limits", "sparsity"): SparsityTable,
    ("limits", "local_steps", "range"): StepRangeTable,
    ("device",): DeviceTable,
    ("device", "radio"): RadioTable,
    ("device", "gpu"): GpuTable,
    ("training",): TrainingTable,
}
