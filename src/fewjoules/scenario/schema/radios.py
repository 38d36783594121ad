"""[device.radio] of a scenario file: the model of a radio, its tail, and its downlink."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError
from fewjoules.measurements import read_columns, read_header
from fewjoules.physics import channel
from fewjoules.physics.fading import Fading
from fewjoules.physics.radio import Radio
from fewjoules.scenario.folder import ScenarioFolder
from fewjoules.scenario.schema.base import NonNegative, Positive, Table

MAX_DECIBELS = 200.0
SnrDecibels = Annotated[float, Field(ge=-MAX_DECIBELS, le=MAX_DECIBELS)]
Costs = dict[str, float | None]
TAIL = ("tail_watts", "tail_seconds", "promotion_joules")


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
