"""Batteries, in the power_supply folder of Linux: what the whole machine draws while it is unplugged."""

from pathlib import Path

from fewjoules.errors import MeterError
from fewjoules.metering.counters import Counter, CounterMeter
from fewjoules.metering.meter import Finding, Meter
from fewjoules.metering.powers import PowerMeter
from fewjoules.metering.sysfs import read_number, read_word, unreadable

KIND = "battery"
_JOULES_PER_MICROWATT_HOUR = 3.6e-3
_COULOMBS_PER_MICROAMPERE_HOUR = 3.6e-3
_RESOLUTION_SECONDS = 1.0
_FORMS = (("power_now",), ("current_now", "voltage_now"), ("energy_now",), ("charge_now", "voltage_now"))


def find(sysfs: Path) -> Finding:
    """Look for a battery that is being discharged and tells its power, energy or charge."""
    folder = sysfs / "class" / "power_supply"
    supplies = sorted(folder.iterdir()) if folder.is_dir() else []
    batteries = [
        one for one in supplies if read_word(one / "type") == "Battery" and read_word(one / "scope") != "Device"
    ]
    if not batteries:
        return Finding(KIND, str(folder), "no battery of this machine is there")
    if len(batteries) > 1:
        names = ", ".join(one.name for one in batteries)
        return Finding(KIND, str(folder), f"exactly one battery can be measured, got {names}")
    (battery,) = batteries
    form = next((names for names in _FORMS if all((battery / name).exists() for name in names)), None)
    if form is None:
        told = "power_now, energy_now, or current_now or charge_now with voltage_now"
        return Finding(KIND, str(battery), f"it has none of {told}")
    files = [battery / name for name in form]
    problem = unreadable(files) or _not_discharged(battery)
    return Finding(KIND, ", ".join(map(str, files)), problem, lambda: _open(battery, form))


def _not_discharged(battery: Path) -> str | None:
    status = read_word(battery / "status")
    if status == "Discharging":
        return None
    return f"its status must be Discharging, got {status or 'nothing'}: unplug the charger"


def _open(battery: Path, form: tuple[str, ...]) -> Meter:
    described = f"battery {battery.name} ({', '.join(form)})"
    first = battery / form[0]
    if form[0] in ("energy_now", "charge_now"):
        counter = Counter(
            described, lambda: -read_number(first), joules_per_unit=lambda: _joules_per_unit(battery, form)
        )
        return CounterMeter(KIND, described, [counter], resolution_seconds=_RESOLUTION_SECONDS)

    def watts() -> float:
        problem = _not_discharged(battery)
        if problem is not None:
            raise MeterError(f"{battery}: {problem}")
        power = 1e-6 * abs(read_number(first))  # some drivers give a current that leaves the battery a minus
        return power if len(form) == 1 else power * _volts(battery)

    return PowerMeter(KIND, described, watts, resolution_seconds=_RESOLUTION_SECONDS)


def _joules_per_unit(battery: Path, form: tuple[str, ...]) -> float:
    if form[0] == "energy_now":
        return _JOULES_PER_MICROWATT_HOUR
    return _COULOMBS_PER_MICROAMPERE_HOUR * _volts(battery)


def _volts(battery: Path) -> float:
    return 1e-6 * read_number(battery / "voltage_now")
