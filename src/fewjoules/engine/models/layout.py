"""Layout of a model's parameters in one flat vector, and which of them are trained."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from fewjoules.errors import InvalidInputError
from fewjoules.own_code import first_line

Tensors = dict[str, torch.Tensor]


class Layout:
    """Places of named tensors in one flat vector."""

    shapes: dict[str, tuple[int, ...]]
    sizes: list[int]
    size: int

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Lay the tensors out in the order of the mapping."""
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        self.sizes = [tensor.numel() for tensor in tensors.values()]
        self.size = sum(self.sizes)

    def views(self, flat: torch.Tensor) -> Tensors:
        """Return named views of a flat (..., size) tensor; writing to a view changes the tensor."""
        lead = flat.shape[:-1]
        return {name: part.view((*lead, *self.shapes[name])) for name, part in self.parts(flat).items()}

    def parts(self, flat: torch.Tensor) -> Tensors:
        """Return named flat views of a flat (..., size) tensor: (..., size of each)."""
        return dict(zip(self.shapes, torch.split(flat, self.sizes, dim=-1), strict=True))

    @torch.no_grad()
    def load(self, module: nn.Module, flat: torch.Tensor) -> None:
        """Copy a flat vector into the parameters or buffers of a module."""
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        for name, view in self.views(flat).items():
            tensors[name].copy_(view)

    def flatten(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return named tensors as one flat vector."""
        if not self.shapes:
            return torch.zeros(0)
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.shapes])


@dataclass(frozen=True, slots=True)
class ModelParts:
    """All arrays of a model: trained weights and averaged buffers in one vector each, the others as they are.

    ``tied`` maps a name in the model's state to the one whose memory it shares.
    """

    parameters: Layout
    buffers: Layout
    fixed: Tensors
    tied: dict[str, str]

    @property
    def bytes(self) -> int:
        """Bytes of all arrays, tied ones once."""
        return 4 * (self.parameters.size + self.buffers.size) + sum(one.nbytes for one in self.fixed.values())

    @classmethod
    def of(cls, module: nn.Module, parameters: Layout, buffers: Layout) -> "ModelParts":
        """Return the parts of a module with these layouts."""
        state = module.state_dict()
        own = {**parameters.shapes, **buffers.shapes}
        places = {state[name].data_ptr(): name for name in own if state[name].numel()}
        others = {name: tensor for name, tensor in state.items() if name not in own}
        tied = {name: places[one.data_ptr()] for name, one in others.items() if one.data_ptr() in places}
        return cls(parameters, buffers, {name: one for name, one in others.items() if name not in tied}, tied)


def averaged_buffers(net: nn.Module) -> Tensors:
    """Return the float32 buffers of a model's state by name, which clients send and the server averages.

    Other types count something, and a buffer that is not in the state is computed anew wherever the model is made.
    """
    kept = net.state_dict().keys()
    return {name: one for name, one in net.named_buffers() if one.dtype == torch.float32 and name in kept}


def buffer_places(net: nn.Module) -> list[tuple[str, nn.Module, str]]:
    """Return the name of every buffer, also of those that are None, with its module and its name there."""
    places = ((prefix, module, name) for prefix, module in net.named_modules() for name in module._buffers)
    return [(f"{prefix}.{name}" if prefix else name, module, name) for prefix, module, name in places]


def copied(net: nn.Module, shared: dict[int, Any] | None = None) -> nn.Module:
    """Return a copy of a model; refuse one that cannot be copied.

    The copy has the ``shared`` objects in place of those with these ids.
    """
    try:
        return copy.deepcopy(net, shared)
    except (MemoryError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise _not_copied(net, error) from error


def _not_copied(net: nn.Module, error: Exception) -> InvalidInputError:
    for name, module in net.named_modules():
        for key, value in vars(module).items():
            if torch.is_tensor(value) and not value.is_leaf:
                return InvalidInputError(
                    f"the model must keep no tensors that were computed from parameters, got {key!r} of "
                    f"{_module(name)}; torch.nn.utils.parametrizations.weight_norm keeps none, unlike "
                    "torch.nn.utils.weight_norm"
                )
    return InvalidInputError(f"the model must be one that copy.deepcopy can copy, which failed: {first_line(error)}")


def require_trainable(net: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trainable parameters by name; refuse a model that cannot be trained.

    That is one that has none, any not float32, lazy modules, or modules that ``torch.jit`` compiled.
    """
    for name, module in net.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise InvalidInputError(
                f"the model must be made of ordinary modules, got {_module(name)} compiled by torch.jit; "
                "give what it was compiled from"
            )
    for name, tensor in (*net.named_parameters(), *net.named_buffers()):
        if is_lazy(tensor):
            raise InvalidInputError(
                f"the model must know its shapes, got a lazy module without one for {name}; "
                "call the model with one batch of inputs first"
            )
    trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
    if not trained:
        raise InvalidInputError("the model must have at least one parameter that requires a gradient")
    for name, parameter in trained.items():
        if parameter.dtype != torch.float32:
            raise InvalidInputError(f"model parameters must be float32, got {parameter.dtype} for {name}")
    return trained


def require_shape(name: str, buffer: torch.Tensor | None, found: torch.Tensor | None) -> None:
    """Refuse a tensor of another shape in the place of a buffer that is sent."""
    if buffer is not None and found is not None and found.shape != buffer.shape:
        raise InvalidInputError(
            f"the model must keep the shape {tuple(buffer.shape)} of its buffer {name}, got {tuple(found.shape)} "
            "after a step"
        )


def _module(name: str) -> str:
    return f"the module {name!r}" if name else "a module"
