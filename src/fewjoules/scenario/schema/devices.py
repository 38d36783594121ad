"""[[device]] of a scenario file and the tables below it: what a device spends, stated or modelled."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag

from fewjoules.errors import InvalidInputError
from fewjoules.physics.fleet import COSTS, MAX_DEVICES
from fewjoules.physics.points import MAX_POINTS
from fewjoules.provenance import KINDS
from fewjoules.scenario.folder import ScenarioFolder
from fewjoules.scenario.schema.base import Name, NonNegative, Positive, Table
from fewjoules.scenario.schema.processors import GpuTable, PointTable, StepCosts
from fewjoules.scenario.schema.radios import TAIL, Costs, RadioTable

Mark = Literal["measured", "fitted", "profile", "assumed"]
JOULES = {  # keys that give the joules of each kind
    "uplink": ("joules_per_bit", "message_joules", "radio"),
    "downlink": ("downlink_joules_per_bit", "downlink_message_joules"),
    "tail": TAIL,
    "compute": ("joules_per_step", "joules_per_sample", "joules_per_flop", "gpu", "point"),
    "codec": ("codec_joules_per_parameter", "codec_joules_per_entry"),
}


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
    point: Annotated[list[PointTable], Field(min_length=1, max_length=MAX_POINTS)] | None = None
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
        forms = (self.gpu, self.point, self.seconds_per_step, self.seconds_per_flop)
        return any(given is not None for given in forms)

    def points(self) -> list[StepCosts]:
        """Return the operating points that the table gives; none where steps have one cost."""
        if self.point is not None:
            return [one.costs() for one in self.point]
        samples = {
            "joules_per_sample": self.joules_per_sample or 0.0,
            "seconds_per_sample": self.seconds_per_sample or 0.0,
        }
        return [] if self.gpu is None else [one._replace(**samples) for one in self.gpu.points()]

    def costs(self, folder: ScenarioFolder, rates: dict[RadioTable, float], flops_per_sample: float | None) -> Costs:
        """Return the costs of one such device, None where it states none; ``flops_per_sample`` is the model's."""
        self._require_compute_form()
        self._require_uplink_form()
        costs: Costs = {name: getattr(self, name) for name in COSTS}
        if self.points():
            costs |= min(self.points())._asdict()
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
        forms = {
            "joules_per_step": self.joules_per_step,
            "joules_per_flop": self.joules_per_flop,
            "[device.gpu]": self.gpu,
            "[[device.point]]": self.point,
        }
        given = [form for form, value in forms.items() if value is not None]
        if len(given) != 1 and given != ["joules_per_step", "joules_per_flop"]:
            raise InvalidInputError(
                "needs exactly one of joules_per_step, joules_per_flop (joules_per_step may stand beside it), "
                f"[device.gpu] and [[device.point]], got {' and '.join(given) or 'none'}"
            )
        if self.gpu is not None:
            self._require_absent("seconds_per_step", "[device.gpu]")
        if self.point is not None:
            for key in ("seconds_per_step", "joules_per_sample", "seconds_per_sample"):
                self._require_absent(key, "[[device.point]]")
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
