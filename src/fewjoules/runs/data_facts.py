"""Facts by which a resumed run knows the samples of a user again."""

import hashlib
from typing import Any

import numpy as np
import torch

from fewjoules.arrays import IntArray
from fewjoules.engine.models.tree import described, leaves
from fewjoules.engine.simulator.federation import SampleSource, first_of

MOST_BYTES = 2**28  # of samples in tensors that are looked at, spread evenly over all
MOST_READ = 256  # samples that are looked at where each must be read or made
_BLOCK = 1024  # samples at a time


def data_facts(samples: SampleSource) -> dict[str, Any]:
    """Return number, shapes and types of the samples, and a digest of their values."""
    inputs, targets = first_of(samples)
    return {
        "samples": len(samples),
        "inputs": described(inputs),
        "targets": described(targets),
        "in memory": samples.resident,  # on a GPU the last bits depend on it
        "values": _data_digest(samples),
    }


def _data_digest(samples: SampleSource) -> str | None:
    """Return a digest of the samples, or of some that are spread over all of them; None if they change."""
    size = sum(leaf.numel() * leaf.element_size() for part in first_of(samples) for leaf in leaves(part))
    most = max(1, MOST_BYTES // max(1, size)) if samples.resident else MOST_READ
    numbers = np.unique(np.linspace(0, len(samples) - 1, min(len(samples), most)).round().astype(np.int64))
    if not samples.resident and _digest_taken(samples, numbers[:2]) != _digest_taken(samples, numbers[:2]):
        return None  # drawn at random whenever they are asked for
    return _digest_taken(samples, numbers)


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
