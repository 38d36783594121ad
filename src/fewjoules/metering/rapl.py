"""RAPL: energy counters of processor packages in the powercap folder of Linux (Intel and AMD)."""

from pathlib import Path

from fewjoules.metering.counters import Counter, CounterMeter
from fewjoules.metering.meter import Finding, Meter
from fewjoules.metering.sysfs import read_number, read_word, unreadable

KIND = "rapl"
_MICROJOULE = 1e-6
_RESOLUTION_SECONDS = 0.001


def find(sysfs: Path) -> Finding:
    """Look for the package domains; their cores and graphics are part of them and not counted again."""
    folder = sysfs / "class" / "powercap"
    if not folder.is_dir():
        problem = (
            "there is no such folder: the kernel has no powercap driver, or this is a virtual machine or container"
        )
        return Finding(KIND, str(folder), problem)
    zones = sorted(folder.glob("intel-rapl:*"))
    packages = [zone for zone in zones if (read_word(zone / "name") or "").startswith("package-")]
    if not packages:
        return Finding(KIND, str(folder / "intel-rapl:*"), "no domain of a processor package is there")
    files = [zone / name for zone in packages for name in ("energy_uj", "max_energy_range_uj")]
    where = ", ".join(str(zone / "energy_uj") for zone in packages)
    return Finding(KIND, where, unreadable(files), lambda: _open(packages))


def _open(packages: list[Path]) -> Meter:
    counters = [
        Counter(
            str(zone),
            lambda zone=zone: read_number(zone / "energy_uj"),  # type: ignore[misc]
            joules_per_unit=lambda: _MICROJOULE,
            wraps_at=read_number(zone / "max_energy_range_uj"),
        )
        for zone in packages
    ]
    names = ", ".join(read_word(zone / "name") or zone.name for zone in packages)
    return CounterMeter(KIND, f"RAPL of {names}", counters, resolution_seconds=_RESOLUTION_SECONDS)
