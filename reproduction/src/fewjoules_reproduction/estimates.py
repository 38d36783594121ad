"""Estimate constants that theorems and adaptive methods need from gradients of clients."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fewjoules.arrays import FloatArray
from fewjoules.convergence.bound import LearningConstants
from fewjoules.engine.algorithm.streams import stream
from fewjoules.engine.models.layout import Layout
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.models.objective import Objective
from fewjoules.engine.models.tree import call
from fewjoules.engine.simulator.federation import Federation


@dataclass(frozen=True, slots=True)
class Drift:
    """Constants of the drift of local training as [WANG19] estimates them; means over clients.

    ``lipschitz`` (rho) belongs to the loss and ``smoothness`` (beta) to its gradient; ``divergence`` (delta) is the
    distance of clients' gradients from their mean.
    """

    lipschitz: float
    smoothness: float
    divergence: float


class ClientGradients:
    """Loss and gradient of a client on a sample of its data, at any global weights."""

    def __init__(self, model: nn.Module, loss: Loss, federation: Federation, *, seed: int) -> None:
        """Keep a copy of the model on the device of the data."""
        self.net = copy.deepcopy(model).to(federation.samples.device)
        self.objective, self.federation, self._seed = Objective.of(loss), federation, seed
        self._layout = Layout({n: p for n, p in self.net.named_parameters() if p.requires_grad})
        self.initial_weights = torch.cat([p.detach().reshape(-1) for p in self._trained()])

    def at(self, weights: torch.Tensor, client: int, batch: int, draw: int) -> tuple[float, torch.Tensor]:
        """Loss and gradient on ``batch`` samples of the client; ``draw`` is the number of the draw."""
        part = self.federation.parts[client]
        rng = stream(self._seed, "estimates", draw, client)
        numbers = torch.from_numpy(rng.choice(part, size=min(batch, part.size), replace=False))
        inputs, targets = self.federation.samples.take(numbers)
        self._layout.load(self.net, weights)
        outputs = call(self.net, inputs)
        values = [term.value(self.net, outputs, inputs, targets, self.objective.rule) for term in self.objective.terms]
        value = self.objective.total(values, None)
        found = torch.autograd.grad(value, self._trained())
        return float(value.detach()), torch.cat([gradient.reshape(-1) for gradient in found])

    def _trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.net.parameters() if parameter.requires_grad]


def estimate_drift(
    gradients: ClientGradients, weights: torch.Tensor, learning_rate: float, *, batch: int, draw: int
) -> Drift:
    """Estimate drift from one local step of each client, on the same samples before and after."""
    before = [gradients.at(weights, client, batch, draw) for client in range(len(gradients.federation.parts))]
    mean = torch.stack([gradient for _, gradient in before]).mean(0)
    lipschitz, smoothness = [], []
    for client, (value, gradient) in enumerate(before):
        moved = learning_rate * float(gradient.norm())
        later, changed = gradients.at(weights - learning_rate * gradient, client, batch, draw)
        lipschitz.append(abs(later - value) / moved if moved > 0.0 else 0.0)
        smoothness.append(float((changed - gradient).norm()) / moved if moved > 0.0 else 0.0)
    divergence = [float((gradient - mean).norm()) for _, gradient in before]
    return Drift(float(np.mean(lipschitz)), float(np.mean(smoothness)), float(np.mean(divergence)))


def estimate_constants(
    gradients: ClientGradients, weights: torch.Tensor, *, batch: int, learning_rate: float, points: int = 5
) -> tuple[LearningConstants, float]:
    """Estimate the constants of Theorem 1 near the initial weights, and the squared gradient norm there.

    sigma comes from the spread of small batches around large ones, L is the largest value over ``points`` steps of
    descent, and F* is 0, a lower bound of every cross-entropy.
    """
    clients = range(len(gradients.federation.parts))
    smoothness, first, here = 0.0, None, weights
    for _ in range(points):
        value, gradient = _mean(gradients, here, 32 * batch)
        first = first or (value, float(gradient.norm()))
        there = here - learning_rate * gradient
        _, changed = _mean(gradients, there, 32 * batch)
        smoothness = max(smoothness, float((changed - gradient).norm() / (there - here).norm()))
        here = there
    _, gradient = _mean(gradients, weights, 32 * batch)
    small = [gradients.at(weights, client, batch, draw)[1] for client in clients for draw in (1, 2, 3)]
    variance = batch * float(np.mean([float((one - gradient).norm()) ** 2 for one in small]))
    assert first is not None
    squared = first[1] ** 2
    constants = LearningConstants(
        smoothness=smoothness,
        sigma=float(np.sqrt(variance)),
        gradient_bound=float(np.sqrt(variance + squared)),
        initial_gap=first[0],
        batch=float(batch),
    )
    return constants, squared


def _mean(gradients: ClientGradients, weights: torch.Tensor, batch: int) -> tuple[float, torch.Tensor]:
    found = [gradients.at(weights, client, batch, 0) for client in range(len(gradients.federation.parts))]
    return float(np.mean([value for value, _ in found])), torch.stack([gradient for _, gradient in found]).mean(0)


def adaptive_local_steps(
    drift: Drift,
    *,
    learning_rate: float,
    step_joules: float,
    round_joules: float,
    budget_joules: float,
    last: int,
    largest: int,
    control: float = 0.025,
) -> int:
    """The H that minimises the bound G(H) of [WANG19] for the rest of a budget; at most ten times the last one.

    A round costs H step_joules + round_joules; ``control`` is the phi of the paper, with its value.
    """
    choices = np.arange(1, max(1, min(10 * last, largest)) + 1)
    left = max(budget_joules - round_joules - step_joules, 1e-12)
    steps = left * choices / (step_joules * choices + round_joules)
    noise = 1.0 / (2.0 * learning_rate * control * steps)
    drift_loss = _drift_loss(choices, drift, learning_rate)
    with np.errstate(over="ignore"):
        bound = noise + np.sqrt(noise**2 + drift_loss / (learning_rate * control * choices)) + drift_loss
    return int(choices[np.argmin(bound)])


def _drift_loss(choices: np.ndarray, drift: Drift, learning_rate: float) -> FloatArray:
    """rho h(H) of [WANG19]: bound on the loss caused by the drift of H local steps."""
    if 0.0 in (drift.lipschitz, drift.smoothness, drift.divergence):
        return np.zeros(choices.size)
    with np.errstate(over="ignore"):
        growth = np.expm1(choices * np.log1p(learning_rate * drift.smoothness)) / drift.smoothness
        gap = np.maximum(growth - learning_rate * choices, 0.0)  # h(1) is 0, which rounding may miss
        return np.asarray(drift.lipschitz * drift.divergence * gap)
