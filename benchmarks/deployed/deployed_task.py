"""What both apps train: models and samples that need PyTorch and NumPy only."""

import numpy as np
import torch
from torch import nn

WIDTH = 4618  # of the wide model: 25 million parameters


def new_model(name: str) -> nn.Module:
    torch.manual_seed(0)
    return {"digits": digits_model, "lenet5": lenet5, "wide": wide_model}[name]()


def digits_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def lenet5() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    )


def wide_model() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
    )


def samples(path: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of a node."""
    with np.load(path) as file:
        return torch.from_numpy(file["inputs"]), torch.from_numpy(file["targets"])
