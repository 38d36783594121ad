"""Choice of the training device."""

import torch

from fewjoules.errors import InvalidInputError, shown


def choose_device(name: str) -> torch.device:
    """Return the device of a name; "auto" is a GPU where there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise InvalidInputError(f"device must be auto, cpu or cuda, got {shown(name)}")
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidInputError("device = 'cuda' needs a GPU that PyTorch can use; none was found")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def device_name(device: torch.device) -> str:
    """Name of the device: "cpu", or "cuda: " and the model of the GPU."""
    return "cpu" if device.type == "cpu" else f"cuda: {torch.cuda.get_device_name(device)}"


def gpu_uuid(device: torch.device) -> str | None:
    """Return the UUID by which the driver knows a GPU; None for the processor."""
    return None if device.type == "cpu" else f"GPU-{torch.cuda.get_device_properties(device).uuid}"
