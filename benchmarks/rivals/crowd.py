"""What every contestant of benchmarks/population.py trains: clients that are slices of one pool of random samples.

Imports nothing of FewJoules, so that a rival can run in an environment of its own.
"""

import numpy as np
import torch
from torch import nn

POOL, SAMPLES, FEATURES, CLASSES = 20_000, 20, 64, 10
LOCAL_STEPS, BATCH, LEARNING_RATE = 5, 10, 0.05


def pool() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels that all clients share."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn((POOL, FEATURES), generator=generator), torch.randint(CLASSES, (POOL,), generator=generator)


def first_sample(client: int | np.ndarray) -> int | np.ndarray:
    """Number of a client's first sample; it has ``SAMPLES`` from there on."""
    return client * 7919 % (POOL - SAMPLES)


def new_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))
