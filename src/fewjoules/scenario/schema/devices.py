"""[[device]] of a scenario file and the tables below it: what a device spends, stated or modelled."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError
from fewjoules.measurements import read_columns, read_header
from fewjoules.physics import channel
from fewjoules.physics.fading import Fading
from fewjoules.physics.fleet import COSTS, MAX_DEVICES
from fewjoules.physics.gpu import GpuModel
from fewjoules.physics.radio import Radio
from fewjoules.provenance import KINDS
from fewjoules.scenario.folder import ScenarioFolder
from fewjoules.scenario.schema.base import Name, NonNegative, Positive, Table

MAX_DECIBELS = 200.0
SnrDecibels = Annotated[float, Field(ge=-MAX_DECIBELS, le=MAX_DECIBELS)]
Mark = Literal["measured", "fitted", "profile", "assumed"]
Costs = dict[str, float | None]
TAIL = ("tail_watts", "tail_seconds", "promotion_joules")
JOULES = {  # keys that give the joules of each kind
    "uplink": ("joules_per_bit", "message_joules", "radio"),
    "downlink": ("downlink_joules_per_bit", "downlink_message_joules"),
    "tail": TAIL,
    "compute": ("joules_per_step", "joules_per_sample", "joules_per_flop", "gpu"),
    "codec": ("codec_joules_per_parameter", "codec_joules_per_entry"),
}
NOTHING = ("message_joules", "message_seconds", "downlink_message_joules", "downlink_message_seconds", *TAIL)


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
    tail_watts: NonNegative | None = None
    tail_seconds: NonNegative | None = None
    promotion_joules: NonNegative | None = None
    downlink_watts: NonNegative | None = None
    downlink_bits_per_second: Positive | None = None

    @property
    def stated(self) -> tuple[str, ...]:
        """Return the costs beside those of the uplink that the table gives."""
        downlink = () if self.downlink_watts is None else ("downlink_joules_per_bit", "downlink_seconds_per_bit")
        return tuple(name for name in TAIL if getattr(self, name) is not None) + downlink

    def costs(self, folder: ScenarioFolder, rates: dict["RadioTable", float]) -> Costs:
        """Return the costs of the radio at its average rate."""
        radio = self.radio(folder, rates)
        costs: Costs = {name: getattr(self, name) for name in TAIL if getattr(self, name) is not None}
        costs |= {
            "joules_per_bit": radio.joules_per_bit,
            "message_joules": radio.message_joules,
            "seconds_per_bit": radio.seconds_per_bit,
            "message_seconds": radio.message_seconds,
        }
        watts, rate = self.downlink_watts, self.downlink_bits_per_second
        if (watts is None) != (rate is None):
            missing, given = ("downlink_watts", rate) if watts is None else ("downlink_bits_per_second", watts)
            raise InvalidInputError(
                f"radio.{missing} is missing: downlink_watts and downlink_bits_per_second go together, got {given!r}"
            )
        if watts is not None and rate is not None:
            costs |= {"downlink_joules_per_bit": watts / rate, "downlink_seconds_per_bit": 1.0 / rate}
        return costs

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


class ProvenanceTable(Table):
    """device.provenance by kind of joules."""

    uplink: Mark = "assumed"
    downlink: Mark = "assumed"
    tail: Mark = "assumed"
    compute: Mark = "assumed"
    codec: Mark = "assumed"


class DeviceTable(Table):
    """[[device]]: each joule cost in exactly one form, stated or modelled."""

    name: Name
    count: Annotated[int, Field(ge=1, le=MAX_DEVICES)] = 1
    profile: str | None = None
    provenance: (
        Annotated[
            Annotated[Mark, Tag("mark")] | Annotated[ProvenanceTable, Tag("kinds")],
            Discriminator(lambda given: "mark" if isinstance(given, str) else "kinds"),
        ]
        | None
    ) = None
    joules_per_step: NonNegative | None = None
    seconds_per_step: NonNegative | None = None
    joules_per_sample: NonNegative | None = None
    seconds_per_sample: NonNegative | None = None
    joules_per_flop: NonNegative | None = None
    seconds_per_flop: NonNegative | None = None
    gpu: GpuTable | None = None
    joules_per_bit: NonNegative | None = None
    message_joules: NonNegative | None = None
    seconds_per_bit: NonNegative | None = None
    message_seconds: NonNegative | None = None
    downlink_joules_per_bit: NonNegative | None = None
    downlink_seconds_per_bit: NonNegative | None = None
    downlink_message_joules: NonNegative | None = None
    downlink_message_seconds: NonNegative | None = None
    tail_watts: NonNegative | None = None
    tail_seconds: NonNegative | None = None
    promotion_joules: NonNegative | None = None
    radio: RadioTable | None = None
    codec_joules_per_parameter: NonNegative | None = None
    codec_joules_per_entry: NonNegative | None = None
    codec_seconds_per_parameter: NonNegative | None = None
    codec_seconds_per_entry: NonNegative | None = None
    battery_joules: Positive | None = None

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
        self._require_uplink_form()
        costs: Costs = {name: getattr(self, name) for name in COSTS}
        costs |= {name: costs[name] or 0.0 for name in NOTHING}
        if self.battery_joules is None:
            costs["battery_joules"] = float("inf")
        if self.gpu is not None:
            costs["joules_per_step"], costs["seconds_per_step"] = self.gpu.joules_and_seconds()
        if self.joules_per_flop is not None:
            costs |= self._operation_costs(flops_per_sample)
        if self.radio is not None:
            for name in self.radio.stated:
                self._require_absent(name, "[device.radio]")
            costs |= self.radio.costs(folder, rates)
        return costs

    def marks(self) -> dict[str, str]:
        """Return where the joules of each kind come from: as stated, from the profile, or fitted by a model."""
        stated = self.provenance
        if stated is not None:
            return dict.fromkeys(KINDS, stated) if isinstance(stated, str) else stated.model_dump()
        modelled = {"uplink": self.radio, "compute": self.gpu}
        unstated = {kind: "assumed" if modelled.get(kind) is None else "fitted" for kind in KINDS}
        return {kind: "profile" if self._has_from_profile(kind) else mark for kind, mark in unstated.items()}

    def _has_from_profile(self, kind: str) -> bool:
        """Whether the profile gave every joule cost of a kind."""
        costs = {key: getattr(self, key) for key in JOULES[kind] if getattr(self, key) is not None}
        keys = {
            f"{key}.{part}" if part else key
            for key, cost in costs.items()
            for part in (cost.model_fields_set if isinstance(cost, Table) else ("",))
        }
        return bool(keys) and keys <= self._profile_keys

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

    def _require_uplink_form(self) -> None:
        has_bits, has_radio = self.joules_per_bit is not None, self.radio is not None
        if has_bits == has_radio:
            given = "both" if has_radio else "neither"
            raise InvalidInputError(f"needs exactly one of joules_per_bit and [device.radio], got {given}")
        if has_radio:
            for key in ("message_joules", "seconds_per_bit", "message_seconds"):
                self._require_absent(key, "[device.radio]")

    def _require_absent(self, key: str, giver: str) -> None:
        if getattr(self, key) is not None:
            raise InvalidInputError(f"{key} must be absent with {giver}, which gives it, got {getattr(self, key)!r}")
