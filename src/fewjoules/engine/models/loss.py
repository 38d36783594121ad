"""Loss and correctness of a model's outputs."""

from collections.abc import Callable

import torch
from torch.nn import functional

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of each sample; the default loss."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def right_answers(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor | None:
    """Return which samples are classified correctly; None where outputs are not class scores."""
    if outputs.ndim != 2 or targets.ndim != 1 or targets.is_floating_point():
        return None
    return outputs.argmax(1) == targets
