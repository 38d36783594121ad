"""Power rails behind INA sensors (INA3221 on Jetsons), in the hwmon folder of Linux."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fewjoules.metering.meter import Finding, Meter
from fewjoules.metering.powers import PowerMeter
from fewjoules.metering.sysfs import read_number, read_word, unreadable

KIND = "hwmon"
_SENSORS = "ina"  # how the drivers of these sensors begin: ina3221, ina226, ina238
_INPUTS = ("VDD_IN", "POM_5V_IN")  # rails that feed the whole module; the others lie behind them
_UNUSED = ("NC", "sum of shunt voltages")
_CHANNELS = (1, 2, 3)  # further voltages of an INA3221 are those of its shunts
_RESOLUTION_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Rail:
    """One measured supply: its name, its files and how to read its watts."""

    name: str
    files: tuple[Path, ...]
    watts: Callable[[], float]


def find(sysfs: Path) -> Finding:
    """Look for rails; where one feeds the whole module it is taken alone, else all are summed."""
    folder = sysfs / "class" / "hwmon"
    if not folder.is_dir():
        return Finding(KIND, str(folder), "there is no such folder: the kernel has no hwmon driver")
    chips = [chip for chip in sorted(folder.iterdir()) if (read_word(chip / "name") or "").startswith(_SENSORS)]
    rails = [rail for chip in chips for rail in _rails(chip)]
    if not rails:
        return Finding(KIND, str(folder / "hwmon*"), "no power sensor (INA3221, INA226 or the like) is there")
    chosen = [rail for rail in rails if rail.name in _INPUTS] or rails
    files = [file for rail in chosen for file in rail.files]
    return Finding(KIND, ", ".join(map(str, files)), unreadable(files), lambda: _open(chosen))


def _rails(chip: Path) -> list[Rail]:
    powers = sorted(file for file in chip.glob("power*_input") if re.fullmatch(r"power\d+_input", file.name))
    if powers:
        return [_power_rail(chip, file) for file in powers]
    found = [_voltage_rail(chip, number) for number in _CHANNELS]
    return [rail for rail in found if rail is not None]


def _power_rail(chip: Path, file: Path) -> Rail:
    label = read_word(chip / file.name.replace("_input", "_label"))
    return Rail(label or f"{chip.name}/{file.name}", (file,), lambda: 1e-6 * read_number(file))


def _voltage_rail(chip: Path, number: int) -> Rail | None:
    millivolts, milliamperes = chip / f"in{number}_input", chip / f"curr{number}_input"
    label = read_word(chip / f"in{number}_label") or f"{chip.name}/in{number}"
    if label in _UNUSED or not (millivolts.exists() and milliamperes.exists()):
        return None
    return Rail(label, (millivolts, milliamperes), lambda: 1e-6 * read_number(millivolts) * read_number(milliamperes))


def _open(rails: list[Rail]) -> Meter:
    described = f"rail{'s' * (len(rails) > 1)} {', '.join(rail.name for rail in rails)}"
    return PowerMeter(
        KIND, described, lambda: sum(rail.watts() for rail in rails), resolution_seconds=_RESOLUTION_SECONDS
    )
