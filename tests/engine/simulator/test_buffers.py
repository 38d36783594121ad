"""Buffers that a model assigns anew: what a client leaves in them is not there for the next one."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import fewjoules as fj
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.cpu.single import SingleModel
from fewjoules.errors import FewJoulesWarning, InvalidInputError
from tests.reference import training as reference

CLIENTS = [(x[:3], y[:3]) for x, y in reference.made_up_clients([5, 3, 6, 4], 4, 3, 1)]
OPTIONS = {"local_steps": 2, "sparsity": 1.0, "rounds": 2, "learning_rate": 0.3, "device": "cpu"}
BATCH = torch.ones(2, 4), torch.tensor([0, 2])


class Assigning(nn.Module):
    """Assigns a running mean of its inputs to a buffer in each step."""

    def __init__(self, first, *, persistent, change=lambda new: new):
        super().__init__()
        self.linear, self.change = nn.Linear(4, 3), change
        self.register_buffer("mean", first, persistent=persistent)

    def forward(self, inputs):
        before = torch.zeros(4) if self.mean is None else self.mean.float()
        if self.training:
            self.mean = self.change(0.5 * before + 0.5 * inputs.detach().mean(0))
        return self.linear(inputs - before)


STARTS = {
    "not in the state": (lambda: torch.full((4,), 0.25), False),
    "none yet": (lambda: None, True),
    "none yet and not in the state": (lambda: None, False),
    "of another type": (lambda: torch.full((4,), 0.25, dtype=torch.float64), True),
    "sent": (lambda: torch.full((4,), 0.25), True),
}


@pytest.mark.parametrize("start", STARTS)
def test_every_client_starts_with_the_same_buffers(start):
    torch.manual_seed(0)
    first, persistent = STARTS[start]
    model = SingleModel(Assigning(first(), persistent=persistent), cross_entropy, torch.device("cpu"))
    weights, buffers = torch.linspace(-1.0, 1.0, 15), torch.full((4 if start == "sent" else 0,), 0.25)
    losses = []
    for _ in range(2):
        model.start(weights, buffers)
        losses.append([float(model.gradients(*BATCH)[1]) for _ in range(2)])
    assert losses[0] == losses[1]
    assert losses[0][0] != losses[0][1]


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("start", [start for start in STARTS if start != "of another type"])
def test_clients_of_a_model_that_assigns_buffers_train_one_by_one_to_the_same_bits(start, chunk):
    first, persistent = STARTS[start]
    torch.manual_seed(0)
    made = Assigning(first(), persistent=persistent)
    runs = []
    for _ in range(2):
        with pytest.warns(FewJoulesWarning, match="one by one, which is slower: the model writes to its buffers"):
            runs.append(fj.train(made, clients=CLIENTS, clients_at_a_time=chunk, **OPTIONS))
    assert {run.execution for run in runs} == {"one by one"}
    np.testing.assert_array_equal(*(run.metrics["train_loss"] for run in runs))


class Counting(nn.Module):
    """Counts its steps, by which it computes something else."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, inputs):
        self.steps += 1
        return self.linear(inputs) / self.steps


def test_clients_of_a_model_that_counts_train_one_by_one():
    """In a stack it would count on from client to client."""
    with pytest.warns(FewJoulesWarning, match="one by one, which is slower: the model writes to its buffers") as told:
        fj.train(Counting(), clients=CLIENTS, clients_at_a_time=4, **OPTIONS)
    assert len(told) == 1


def test_a_buffer_that_is_assigned_in_another_type_is_averaged_as_float32():
    runs = []
    for change in (torch.Tensor.double, torch.Tensor.float):
        torch.manual_seed(0)
        made = Assigning(torch.zeros(4), persistent=True, change=change)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewJoulesWarning)
            runs.append(fj.train(made, clients=CLIENTS, clients_at_a_time=1, **OPTIONS))
    first, second = (run.model.state_dict()["mean"] for run in runs)
    assert first.dtype == torch.float32
    assert torch.equal(first, second)


def test_another_shape_of_a_buffer_that_is_sent_is_refused_by_name():
    made = Assigning(torch.zeros(4), persistent=True, change=lambda new: new[:, None])
    says = r"the model must keep the shape \(4,\) of its buffer mean, got \(4, 1\) after a step"
    with pytest.raises(InvalidInputError, match=says):
        fj.train(made, clients=CLIENTS, **OPTIONS)
    model = SingleModel(made, cross_entropy, torch.device("cpu"))
    model.start(torch.ones(15), torch.zeros(4))
    model.gradients(*BATCH)
    with pytest.raises(InvalidInputError, match=says):
        model.finish(torch.ones(15), torch.zeros(4))
