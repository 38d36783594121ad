"""The model that a run has trained so far."""

import copy

from torch import nn

from fewjoules.engine.coordinator import Coordinator


def trained_model(model: nn.Module, simulator: Coordinator) -> nn.Module:
    """Return a copy of the model with the global weights and buffers, on the processor, in evaluation mode."""
    result = copy.deepcopy(model).cpu()
    simulator.parameters.load(result, simulator.state.weights)
    simulator.buffers.load(result, simulator.state.buffers)
    return result.eval()
