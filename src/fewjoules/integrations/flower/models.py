"""A PyTorch module as the initial arrays of a run whose nodes train it with ``client_app``."""

import torch
from flwr.app import ArrayRecord
from torch import nn

from fewjoules.engine.models.layout import require_trainable
from fewjoules.integrations.flower.records import array_record


def arrays_of(model: nn.Module) -> ArrayRecord:
    """Return trained parameters and float32 buffers; everything else is the same on all nodes and never travels."""
    buffers = {name: buffer for name, buffer in model.named_buffers() if buffer.dtype == torch.float32}
    tensors: dict[str, torch.Tensor] = {**require_trainable(model), **buffers}
    return array_record({name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()})
