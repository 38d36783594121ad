"""Facts by which a resumed run knows the samples of a user again.

On a processor a run trains to the same bits whether samples are held in memory or read batch by batch, so it may go on
either way; on a GPU the last bits depend on it.
"""

import hashlib
from typing import Any

import numpy as np
import torch

from fewjoules.arrays import IntArray
from fewjoules.engine.models.tree import described, leaves
from fewjoules.engine.simulator.federation import SampleSource, first_of

HELD = "in memory"
HELD_VALUES = "values in memory"  # compared where both the run and the one that resumes it hold the samples
MOST_BYTES = 2**28  # of samples in tensors that are looked at, spread evenly over all
MOST_READ = 256  # samples that are looked at where each must be read or made
_BLOCK = 1024  # samples at a time


def data_facts(samples: SampleSource) -> dict[str, Any]:
    """Return number, shapes and types of the samples, and digests of their values."""
    inputs, targets = first_of(samples)
    return {
        "samples": len(samples),
        "inputs": described(inputs),
        "targets": described(targets),
        **({} if samples.device.type == "cpu" else {HELD: samples.resident}),
        "values": _digest_of_some(samples),
        HELD_VALUES: _digest_of_held(samples) if samples.resident else None,
    }


def _digest_of_some(samples: SampleSource) -> str | None:
    """Return a digest of a few samples; None if they are drawn at random whenever they are asked for."""
    numbers = _spread(len(samples), MOST_READ)
    if not samples.resident and _digest_taken(samples, numbers[:2]) != _digest_taken(samples, numbers[:2]):
        return None
    return _digest_taken(samples, numbers)


def _digest_of_held(samples: SampleSource) -> str:
    size = sum(leaf.numel() * leaf.element_size() for part in first_of(samples) for leaf in leaves(part))
    return _digest_taken(samples, _spread(len(samples), max(1, MOST_BYTES // max(1, size))))


def _spread(samples: int, most: int) -> IntArray:
    """Return at most so many numbers of samples, spread evenly over all of them."""
    return np.unique(np.linspace(0, samples - 1, min(samples, most)).round().astype(np.int64))


def _digest_taken(samples: SampleSource, numbers: IntArray) -> str:
    digest = hashlib.sha256()
    for first in range(0, numbers.size, _BLOCK):
        batch = samples.take(torch.from_numpy(numbers[first : first + _BLOCK]))
        for leaf in (leaf for part in batch for leaf in leaves(part)):
            digest.update(bytes_of(leaf).data)
    return digest.hexdigest()


def bytes_of(tensor: torch.Tensor) -> Any:
    """Return the bytes of a tensor as an array."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
