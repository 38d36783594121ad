"""Algorithm 1 of [LI21], line by line, for one client and one sample list at a time: slow, obvious, float64.

Read with the slips of its text put right: memories start at zero, and gradients are taken at the local weights.
Four things are added to the printed lines. A lost upload stays in its client's memory (e_m = u_m) and its share still
counts. Only ``participants`` train, and shares are renormalised over them. Clients may weigh by ``importance``. Local
momentum starts from rest in every round.

Top-k is the one step where rounding can change more than the last digits: ``Trace.smallest_gap`` tells how near any
choice came to a tie, so that a test can pass over runs that float32 cannot be expected to follow.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn


class SoftmaxRegression:
    """Class scores W x + b under cross-entropy; flat parameters are W (classes, features), then b."""

    def __init__(self, features, classes):
        self.features, self.classes = features, classes
        self.size = classes * features + classes

    def gradient(self, parameters, inputs, targets):
        """Of the mean loss, one sample after the other."""
        weight, bias = np.split(parameters, [self.classes * self.features])
        weight = weight.reshape(self.classes, self.features)
        total = np.zeros(self.size)
        for x, label in zip(inputs, targets, strict=True):
            slope = _softmax(weight @ x + bias)
            slope[label] -= 1.0
            total += np.concatenate([np.outer(slope, x).ravel(), slope])
        return total / len(targets)

    def module(self):
        return nn.Linear(self.features, self.classes)


class TwoLayers:
    """Class scores V tanh(W x + b) + c under cross-entropy; flat parameters are W, b, V, c."""

    def __init__(self, features, hidden, classes):
        self.features, self.hidden, self.classes = features, hidden, classes
        self.size = hidden * features + hidden + classes * hidden + classes

    def gradient(self, parameters, inputs, targets):
        """Of the mean loss, one sample after the other, by the chain rule."""
        first = self.hidden * self.features
        ends = [first, first + self.hidden, first + self.hidden + self.classes * self.hidden]
        w, b, v, c = np.split(parameters, ends)
        w, v = w.reshape(self.hidden, self.features), v.reshape(self.classes, self.hidden)
        total = np.zeros(self.size)
        for x, label in zip(inputs, targets, strict=True):
            middle = np.tanh(w @ x + b)
            slope = _softmax(v @ middle + c)
            slope[label] -= 1.0
            inner = (v.T @ slope) * (1.0 - middle**2)
            parts = np.outer(inner, x).ravel(), inner, np.outer(slope, middle).ravel(), slope
            total += np.concatenate(parts)
        return total / len(targets)

    def module(self):
        return nn.Sequential(nn.Linear(self.features, self.hidden), nn.Tanh(), nn.Linear(self.hidden, self.classes))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What Algorithm 1 is told; ``batch_size`` None is all local data, ``lost`` has clients by round from 1."""

    local_steps: int
    rounds: int
    kept: Sequence[int]
    learning_rate: float
    batch_size: int | None = None
    batch_growth: float = 1.0
    momentum: float = 0.0
    error_feedback: bool = True
    importance: Sequence[float] | None = None
    participants: Sequence[Sequence[int]] | None = None
    lost: Mapping[int, Set[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """The state after local step t: w, all v_m and e_m, p_m of the round and the direction each client went."""

    weights: np.ndarray
    local: np.ndarray
    memories: np.ndarray
    shares: np.ndarray
    directions: np.ndarray


@dataclass(frozen=True)
class Trace:
    """Every local step of a run, and the smallest distance between the last entry kept and the first one dropped."""

    steps: list[Step]
    local_steps: int
    smallest_gap: float

    @property
    def rounds(self):
        """The steps that ended a round."""
        return self.steps[self.local_steps - 1 :: self.local_steps]


Draw = Callable[[int, int, int], Sequence[int]]


def run(model, clients, start, setting: Setting, draw: Draw | None = None) -> Trace:
    """``draw(t, m, b)`` names the b samples of client m at step t; it is not asked for all data."""
    M, H, d = len(clients), setting.local_steps, model.size
    importance = [1.0] * M if setting.importance is None else setting.importance
    w = np.array(start, dtype=np.float64)
    v, e, velocity = np.tile(w, (M, 1)), np.zeros((M, d)), np.zeros((M, d))
    steps, smallest_gap = [], math.inf
    for t in range(H * setting.rounds):
        number = t // H + 1
        here = range(M) if setting.participants is None else setting.participants[number - 1]
        total = sum(importance[m] for m in here)
        shares = np.array([importance[m] / total if m in here else 0.0 for m in range(M)])
        directions, g = np.zeros((M, d)), np.zeros((M, d))
        for m in here:
            if t % H == 0:
                v[m], velocity[m] = w, 0.0
            inputs, targets = clients[m]
            size = len(targets)
            b = (
                size
                if setting.batch_size is None
                else min(math.floor(setting.batch_growth**t * setting.batch_size), size)
            )
            batch = list(range(size)) if b == size else list(draw(t, m, b))
            velocity[m] = setting.momentum * velocity[m] + model.gradient(v[m], inputs[batch], targets[batch])
            directions[m] = velocity[m]
            v[m] = v[m] - setting.learning_rate * directions[m]
            if (t + 1) % H == 0:
                u = e[m] + w - v[m]
                g[m], gap = top_k(u, setting.kept[m])
                smallest_gap = min(smallest_gap, gap)
                if m in setting.lost.get(number, ()):
                    g[m] = 0.0
                e[m] = u - g[m] if setting.error_feedback else 0.0
        if (t + 1) % H == 0:
            w = w - sum(shares[m] * g[m] for m in here)
            v[:] = w
        steps.append(Step(w.copy(), v.copy(), e.copy(), shares, directions))
    return Trace(steps, H, smallest_gap)


def top_k(vector, k):
    """The k entries largest in size, ties to the lowest position, and how far the next one was from being kept."""
    order = sorted(range(len(vector)), key=lambda i: (-abs(vector[i]), i))
    kept = np.zeros_like(vector)
    for i in order[:k]:
        kept[i] = vector[i]
    gap = math.inf if k >= len(vector) else abs(vector[order[k - 1]]) - abs(vector[order[k]])
    return kept, gap


def made_up_clients(sizes, features, classes, seed):
    """Normal inputs (float32) with labels at random: (inputs, targets) of each client."""
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(size, features)).astype(np.float32), rng.integers(0, classes, size)) for size in sizes]


def seeded_module(model, seed):
    """A torch module of the model with weights that depend on the seed alone."""
    module = model.module()
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(scale=0.5, size=tuple(parameter.shape))))
    return module


def flat(module):
    """The parameters of a module as one float64 vector."""
    return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()]).astype(np.float64)


def _softmax(scores):
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()
