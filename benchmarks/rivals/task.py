"""What every contestant trains: the same model on the same random samples, in batches of the same size."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from fewjoules.datasets.text import ALPHABET
from fewjoules.engine.models.architectures import Text
from fewjoules.engine.models.networks import build, build_for

LOCAL_STEPS = 5
BATCH = 32
CLIENT_SAMPLES = 600
CLASSES = 10
LEARNING_RATE = 0.01
SHAPES = {"lenet5": (1, 28, 28), "resnet20-gn": (3, 32, 32), "resnet20": (3, 32, 32)}  # MNIST's and CIFAR-10's
TEXTS: dict[str, tuple[str, Text, dict[str, int]]] = {  # architecture, what it reads, sizes unless the usual ones
    "gpt": ("gpt", Text(80, len(ALPHABET)), {}),
    "lstm": ("lstm", Text(80, len(ALPHABET)), {}),
    "gpt-tiny": ("gpt", Text(32, len(ALPHABET)), {"width": 24, "depth": 1, "heads": 2}),
    "lstm-tiny": ("lstm", Text(32, len(ALPHABET)), {"width": 32, "depth": 1}),
}

Record = dict[str, Any]
Answer = Callable[[Record], Record]
Serve = Callable[[Answer], None]


@dataclass(frozen=True, slots=True)
class Task:
    model: str
    clients: int
    precision: str
    device: str
    seed: int

    @property
    def client_steps(self) -> int:
        """Local steps of all clients in a round."""
        return self.clients * LOCAL_STEPS


def new_model(task: Task) -> nn.Module:
    if task.model in TEXTS:
        architecture, text, sizes = TEXTS[task.model]
        return build_for(architecture, text, sizes=sizes, seed=task.seed)
    channels, height, width = SHAPES[task.model]
    return build(task.model, channels=channels, height=height, width=width, classes=CLASSES, seed=task.seed)


@lru_cache(maxsize=1)
def samples(task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels, or tokens and next tokens, of all clients on the task's device, client after client."""
    generator = torch.Generator().manual_seed(task.seed)
    count = task.clients * CLIENT_SAMPLES
    if task.model in TEXTS:
        text = TEXTS[task.model][1]
        tokens = torch.randint(text.classes, (count, text.context + 1), generator=generator).to(task.device)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    images = torch.randn((count, *SHAPES[task.model]), generator=generator)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return images.to(task.device), labels.to(task.device)


def client_samples(task: Task, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    own = slice(client * CLIENT_SAMPLES, (client + 1) * CLIENT_SAMPLES)
    images, labels = samples(task)
    return images[own], labels[own]


def draw_batches(device: str) -> torch.Tensor:
    """Sample numbers of a client's steps in one round, (steps, batch), from a shuffled index."""
    order = torch.randperm(CLIENT_SAMPLES, device=device)
    return order[: LOCAL_STEPS * BATCH].view(LOCAL_STEPS, BATCH)


def set_arithmetic(precision: str) -> None:
    """PyTorch's switches for float32 products; bf16 is autocast's, see ``autocast``."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def autocast(task: Task) -> torch.autocast:
    return torch.autocast(task.device, torch.bfloat16, enabled=task.precision == "bf16")


def synchronise(task: Task) -> None:
    if task.device == "cuda":
        torch.cuda.synchronize()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
