"""Frozen parameters, which the copies of a model share: a large part of a model that is not trained is kept once.

The caller's model is never used itself, so it stays as it is even if its code writes to frozen parameters. A model that
does so in its first pass gets copies that share nothing, like those of a model without frozen parameters.
"""

from typing import Any

import torch
from torch import nn

from fewjoules.engine.models.layout import copied


class Frozen(nn.Parameter):
    """A parameter that is not trained: copies of a module that has it have the same one."""

    _channels_last: "Frozen | None" = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Frozen":
        """Return the parameter itself."""
        return self

    def channels_last(self) -> "Frozen":
        """Return it with the channels innermost in memory: the same one for everybody who asks."""
        if self._channels_last is None:
            self._channels_last = Frozen(self.data.to(memory_format=torch.channels_last), requires_grad=False)
        return self._channels_last


def sharing(model: nn.Module, device: torch.device) -> nn.Module:
    """Return the model, or one in its place whose copies share frozen parameters on a device; it is only for copying.

    All else in it is the model's own.
    """
    frozen = [one for one in model.parameters() if not one.requires_grad and type(one) is nn.Parameter]
    if not frozen:
        return model
    same = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    shared = {id(one): Frozen(one.detach().to(device, copy=True), requires_grad=False) for one in frozen}
    return copied(model, same | shared)


def was_written(shared: nn.Module, model: nn.Module) -> bool:
    """Tell whether a copy wrote to the frozen parameters that ``sharing`` made of those of the model."""
    pairs = zip(shared.parameters(), model.parameters(), strict=True)
    return any(isinstance(one, Frozen) and not torch.equal(bits(one), bits(given, one.device)) for one, given in pairs)


def bits(tensor: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """Return a tensor as the bytes that it is made of, on another device if one is given."""
    return tensor.detach().to(device).contiguous().reshape(-1).view(torch.uint8)
