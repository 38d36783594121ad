"""Local steps of a node on its own data: those of the simulator, with the same batches and the same random draws."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from fewjoules.arrays import IntArray
from fewjoules.engine.algorithm.client import LocalSteps, Steps
from fewjoules.engine.algorithm.round import ClientOrder, require_finite
from fewjoules.engine.algorithm.sampling import draw_batches
from fewjoules.engine.algorithm.state import ClientState
from fewjoules.engine.algorithm.streams import stream_key
from fewjoules.engine.models.loss import Loss, cross_entropy
from fewjoules.engine.simulator.cpu.single import SingleModel
from fewjoules.engine.simulator.federation import Batches, SampleSource
from fewjoules.engine.simulator.local import Chunk, train_one
from fewjoules.integrations.flower.memory import Held
from fewjoules.integrations.flower.messages import Request
from fewjoules.runs.client_data import rule_of, tensors_of


class LocalTraining:
    """Trains a model on the samples of one node."""

    def __init__(self, model: nn.Module, samples: SampleSource, loss: Loss) -> None:
        """Copy the model to the device of the samples."""
        self._samples = samples
        self._model = SingleModel(model, loss, samples.device)

    def __call__(self, held: Held, _request: Request) -> LocalSteps:
        """Return the local steps from the model that the node holds."""
        return lambda state, order: self._steps(held, state, order)

    @property
    def size(self) -> int:
        """Number of samples."""
        return len(self._samples)

    def _steps(self, held: Held, state: ClientState, order: ClientOrder) -> Steps:
        device = self._samples.device
        chunk = Chunk(
            weights=torch.from_numpy(held.weights).to(device)[None].clone(),
            buffers=torch.from_numpy(held.buffers).to(device)[None].clone(),
            steps=torch.tensor([state.steps]),
            velocity=_row(state.velocity, device),
            squares=_row(state.squares, device),
        )
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(stream_key(order.seed, "model", order.round, order.client))
            progress = train_one(self._model, self._samples, self._batches(order), chunk, order.rule)
        losses = progress.losses.cpu().numpy()
        require_finite(losses, order.round, np.array([order.client]))
        return Steps(
            change=held.weights - chunk.weights[0].cpu().numpy(),
            buffers=chunk.buffers[0].cpu().numpy(),
            velocity=None if chunk.velocity is None else chunk.velocity[0].cpu().numpy(),
            squares=None if chunk.squares is None else chunk.squares[0].cpu().numpy(),
            losses=losses[:, 0],
            correct=progress.correct.cpu().numpy()[:, 0],
        )

    def _batches(self, order: ClientOrder) -> Batches:
        sizes: IntArray = np.array(order.batch_sizes, dtype=np.int64)[:, None]
        key, client = stream_key(order.seed, "batches"), np.array([order.client])
        numbers, weights = draw_batches(key, client, np.array([self.size]), order.first_step, sizes)
        return Batches(numbers, weights, np.array(order.rates))


def _row(vector: object, device: torch.device) -> torch.Tensor | None:
    return None if vector is None else torch.from_numpy(np.asarray(vector)).to(device)[None].clone()


def local_training(model: Any, inputs: Any, targets: Any, loss: Loss | None = None) -> LocalTraining:
    """Return the training of a module, or of what a function returns, on inputs and targets."""
    made = model if isinstance(model, nn.Module) else model()
    given = torch.as_tensor(inputs).device if not isinstance(inputs, Mapping | tuple) else torch.device("cpu")
    samples = tensors_of((inputs, targets), given, "the node's data", rule_of(loss))
    return LocalTraining(made, samples, loss or cross_entropy)
