"""A learning task with random images: what a step costs hardly depends on what they show, and no file is read."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from fewjoules.engine.models.architectures import Images
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.models.networks import build
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.runs.training import Task


def random_task(
    architecture: str,
    images: Images,
    device: torch.device,
    *,
    clients: int,
    samples: int,
    folder: Path | None = None,
    seed: int = 0,
) -> Task:
    """Return a network and clients that share ``samples`` images, normalised as real ones are."""
    draws = np.random.default_rng(seed)
    inputs = draws.standard_normal((samples, images.channels, images.height, images.width), dtype=np.float32)
    labels = draws.integers(images.classes, size=samples)
    known = Samples(torch.from_numpy(inputs).to(device), torch.from_numpy(labels).to(device))
    return Task(
        model=build(architecture, **asdict(images), seed=seed, folder=folder),
        federation=Federation(known, [np.arange(samples)] * clients),
        test=None,
        loss=cross_entropy,
        fleet=None,
    )
