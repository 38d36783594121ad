"""Name the machine that costs were measured on."""

import platform
from pathlib import Path

import torch

from fewjoules.cores import CORES
from fewjoules.runs.device import device_name


def machine_name(device: torch.device, cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the model of the GPU, or of the processor with its cores as far as the system tells."""
    if device.type == "cuda":
        return device_name(device)
    return f"{_processor(cpuinfo) or platform.machine() or 'an unknown processor'}, {CORES} cores"


def _processor(cpuinfo: Path) -> str | None:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    models = [line.partition(":")[2] for line in lines if line.startswith(("model name", "Model"))]
    return " ".join(models[0].split()) if models else None
