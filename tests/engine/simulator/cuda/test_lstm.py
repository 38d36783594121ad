"""Stacked LSTM layers in Triton give what PyTorch's give for each client alone, forwards and backwards.

They need Triton and a GPU, or TRITON_INTERPRET=1, with which Triton's interpreter stands in for the GPU.
"""

import os

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from fewjoules.engine.simulator.stack import recurrent
from fewjoules.engine.simulator.stack.recurrent import StackedLSTM
from tests.engine.late import Late

pytestmark = pytest.mark.gpu
lstm_cuda = Late("fewjoules.engine.simulator.cuda.lstm")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
OPERATIONS = {"fewjoules.lstm_layer.default", "fewjoules.lstm_layer_gradient.default"}


@pytest.fixture(autouse=True)
def kernels_everywhere(monkeypatch):
    """Let a stack on a processor take the kernels, which the interpreter runs there."""
    monkeypatch.setattr(recurrent, "has_kernels", lambda driven: True)


def normal(*size, seed=0, dtype=torch.float64):
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


class Clients:
    """LSTMs of several clients with weights, inputs and first states in float64.

    ``counts`` says of which of the outputs, the last hidden states and the last cells a loss is made.
    """

    def __init__(
        self, clients, places, batch, width, layers=1, inputs=3, *, with_state=True, counts=("output", "cell")
    ):
        self.lstm = nn.LSTM(inputs, width, layers).to(DEVICE, torch.float64)
        shapes = {name: parameter.shape for name, parameter in self.lstm.named_parameters()}
        self.weights = {n: 0.5 * normal(clients, *shape, seed=i) for i, (n, shape) in enumerate(shapes.items())}
        self.inputs = normal(clients, places, batch, inputs, seed=50)
        self.state = tuple(normal(clients, layers, batch, width, seed=51 + i) for i in range(2)) if with_state else ()
        shapes = {"output": (places, batch, width), "hidden": (layers, batch, width), "cell": (layers, batch, width)}
        self.factors = {name: normal(clients, *shapes[name], seed=60) for name in counts}

    def wanted(self):
        """Outputs, last states and gradients of a sum of them, one client after the other."""
        leaves = [tensor.clone().requires_grad_() for tensor in (*self.weights.values(), self.inputs, *self.state)]
        outs = []
        for client in range(len(self.inputs)):
            weights = {name: leaf[client] for name, leaf in zip(self.weights, leaves, strict=False)}
            state = tuple(one[client] for one in leaves[len(weights) + 1 :]) or None
            outs.append(functional_call(self.lstm, weights, (leaves[len(weights)][client], state)))
        output = torch.stack([out for out, _ in outs])
        hidden, cell = (torch.stack([states[i] for _, states in outs]) for i in range(2))
        return [output, hidden, cell, *self._gradients(leaves, output=output, hidden=hidden, cell=cell)]

    def found(self, dtype=torch.float32):
        """Return the same from the stack."""
        stack = StackedLSTM(self.lstm)
        tensors = (*self.weights.values(), self.inputs, *self.state)
        leaves = [tensor.to(dtype).requires_grad_() for tensor in tensors]

        def one(weights, inputs, *state):
            return functional_call(stack, weights, (inputs, state or None))

        weights = dict(zip(self.weights, leaves, strict=False))
        output, (hidden, cell) = vmap(one)(weights, *leaves[len(weights) :])
        return [output, hidden, cell, *self._gradients(leaves, output=output, hidden=hidden, cell=cell)]

    def _gradients(self, leaves, **outs):
        total = sum((outs[name].double() * factors).sum() for name, factors in self.factors.items())
        return torch.autograd.grad(total, leaves)


def assert_close(found, wanted, tolerance):
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        assert (ours.double() - theirs).abs().max() <= tolerance * theirs.abs().max()


@settings(max_examples=10 if INTERPRETED else 40, phases=(Phase.explicit, Phase.generate))
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 20), st.integers(1, 2), st.booleans())
def test_states_and_gradients_are_those_of_each_client_alone(clients, places, batch, width, layers, with_state):
    several = Clients(clients, places, batch, width, layers, with_state=with_state)
    assert_close(several.found(), several.wanted(), 1e-5)


@pytest.mark.parametrize("counts", [("output",), ("hidden",), ("cell",), ("output", "hidden", "cell")])
def test_gradients_are_right_whatever_a_loss_is_made_of(counts):
    several = Clients(2, 4, 3, 6, 2, counts=counts)
    assert_close(several.found(), several.wanted(), 1e-5)


def test_more_cells_than_one_program_computes():
    several = Clients(3, 2, 5, 37)
    assert_close(several.found(), several.wanted(), 1e-5)


@pytest.mark.skipif(INTERPRETED, reason="the interpreter knows one arithmetic only")
def test_bfloat16_rounds_but_its_cells_are_summed_in_float32():
    several = Clients(2, 40, 4, 32)
    assert_close(several.found(torch.bfloat16), several.wanted(), 0.04)


def test_bits_repeat_and_a_client_alone_differs_by_rounding_only():
    several = Clients(3, 3, 2, 8)
    together = several.found()
    for first, again in zip(together, several.found(), strict=True):
        assert torch.equal(first, again)
    several.weights = {name: tensor[1:2] for name, tensor in several.weights.items()}
    several.inputs, several.state = several.inputs[1:2], tuple(one[1:2] for one in several.state)
    several.factors = {name: one[1:2] for name, one in several.factors.items()}
    assert_close(several.found(), [many[1:2] for many in together], 1e-6)


def test_a_traced_step_holds_one_operation_for_each_layer_and_direction():
    several = Clients(2, 3, 2, 4, layers=2, with_state=False)
    stack = StackedLSTM(several.lstm)
    names = list(several.weights)

    def gradients(inputs, *weights):
        leaves = [one.detach().requires_grad_() for one in weights]

        def loss(one, *own):
            return functional_call(stack, dict(zip(names, own, strict=True)), (one,))[0].square().mean()

        return list(torch.autograd.grad(vmap(loss)(inputs, *leaves).sum(), leaves))

    arguments = [one.float() for one in (several.inputs, *several.weights.values())]
    graph = make_fx(gradients)(*arguments)
    targets = [str(node.target) for node in graph.graph.nodes]
    assert {name: targets.count(name) for name in OPERATIONS} == dict.fromkeys(OPERATIONS, 2)
    for traced, direct in zip(graph(*arguments), gradients(*arguments), strict=True):
        assert torch.equal(traced, direct)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("with_cells", [False, True])
def test_the_operations_describe_themselves_rightly(with_cells, transposed):
    checks = ("test_schema", "test_faketensor")
    driven, weights = normal(2, 3, 4, 20, dtype=torch.float32), normal(2, 5, 20, dtype=torch.float32)
    hidden, cell = normal(2, 4, 5, dtype=torch.float32), normal(2, 4, 5, dtype=torch.float32)
    if transposed:
        cell = cell.transpose(1, 2).contiguous().transpose(1, 2)
    hiddens, cells, gates = lstm_cuda.lstm_layer(driven, weights, hidden, cell)
    torch.library.opcheck(lstm_cuda.lstm_layer, (driven, weights, hidden, cell), test_utils=checks)
    backwards = (hiddens, cells if with_cells else None, gates, cells, weights, cell)
    torch.library.opcheck(lstm_cuda.lstm_layer_gradient, backwards, test_utils=checks)
