"""Small federations for tests of the engine, and what their clients keep."""

import numpy as np
import torch

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.simulator import Simulator


def federation_of(clients, device="cpu"):
    """Clients given as (inputs, targets), one after the other in one pair of tensors."""
    inputs = torch.from_numpy(np.concatenate([x for x, _ in clients])).to(device)
    targets = torch.from_numpy(np.concatenate([y for _, y in clients])).to(device)
    ends = np.cumsum([len(y) for _, y in clients])
    parts = [np.arange(end - len(y), end) for end, (_, y) in zip(ends, clients, strict=True)]
    return Federation(Samples(inputs, targets), parts)


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
