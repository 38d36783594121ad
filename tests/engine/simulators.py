"""Small federations for tests of the engine, and what their clients keep."""

import numpy as np
import torch

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.simulator import Simulator


def federation_of(clients, device="cpu"):
    """Clients given as (inputs, targets), one after the other in one pair of tensors, or dicts of tensors."""
    inputs, targets = (joined([client[part] for client in clients], device) for part in (0, 1))
    ends = np.cumsum([len(y) for _, y in clients])
    parts = [np.arange(end - len(y), end) for end, (_, y) in zip(ends, clients, strict=True)]
    return Federation(Samples(inputs, targets), parts)


def joined(trees, device="cpu"):
    """Arrays, or dicts of arrays, one after the other."""
    if isinstance(trees[0], dict):
        return {name: joined([tree[name] for tree in trees], device) for name in trees[0]}
    return torch.from_numpy(np.concatenate(trees)).to(device)


def simulator_of(module, clients, options, device="cpu", **how):
    """A simulator of the options, given as a dict."""
    chosen = TrainingOptions.of(**options | {"sparsity": np.asarray(options["sparsity"])})
    return Simulator(module, federation_of(clients, device), chosen, loss=cross_entropy, **how)


def residuals(simulator):
    """Residuals of all clients, (clients, parameters): zeros before a client took part, no rows without feedback."""
    options, size = simulator.options, simulator.parameters.size
    if not options.error_feedback:
        return np.zeros((0, size), dtype=np.float32)
    states = [simulator.backend.client_state(client) for client in range(options.clients)]
    return np.stack([np.zeros(size, np.float32) if one is None else one.residual.copy() for one in states])
