"""NVML: the energy counter of an NVIDIA GPU, of the Volta generation or newer."""

import importlib
from typing import Any

from fewjoules.errors import MeterError
from fewjoules.metering.counters import Counter, CounterMeter
from fewjoules.metering.meter import Finding, Meter

KIND = "nvml"
_WHERE = "the energy counter of the NVIDIA driver"
_MILLIJOULE = 1e-3
_RESOLUTION_SECONDS = 0.1


def find(gpu: str | None, library: Any = None) -> Finding:
    """Look for the counter of a GPU by its UUID; ``library`` stands in for pynvml."""
    if gpu is None:
        return Finding(KIND, _WHERE, "it measures a GPU, and the processor was chosen to train")
    try:
        nvml = library or importlib.import_module("pynvml")
    except ImportError:
        return Finding(KIND, _WHERE, "the package nvidia-ml-py is missing: pip install 'fewjoules[meter]'")
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except nvml.NVMLError as error:
        return Finding(KIND, f"{_WHERE}, GPU {gpu}", f"the driver refuses ({error})")
    return Finding(KIND, f"{_WHERE}, GPU {gpu}", None, lambda: _open(nvml, handle))


def _open(nvml: Any, handle: Any) -> Meter:
    name = nvml.nvmlDeviceGetName(handle)
    described = f"NVML of {name.decode() if isinstance(name, bytes) else name}"

    def millijoules() -> int:
        try:
            return int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        except nvml.NVMLError as error:
            raise MeterError(f"{described}: the energy counter cannot be read any more ({error})") from error

    counter = Counter(described, millijoules, joules_per_unit=lambda: _MILLIJOULE)
    return CounterMeter(KIND, described, [counter], resolution_seconds=_RESOLUTION_SECONDS)
