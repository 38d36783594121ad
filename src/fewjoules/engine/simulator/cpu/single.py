"""A model that trains one client at a time. It works for any module."""

import copy
import math

import torch
from torch import nn

from fewjoules.engine.models.frozen import Frozen
from fewjoules.engine.models.layout import Layout, averaged_buffers, buffer_places, require_shape, require_trainable
from fewjoules.engine.models.loss import Loss, mean_right
from fewjoules.engine.models.objective import Judged, Objective
from fewjoules.engine.models.tree import Tree


class SingleModel:
    """A copy of a module whose parameters and buffers are read from and written to flat vectors."""

    def __init__(
        self, model: nn.Module, loss: Loss | Objective, device: torch.device, *, precision: str = "float32"
    ) -> None:
        """Copy the model; the caller's is not changed."""
        self.net = copy.deepcopy(model).to(device)
        self.net.train()
        self.objective = Objective.of(loss)
        if device.type == "cpu":  # convolutions run faster there with the channels innermost in memory
            self.net = channels_last(self.net)
        self._judged = Judged(self.net, self.objective, bfloat16=precision == "bf16", whole=True)
        trained = require_trainable(self.net)
        averaged = averaged_buffers(self.net)
        self.layout = Layout(trained)
        self.parameters: list[torch.Tensor] = list(trained.values())
        self._parts: list[tuple[Layout, list[torch.Tensor]]] = [
            (self.layout, list(trained.values())),
            (Layout(averaged), list(averaged.values())),
        ]
        self._counters = [b for name, b in self.net.named_buffers() if name not in averaged]
        self._first_counts = [counter.clone() for counter in self._counters]
        self._places = [(*place, place[1]._buffers[place[2]]) for place in buffer_places(self.net)]

    @torch.no_grad()
    def start(self, weights: torch.Tensor, buffers: torch.Tensor) -> None:
        """Load weights and buffers; other buffers, such as counts of steps, restart and are never sent."""
        for _, module, own_name, buffer in self._places:  # where the module may have put another
            module._buffers[own_name] = buffer
        for (layout, tensors), flat in zip(self._parts, (weights, buffers), strict=True):
            if tensors:
                torch._foreach_copy_(tensors, list(layout.views(flat).values()))
        for counter, first in zip(self._counters, self._first_counts, strict=True):
            counter.copy_(first)

    @torch.no_grad()
    def finish(self, weights: torch.Tensor, buffers: torch.Tensor) -> None:
        """Write the module's weights and buffers into flat vectors."""
        self._read_assigned()
        for (layout, tensors), flat in zip(self._parts, (weights, buffers), strict=True):
            if tensors:
                torch._foreach_copy_(list(layout.views(flat).values()), tensors)

    def _read_assigned(self) -> None:
        """Read the tensors that the module assigned to buffers that are sent."""
        sent = {id(buffer) for buffer in self._parts[1][1]}
        for name, module, own_name, buffer in self._places:
            found = module._buffers.get(own_name)
            if buffer is not None and found is not None and id(buffer) in sent:
                require_shape(name, buffer, found)
                buffer.copy_(found)

    def gradients(
        self, inputs: Tree, targets: Tree | None
    ) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor | float]:
        """Return gradients, mean loss and accuracy (NaN where there are no classes) of a batch."""
        with torch.enable_grad():
            values, outputs = self._judged(inputs, targets)
            loss = self.objective.total(values, None)
            found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        right = mean_right(outputs, targets, self._judged.rule)
        correct = math.nan if right is None else right
        pairs = zip(found, self.parameters, strict=True)
        return [torch.zeros_like(p) if g is None else g for g, p in pairs], loss.detach(), correct


def channels_last(net: nn.Module) -> nn.Module:
    """Return the module with the channels of its convolutions innermost in memory."""
    for tensor in (*net.parameters(), *net.buffers()):
        if tensor.ndim == 4 and not isinstance(tensor, Frozen):
            tensor.data = tensor.data.to(memory_format=torch.channels_last)
    for module in net.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if parameter.ndim == 4 and isinstance(parameter, Frozen):
                setattr(module, name, parameter.channels_last())
    return net
