"""The model that a run has trained so far."""

import copy

from torch import nn

from fewjoules.engine.coordinator import Coordinator


def trained_model(model: nn.Module, simulator: Coordinator) -> nn.Module:
    """Return a copy of the model as trained so far, or as averaged, on the processor, in evaluation mode."""
    result = copy.deepcopy(model).cpu()
    weights, buffers = simulator.state.result
    simulator.parameters.load(result, weights)
    simulator.buffers.load(result, buffers)
    result.eval()
    return result
