"""A learning task with random samples: what a step costs hardly depends on what they show, and no file is read."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from fewjoules.engine.models.architectures import Shape, Text
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.models.networks import build_for
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.runs.training import Task


def random_task(
    architecture: str,
    shape: Shape,
    device: torch.device,
    *,
    clients: int,
    samples: int,
    sizes: Mapping[str, int] | None = None,
    folder: Path | None = None,
    seed: int = 0,
) -> Task:
    """Return a network and clients that share ``samples`` images, normalised as real ones are, or windows of text."""
    draws = np.random.default_rng(seed)
    if isinstance(shape, Text):
        inputs, targets = draws.integers(shape.classes, size=(2, samples, shape.context))
    else:
        inputs = draws.standard_normal((samples, shape.channels, shape.height, shape.width), dtype=np.float32)
        targets = draws.integers(shape.classes, size=samples)
    known = Samples(torch.from_numpy(inputs).to(device), torch.from_numpy(targets).to(device))
    return Task(
        model=build_for(architecture, shape, sizes=sizes, seed=seed, folder=folder),
        federation=Federation(known, [np.arange(samples)] * clients),
        test=None,
        loss=cross_entropy,
        fleet=None,
    )
