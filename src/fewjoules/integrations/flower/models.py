"""A PyTorch module as the initial arrays of a run whose nodes train it with ``client_app``."""

import torch
from flwr.app import ArrayRecord
from torch import nn

from fewjoules.engine.models.layout import averaged_buffers, require_trainable
from fewjoules.integrations.flower.records import array_record


def arrays_of(model: nn.Module) -> ArrayRecord:
    """Return trained parameters and averaged buffers; everything else is the same on all nodes and never travels."""
    tensors: dict[str, torch.Tensor] = {**require_trainable(model), **averaged_buffers(model)}
    return array_record({name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()})
