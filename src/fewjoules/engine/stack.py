"""A model for a stack of clients: their parameters as rows of one matrix, their gradients from one call."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn import functional

from fewjoules.engine.layers import WeightedBatchNorm, stackable
from fewjoules.errors import InvalidInputError

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Tensors = dict[str, torch.Tensor]


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The default loss, one number a sample."""
    return functional.cross_entropy(outputs, targets, reduction="none")


class Layout:
    """Where each named tensor lies in a flat vector."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """In the order of the mapping."""
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        self.sizes = [tensor.numel() for tensor in tensors.values()]
        self.size = sum(self.sizes)

    def views(self, flat: torch.Tensor) -> Tensors:
        """Named views of a flat (..., size) tensor: writing to one writes to it."""
        lead = flat.shape[:-1]
        return {name: part.view(*lead, *self.shapes[name]) for name, part in self.parts(flat).items()}

    def parts(self, flat: torch.Tensor) -> Tensors:
        """The same without their shapes: (..., size of each)."""
        return dict(zip(self.shapes, torch.split(flat, self.sizes, dim=-1), strict=True))

    @torch.no_grad()
    def load(self, module: nn.Module, flat: torch.Tensor) -> None:
        """Copy a flat vector into the parameters or buffers of a module."""
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        for name, view in self.views(flat).items():
            tensors[name].copy_(view)

    def flatten(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The flat vector of named tensors."""
        if not self.shapes:
            return torch.zeros(0)
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.shapes])


def require_trainable(net: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes, by name; there must be some, and all must be float32."""
    trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
    if not trained:
        raise InvalidInputError("the model must have at least one parameter that requires a gradient, got none")
    for name, parameter in trained.items():
        if parameter.dtype != torch.float32:
            raise InvalidInputError(f"model parameters must be float32, got {parameter.dtype} for {name}")
    return trained


class ClientModel:
    """A model as a function of the parameters and buffers of a stack of clients."""

    def __init__(self, model: nn.Module, loss: Loss, device: torch.device, *, precision: str = "float32") -> None:
        """Keep a copy with stackable layers; the caller's model is not changed."""
        self.bfloat16 = precision == "bf16"
        self.net = stackable(model, precision).to(device).train()
        self.loss = loss
        self.device = device
        named = dict(self.net.named_parameters())
        trained = require_trainable(self.net)
        buffers = dict(self.net.named_buffers())
        averaged = {name: b for name, b in buffers.items() if b.dtype == torch.float32}
        self.parameters, self.buffers = Layout(trained), Layout(averaged)
        self.fixed = {name: p.detach() for name, p in named.items() if name not in trained}
        self.fixed |= {name: b for name, b in buffers.items() if name not in averaged}
        self.norms = {n: m for n, m in self.net.named_modules() if isinstance(m, WeightedBatchNorm)}
        self.initial_weights = self.parameters.flatten(trained).to(device)
        self.initial_buffers = self.buffers.flatten(averaged).to(device)

    def outcome(
        self, parameters: Tensors, buffers: Tensors, inputs: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, Tensors]:
        """Loss, share of right answers and new buffers of one client's batch; ``weights`` of its samples sum to one."""
        state = {f"{name}.sample_weights": weights for name in self.norms}
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            outputs = functional_call(self.net, self.fixed | parameters | buffers | state, (inputs,))
        losses = self.loss(outputs.float(), targets)
        loss = losses if losses.ndim == 0 else losses @ weights
        right = right_answers(outputs, targets)
        correct = torch.full_like(loss, torch.nan) if right is None else right.float() @ weights
        return loss, correct.detach(), buffers | self._new_statistics()

    def _new_statistics(self) -> Tensors:
        new: Tensors = {}
        for name, norm in self.norms.items():
            if norm.updated is not None:
                new[f"{name}.running_mean"], new[f"{name}.running_var"] = norm.updated
                norm.updated = None
        return new

    def gradients(
        self, parameters: Tensors, buffers: Tensors, inputs: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
    ) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor, Tensors]:
        """Gradients (in the order of the layout), losses, right answers and new buffers of a stack of clients."""
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in parameters.items()}
        with torch.enable_grad():
            stacked = vmap(self.outcome, randomness="different")
            losses, correct, new_buffers = stacked(leaves, buffers, inputs, targets, weights)
            gradients = torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)
        return self._filled(gradients, leaves), losses.detach(), correct, _detached(new_buffers)

    @staticmethod
    def _filled(gradients: Sequence[torch.Tensor | None], leaves: Tensors) -> list[torch.Tensor]:
        """A parameter that the loss does not use has gradient zero."""
        pairs = zip(gradients, leaves.values(), strict=True)
        return [torch.zeros_like(leaf) if gradient is None else gradient for gradient, leaf in pairs]


def _detached(tensors: Tensors) -> Tensors:
    return {name: tensor.detach() for name, tensor in tensors.items()}


def right_answers(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor | None:
    """Which samples were classified rightly; None where outputs are not class scores."""
    if outputs.ndim != 2 or targets.ndim != 1 or targets.is_floating_point():
        return None
    return outputs.argmax(1) == targets
