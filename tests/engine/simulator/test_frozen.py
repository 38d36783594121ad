"""Copies of a model share what is not trained; the caller's model stays as it is, and results keep their bits."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.frozen import Frozen, sharing, was_written
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator import simulator as simulators
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.simulator import Simulator

CLIENTS, EACH = 4, 6


class Teacher(nn.Module):
    """Follows its weights by a frozen copy, which it changes in every forward pass after the first few."""

    def __init__(self, after):
        super().__init__()
        self.student, self.teacher = nn.Linear(8, 3), nn.Linear(8, 3).requires_grad_(False)
        self.calls, self.after = 0, after

    def forward(self, inputs):
        self.calls += 1
        if self.calls > self.after:
            self.teacher.weight.data.lerp_(self.student.weight.data, 0.5)
        return self.student(inputs) + 0.1 * self.teacher(inputs)


def perceptron():
    middle = nn.Linear(16, 16).requires_grad_(False)
    return nn.Sequential(nn.Linear(8, 16), middle, nn.ReLU(), nn.Linear(16, 3))


def convolutions():
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 4)),
        nn.Conv2d(1, 4, 3, padding=1).requires_grad_(False),
        nn.BatchNorm2d(4).requires_grad_(False),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1).requires_grad_(False),
        nn.Flatten(),
        nn.Linear(32, 3),
    )


def recurrent():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = nn.GRU(2, 5, batch_first=True).requires_grad_(False), nn.Linear(5, 3)

        def forward(self, inputs):
            return self.head(self.cells(inputs.unflatten(1, (4, 2)))[0][:, -1])

    return Net()


def tied():
    model = perceptron()
    model.append(nn.Linear(3, 3, bias=False).requires_grad_(False))
    model.append(nn.Linear(3, 3, bias=False).requires_grad_(False))
    model[-1].weight = model[-2].weight
    return model


MODELS = {one.__name__: one for one in (perceptron, convolutions, recurrent, tied)}


def simulated(model, chunk=1, rounds=3, threads=3):
    """A simulator and what it ends with: weights, buffers, losses and accuracies."""
    torch.manual_seed(1)
    samples = Samples(torch.randn(CLIENTS * EACH, 8), torch.randint(0, 3, (CLIENTS * EACH,)))
    parts = list(np.arange(CLIENTS * EACH).reshape(CLIENTS, EACH))
    options = TrainingOptions.of(
        local_steps=2, sparsity=np.full(CLIENTS, 3.0), rounds=rounds, learning_rate=0.1, batch_size=4
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some train one by one
        simulator = Simulator(
            model, Federation(samples, parts), options, loss=cross_entropy, chunk=chunk, threads=threads
        )
    evaluator = simulator.evaluator(model, cross_entropy, samples)
    tested = []
    for _ in range(rounds):
        simulator.start_round()()
        tested.append(evaluator(simulator.state.weights, simulator.state.buffers))
    simulator.close()
    return simulator, evaluator, (simulator.state.weights.tolist(), simulator.state.buffers.tolist(), tested)


def nets(simulator, evaluator):
    queue = simulator._local._models
    return [evaluator.net, *(queue.get().net for _ in range(simulator.workers.threads))]


def places(model):
    return {p.data_ptr() for p in model.parameters() if not p.requires_grad}


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("kind", MODELS)
def test_results_are_those_of_copies_that_share_nothing(kind, chunk, monkeypatch):
    torch.manual_seed(0)
    model = MODELS[kind]()
    before = copy.deepcopy(model.state_dict())
    *_, shared = simulated(model, chunk)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    monkeypatch.setattr(simulators, "sharing", lambda model, _device: model)
    *_, alone = simulated(model, chunk)
    assert shared == alone


@pytest.mark.parametrize("chunk", [1, 2])
def test_threads_and_evaluations_share_frozen_weights_and_nothing_else(chunk):
    torch.manual_seed(0)
    model = perceptron()
    simulator, evaluator, _ = simulated(model, chunk)
    copies = nets(simulator, evaluator)
    assert len(copies) == 4
    assert len({frozenset(places(net)) for net in copies}) == 1
    assert not places(copies[0]) & places(model)
    trained = [p.data_ptr() for net in (model, *copies) for p in net.parameters() if p.requires_grad]
    assert len(set(trained)) == len(trained)


def test_threads_share_convolutions_with_the_channels_innermost():
    torch.manual_seed(0)
    simulator, evaluator, _ = simulated(convolutions())
    copies = nets(simulator, evaluator)
    assert len({frozenset(places(net)) for net in copies}) == 1
    assert copies[0][4].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("after", [0, 3, 12])
def test_a_model_that_writes_to_its_frozen_weights_leaves_the_given_one_alone(after):
    """Whether it does so in its first pass, which is noticed, or later, in training."""
    torch.manual_seed(0)
    model = Teacher(after)
    before = copy.deepcopy(model.state_dict())
    simulator, evaluator, _ = simulated(model, rounds=8)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    shared = {frozenset(places(net)) for net in nets(simulator, evaluator)}
    assert len(shared) == (4 if after == 0 else 1)


def test_writing_is_noticed_by_every_bit():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False))
    model[1].weight.data[:] = torch.tensor([[0.0, torch.nan], [1.0, torch.inf]])
    shared = sharing(model, torch.device("cpu"))
    assert not was_written(shared, model)
    copy.deepcopy(shared)[1].weight.data[0, 0] = -0.0
    assert was_written(shared, model)


def test_a_model_that_is_all_trained_is_not_copied_for_copying():
    model = nn.Linear(2, 2)
    assert sharing(model, torch.device("cpu")) is model


def test_what_is_trained_is_copied_from_the_model_itself():
    model = perceptron()
    shared = sharing(model, torch.device("cpu"))
    assert shared[0].weight is model[0].weight
    assert isinstance(shared[1].weight, Frozen)
    assert copy.deepcopy(shared)[0].weight is not model[0].weight
