"""Folder trees of sysfs as the kernel lays them out: classes hold links to the folders of devices."""

from pathlib import Path


def write_all(folder: Path, values: dict[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")
    return folder


def link(sysfs: Path, kind: str, folder: Path) -> None:
    place = sysfs / "class" / kind
    place.mkdir(parents=True, exist_ok=True)
    (place / folder.name).symlink_to(folder)


def add_zone(sysfs: Path, zone: str, name: str, energy_uj: int, range_uj: int = 262_143_328_850) -> Path:
    """A RAPL domain; those within a package, such as intel-rapl:0:1, lie in its folder."""
    root = sysfs / "devices" / "virtual" / "powercap" / "intel-rapl"
    parent = root if zone.count(":") == 1 else root / zone.rpartition(":")[0]
    files = {"name": name, "energy_uj": energy_uj, "max_energy_range_uj": range_uj, "enabled": 0}
    folder = write_all(parent / zone, files)
    link(sysfs, "powercap", folder)
    return folder


def add_chip(sysfs: Path, number: int, name: str, **values: object) -> Path:
    """A sensor on an I2C bus."""
    place = sysfs / "devices" / "platform" / "c240000.i2c" / "i2c-1" / f"1-004{number}" / "hwmon" / f"hwmon{number}"
    folder = write_all(place, {"name": name, **values})
    link(sysfs, "hwmon", folder)
    return folder


def add_battery(sysfs: Path, name: str = "BAT0", **values: object) -> Path:
    place = sysfs / "devices" / "LNXSYSTM:00" / "PNP0C0A:00" / "power_supply" / name
    folder = write_all(place, {"type": "Battery", "status": "Discharging", **values})
    link(sysfs, "power_supply", folder)
    return folder
