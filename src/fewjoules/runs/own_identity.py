"""Facts by which a resumed run of ``fewjoules.train`` knows its model, data, loss and fleet again."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from fewjoules import __version__
from fewjoules.arrays import IntArray
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.networks import parameter_count
from fewjoules.engine.models.objective import Objective
from fewjoules.engine.simulator.federation import ClientSlices
from fewjoules.runs.data_facts import bytes_of, data_facts
from fewjoules.runs.device import device_name
from fewjoules.runs.task import identity_of_fleet
from fewjoules.runs.training import Task


def identity_of_own(task: Task, options: TrainingOptions) -> dict[str, Any]:
    """Return the facts that a run must share with the one that resumes it; the first that differs is told."""
    return {
        "fewjoules version": __version__,
        "torch version": torch.__version__,
        "numpy version": np.__version__,
        "device": device_name(task.federation.device),
        "architecture": type(task.model).__qualname__,
        "model": _model_facts(task.model),
        "loss": Objective.of(task.loss).named,
        "metrics": list(task.metrics),
        "clients": {
            "number": len(task.federation.parts),
            "sample numbers": _digest_of([task.federation.sizes, *_numbers_of(task.federation.parts)]),
        },
        "data": data_facts(task.federation.samples),
        "test": None if task.test is None else data_facts(task.test),
        **({"fleet": None} if task.fleet is None else identity_of_fleet(task.fleet)),
        "training": options.to_dict(),
    }


def weights_digest(model: nn.Module) -> str:
    """Return a digest of all weights and buffers of a model."""
    return _digest_of([bytes_of(tensor) for tensor in model.state_dict().values()])


def _numbers_of(parts: Sequence[IntArray]) -> Sequence[IntArray]:
    return [parts.starts] if isinstance(parts, ClientSlices) else parts


def _model_facts(model: nn.Module) -> dict[str, Any]:
    """Return facts of a model without its trained weights, which a checkpoint has."""
    state = model.state_dict(keep_vars=True)
    trained = {name for name, tensor in state.items() if tensor.requires_grad}
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    constant = dict.fromkeys(name for name, one in model.named_parameters() if not one.requires_grad)
    return {
        "parameters": parameter_count(model),
        "names and shapes": hashlib.sha256(repr((shapes, sorted(trained))).encode()).hexdigest(),
        "frozen weights": _digest_of([bytes_of(state[name]) for name in constant if name in state]),
    }


def _digest_of(arrays: list[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.data)
    return digest.hexdigest()
