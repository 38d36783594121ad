"""The stack of torch.func's documentation: vmap over clients, with top-k and error feedback, without a ledger."""

import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fewjoules.engine.simulator.stack.layers import stackable
from fewjoules.engine.simulator.stack.recurrent import StackedLSTM
from rivals.task import CLIENT_SAMPLES, LEARNING_RATE, Task, autocast, draw_batches, new_model, samples


class Stack:
    """All clients as one stack; an LSTM has its cells written out, since vmap refuses PyTorch's own."""

    def __init__(self, task: Task, k: int) -> None:
        self.task, self.k = task, k
        self.net = stackable(new_model(task)).to(task.device).train()
        for module in self.net.modules():
            if isinstance(module, StackedLSTM):
                module.by_kernels = False
        self.weights = {name: one.detach().clone() for name, one in self.net.named_parameters()}
        size = sum(one.numel() for one in self.weights.values())
        self.residuals = torch.zeros((task.clients, size), device=task.device)
        self.gradients = vmap(grad(self._loss), in_dims=(0, 0, 0), randomness="different")
        self.inputs, self.targets = samples(task)

    def _loss(self, weights: dict[str, torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with autocast(self.task):
            outputs = functional_call(self.net, weights, (inputs,))
        return functional.cross_entropy(outputs.float().flatten(0, -2), targets.flatten())

    def run_round(self) -> None:
        clients = self.task.clients
        own = {name: one.expand(clients, *one.shape).clone() for name, one in self.weights.items()}
        starts = CLIENT_SAMPLES * torch.arange(clients, device=self.task.device)[:, None]
        batches = torch.stack([draw_batches(self.task.device) for _ in range(clients)], dim=1)
        for batch in batches:
            numbers = starts + batch
            found = self.gradients(own, self.inputs[numbers], self.targets[numbers])
            own = {name: one - LEARNING_RATE * found[name] for name, one in own.items()}
        update = torch.cat([(self.weights[name] - one).flatten(1) for name, one in own.items()], dim=1)
        update += self.residuals
        positions = update.abs().topk(self.k, dim=1).indices
        values = update.gather(1, positions)
        mean = torch.zeros(update.shape[1], device=update.device)
        mean.index_add_(0, positions.flatten(), values.flatten(), alpha=1.0 / clients)
        self.residuals = update.scatter(1, positions, 0.0)
        steps = mean.split([one.numel() for one in self.weights.values()])
        self.weights = {
            name: one - step.view(one.shape) for (name, one), step in zip(self.weights.items(), steps, strict=True)
        }
