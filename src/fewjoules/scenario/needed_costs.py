"""Refuse a file that asks for something whose costs or times a device does not state."""

from fewjoules.errors import InvalidInputError
from fewjoules.scenario.schema.devices import DeviceTable
from fewjoules.scenario.schema.tables import ScenarioTables


def require_downlinks(tables: ScenarioTables) -> None:
    """Refuse to charge the downlink by request if a device does not state its cost."""
    if tables.training is None or tables.training.downlink != "charged":
        return
    for device in tables.device:
        stated = device.radio is not None and device.radio.downlink_watts is not None
        if not stated and device.downlink_joules_per_bit is None:
            raise InvalidInputError(
                f"device {device.name!r}: downlink_joules_per_bit is missing; training.downlink = 'charged' needs it"
            )


def require_times(tables: ScenarioTables) -> None:
    """Refuse a deadline if times are missing, and name the first device without them."""
    own = None if tables.recipe is None else tables.recipe.limits
    deadlines = {"limits": tables.limits.round_seconds, "recipe.limits": None if own is None else own.round_seconds}
    for table, round_seconds in deadlines.items():
        if round_seconds is not None:
            _require_times_for(tables.device, f"{table}.round_seconds = {round_seconds:g}")


def _require_times_for(devices: list[DeviceTable], deadline: str) -> None:
    for device in devices:
        for key, known in (
            ("seconds_per_bit", device.radio is not None or device.seconds_per_bit is not None),
            ("seconds_per_step", device.knows_step_seconds),
        ):
            if not known:
                raise InvalidInputError(f"device {device.name!r}: {key} is missing, but {deadline} needs it")
