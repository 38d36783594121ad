"""Two small tasks: a network that learns, and counts whose every change is a known integer."""

import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.streams import stream_key
from fewjoules.engine.models.loss import cross_entropy

SCENARIO = Path(__file__).with_name("scenario.toml")
CLIENTS, ENTRIES, LARGEST = 3, 256, 8
SAMPLES = (8, 8, 16)  # weighted by samples, three clients count a quarter, a quarter and a half: exact in float32
SPARSITY = (4.0, 6.0, 9.0)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 4))


def made_up_samples(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng([7, client])
    inputs = rng.normal(size=(20 + 5 * client, 6)).astype(np.float32)
    return torch.from_numpy(inputs), torch.from_numpy(rng.integers(0, 4, size=len(inputs)))


class Counting(nn.Module):
    """One row of parameters for each client; a local step changes its row by the integers of ``drawn``."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(CLIENTS, ENTRIES))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows @ (self.counts * drawn())


def drawn() -> torch.Tensor:
    return torch.randint(-LARGEST, LARGEST + 1, (ENTRIES,)).float()


def change(seed: int, client: int, number: int) -> torch.Tensor:
    """What a client computes in a round, by the random draws that FewJoules gives to a model."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_key(seed, "model", number, client))
        return drawn()


def total(outputs: torch.Tensor, _targets: torch.Tensor) -> torch.Tensor:
    return outputs.sum(1)


def model_of(task: str) -> nn.Module:
    return network() if task == "training" else Counting()


def options_of(config) -> TrainingOptions:
    """Options of a run without a plan."""
    given = {"rounds": config["rounds"], "seed": config["seed"], "sparsity": np.array(SPARSITY[: config["clients"]])}
    if config["task"] == "training":
        return TrainingOptions.of(**given, local_steps=3, learning_rate=0.1, batch_size=8)
    return TrainingOptions.of(**given, local_steps=1, learning_rate=1.0, batch_size=1, weighting="samples")


def node(config):
    """Model, inputs, targets and loss of a node, whose number is ``device`` in its config."""
    number = int(config["device"])
    if config["task"] == "training":
        return network(), *made_up_samples(number), cross_entropy
    rows = torch.zeros(SAMPLES[number], CLIENTS)
    rows[:, number] = 1.0
    return pausing(Counting(), config), rows, torch.zeros(SAMPLES[number]), total


def pausing(model: nn.Module, config) -> nn.Module:
    """Make each local step take ``step-seconds``; a node that is told to pause in training stops in its first one."""
    flag = Path(config["state-dir"]) / "paused"

    def pause(*_) -> None:
        time.sleep(config.get("step-seconds", 0.0))
        if config.get("pause") == "training" and not flag.exists():
            flag.touch()
            time.sleep(600.0)

    model.register_forward_pre_hook(pause)
    return model
