"""What a model is trained for: a loss of (outputs, targets), and the right answers among them."""

from collections.abc import Callable

import torch
from torch.nn import functional

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The default loss, one number a sample."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def right_answers(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor | None:
    """Which samples were classified rightly; None where outputs are not class scores."""
    if outputs.ndim != 2 or targets.ndim != 1 or targets.is_floating_point():
        return None
    return outputs.argmax(1) == targets
