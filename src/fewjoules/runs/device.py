"""Choice of the training device, spelt as PyTorch spells it."""

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import torch

from fewjoules.errors import InvalidInputError, shown
from fewjoules.torchrun import rank_on_this_machine, ranks_on_this_machine


def choose_device(given: str | torch.device) -> torch.device:
    """Return the device of a name such as "cuda:1", or the device itself; "auto" is a GPU where there is one."""
    device = _device_of(given)
    if device.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InvalidInputError(f"device = {str(given)!r} needs a GPU that PyTorch can use; none was found")
    count = torch.cuda.device_count()
    device = _of_rank(device, count)
    if device.index is not None and device.index >= count:
        last = "cuda:0, the only GPU" if count == 1 else f"from cuda:0 to cuda:{count - 1}"
        raise InvalidInputError(f"device must be {last} that PyTorch can use, got {str(given)!r}")
    return device


def _of_rank(device: torch.device, count: int) -> torch.device:
    """Return the GPU of this process where ``torchrun`` has started several on this machine, each with its own."""
    here = ranks_on_this_machine()
    if here == 1:
        return device
    numbered = str(device) != "cuda"
    if numbered or here > count:
        raise InvalidInputError(
            f"each of the {here} processes on this machine needs a GPU of its own by device = 'cuda', and PyTorch can "
            f"use {count}, got device {str(device)!r}"
        )
    return torch.device("cuda", rank_on_this_machine())


def _device_of(given: Any) -> torch.device:
    """Return the processor or a GPU, whether it exists or not; refuse every other kind of device."""
    if isinstance(given, str) and given == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with contextlib.suppress(RuntimeError):  # by which PyTorch refuses a name
        device = torch.device(given) if isinstance(given, str | torch.device) else None
        if device is not None and device.type in ("cpu", "cuda"):
            return device
    got = shown(str(given) if isinstance(given, torch.device) else given)
    raise InvalidInputError(f"device must be auto, cpu, cuda or a GPU by its number, such as cuda:1, got {got}")


def using(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which streams, graphs and kernels that name no GPU are those of this device."""
    return contextlib.nullcontext() if device.type == "cpu" else torch.cuda.device(device)


def device_name(device: torch.device) -> str:
    """Name of the device: "cpu", or "cuda: " and the model of the GPU."""
    return "cpu" if device.type == "cpu" else f"cuda: {torch.cuda.get_device_name(device)}"


def gpu_uuid(device: torch.device) -> str | None:
    """Return the UUID by which the driver knows a GPU; None for the processor."""
    return None if device.type == "cpu" else f"GPU-{torch.cuda.get_device_properties(device).uuid}"
