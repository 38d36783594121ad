"""Keep a part of every client's training data aside: pilot runs are judged by it, never by the test set."""

from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from fewjoules.arrays import IntArray
from fewjoules.engine.algorithm.streams import stream
from fewjoules.engine.simulator.federation import Federation, Samples, SampleSource
from fewjoules.engine.simulator.read_samples import SelectedSamples
from fewjoules.errors import InvalidInputError
from fewjoules.runs.training import Task

SomeTask = TypeVar("SomeTask", bound=Task)


def hold_out(task: SomeTask, share: float, seed: int) -> SomeTask:
    """Return the task without a ``share`` of every client's samples, which become the data it is tested on."""
    parts, aside = [], []
    for client, part in enumerate(task.federation.parts):
        kept, held = _split(part, share, stream(seed, "held aside", client))
        parts.append(kept)
        aside.append(held)
    numbers = np.concatenate(aside)
    if not numbers.size:
        raise InvalidInputError(
            f"tuning keeps {share:.0%} of the clients' samples aside, which needs a client with at least "
            f"{int(np.ceil(1.0 / share))}, got at most {max(len(part) for part in task.federation.parts)}"
        )
    samples = task.federation.samples
    return replace(task, federation=Federation(samples, parts), test=_chosen(samples, numbers))


def _chosen(samples: SampleSource, numbers: IntArray) -> SampleSource:
    """Return some samples as a source of their own: tensors of tensors; else they are read when they are taken."""
    if samples.resident:
        return Samples(*samples.take(torch.from_numpy(numbers)))
    return SelectedSamples(samples, numbers)


def _split(part: IntArray, share: float, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return the samples that a client keeps, in their order, and those held aside; it keeps at least one."""
    count = min(round(share * part.size), part.size - 1)
    held = np.zeros(part.size, dtype=np.bool_)
    held[rng.permutation(part.size)[:count]] = True
    return part[~held], part[held]
