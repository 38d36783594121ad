"""Look for every meter, say why each cannot be read, and open one."""

import os
from collections.abc import Sequence
from pathlib import Path

from fewjoules.errors import InvalidInputError
from fewjoules.metering import battery, hwmon, nvml, rapl, zeus
from fewjoules.metering.meter import Finding, Meter

ENVIRONMENT = "FEWJOULES_SYSFS"  # where sysfs is, for containers that have that of their host in another place
KINDS = (nvml.KIND, rapl.KIND, hwmon.KIND, battery.KIND, zeus.KIND)
AUTO = "auto"


def survey(gpu: str | None, sysfs: Path | None = None) -> list[Finding]:
    """Look for the meters of a training, nearest first; ``gpu`` is the UUID of its GPU, None on the processor.

    Zeus is left out: it reads the same counters, and is opened only by name.
    """
    root = _root(sysfs)
    return [nvml.find(gpu), rapl.find(root), hwmon.find(root), battery.find(root)]


def open_meter(kind: str, gpu: str | None, sysfs: Path | None = None) -> tuple[Meter | None, list[Finding]]:
    """Open the meter of a kind, or with "auto" the nearest that can be read; return what was found as well.

    A kind that cannot be read is refused; with "auto" there may be no meter. RAPL does not see what a GPU does.
    """
    if kind not in (AUTO, *KINDS):
        raise InvalidInputError(f"--meter must be {AUTO} or one of {', '.join(KINDS)}, got {kind!r}")
    if kind == AUTO:
        found = [one for one in survey(gpu, sysfs) if gpu is None or one.kind != rapl.KIND]
        return next((_opened(one) for one in found if one.problem is None), None), found
    finding = _find(kind, gpu, _root(sysfs))
    if finding.problem is not None:
        raise InvalidInputError(f"--meter {kind} cannot be read: {finding.where}: {finding.problem}")
    return _opened(finding), [finding]


def open_all(gpu: str | None, sysfs: Path | None = None) -> list[Meter]:
    """Open every meter that can be read; refuse where there is none."""
    found = survey(gpu, sysfs)
    readable = [one for one in found if one.problem is None]
    if not readable:
        raise InvalidInputError(f"no meter can be read: {in_words(found)}")
    return [_opened(one) for one in readable]


def in_words(found: Sequence[Finding]) -> str:
    """Return the findings in one line."""
    return "; ".join(map(str, found))


def _root(sysfs: Path | None) -> Path:
    return sysfs or Path(os.environ.get(ENVIRONMENT) or "/sys")


def _find(kind: str, gpu: str | None, sysfs: Path) -> Finding:
    if kind in (nvml.KIND, zeus.KIND):
        return (nvml if kind == nvml.KIND else zeus).find(gpu)
    return {rapl.KIND: rapl, hwmon.KIND: hwmon, battery.KIND: battery}[kind].find(sysfs)


def _opened(finding: Finding) -> Meter:
    assert finding.open is not None
    return finding.open()
