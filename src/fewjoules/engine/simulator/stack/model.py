"""A model for a stack of clients: parameters are rows of one matrix, and one call returns all gradients."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.func import functional_call, vmap

from fewjoules.engine.models.layout import Layout, Tensors, averaged_buffers, require_trainable
from fewjoules.engine.models.loss import Loss, mean_of, right_answers
from fewjoules.engine.models.objective import Judged, Objective
from fewjoules.engine.models.tree import Tree, floats
from fewjoules.engine.simulator.stack.layers import WeightedBatchNorm, stackable


class ClientModel:
    """A model as a function of the parameters and buffers of a stack of clients."""

    def __init__(
        self, model: nn.Module, loss: Loss | Objective, device: torch.device, *, precision: str = "float32"
    ) -> None:
        """Copy the model with stackable layers; the caller's is not changed."""
        self.net = stackable(model, precision).to(device)
        self.objective = Objective.of(loss)
        self._judged = Judged(self.net, self.objective, bfloat16=precision == "bf16")
        named = dict(self.net.named_parameters())
        trained = require_trainable(self.net)
        averaged = averaged_buffers(self.net)
        self.parameters, self.buffers = Layout(trained), Layout(averaged)
        self.fixed = {name: p.detach() for name, p in named.items() if name not in trained}
        self.fixed |= {name: b for name, b in self.net.named_buffers() if name not in averaged}
        self.norms = {n: m for n, m in self.net.named_modules() if isinstance(m, WeightedBatchNorm)}
        self.initial_weights = self.parameters.flatten(trained).to(device)
        self.initial_buffers = self.buffers.flatten(averaged).to(device)

    def outcome(
        self, parameters: Tensors, buffers: Tensors, inputs: Tree, targets: Tree | None, weights: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, Tensors]:
        """Return loss, accuracy and new buffers of one client's batch; the ``weights`` of its samples sum to one."""
        state = {f"{name}.sample_weights": weights for name in self.norms}
        state = {f"net.{name}": tensor for name, tensor in (self.fixed | parameters | buffers | state).items()}
        values, outputs = functional_call(self._judged, state, (inputs, targets))
        loss = self.objective.total(values, weights)
        right = right_answers(outputs, targets, self._judged.rule)
        correct = torch.full_like(loss, torch.nan) if right is None else mean_of(floats(right), weights)
        return loss, correct.detach(), buffers | self._new_statistics()

    def _new_statistics(self) -> Tensors:
        new: Tensors = {}
        for name, norm in self.norms.items():
            if norm.updated is not None:
                new[f"{name}.running_mean"], new[f"{name}.running_var"] = norm.updated
                norm.updated = None
        return new

    def gradients(
        self, parameters: Tensors, buffers: Tensors, inputs: Tree, targets: Tree | None, weights: torch.Tensor
    ) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor, Tensors]:
        """Return gradients (in the order of the layout), losses, accuracies and new buffers of a stack of clients."""
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in parameters.items()}
        with torch.enable_grad():
            axes = (0, 0, 0, None if targets is None else 0, 0)
            stacked = vmap(self.outcome, in_dims=axes, randomness="different")
            losses, correct, new_buffers = stacked(leaves, buffers, inputs, targets, weights)
            gradients = torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)
        return self._filled(gradients, leaves), losses.detach(), correct, _detached(new_buffers)

    @staticmethod
    def _filled(gradients: Sequence[torch.Tensor | None], leaves: Tensors) -> list[torch.Tensor]:
        """Fill in zero gradients for parameters that the loss does not use."""
        pairs = zip(gradients, leaves.values(), strict=True)
        return [torch.zeros_like(leaf) if gradient is None else gradient for gradient, leaf in pairs]


def _detached(tensors: Tensors) -> Tensors:
    return {name: tensor.detach() for name, tensor in tensors.items()}
