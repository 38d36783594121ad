"""Networks for text: sizes without building, no look at later tokens, and stacks that train as each client alone."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from fewjoules.engine.models.architectures import ARCHITECTURES, Images, Text
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.models.networks import build, build_for, counted_flops_per_sample, parameter_count
from fewjoules.engine.simulator.stack.layers import stackable
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.engine.simulator.stack.recurrent import StackedLSTM
from fewjoules.errors import InvalidInputError

SMALL = {"gpt": {"width": 16, "depth": 2, "heads": 2}, "lstm": {"width": 16, "depth": 2}}
TEXT = Text(context=12, classes=7)


def net(architecture, seed=0, text=TEXT, **sizes):
    return build_for(architecture, text, sizes={**SMALL[architecture], **sizes}, seed=seed)


def tokens(*shape, seed=0):
    return torch.randint(TEXT.classes, shape, generator=torch.Generator().manual_seed(seed))


def next_token_loss(scores, targets):
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def test_the_usual_sizes():
    text = Text(context=80, classes=66)
    for name, parameters in (("gpt", 1_208_576), ("lstm", 816_210)):
        known = ARCHITECTURES[name]
        assert known.parameters(text, **known.all_sizes({})) == parameters
        assert parameter_count(build_for(name, text, seed=0)) == parameters


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_parameters_are_counted_without_building(context, classes, part, depth, heads):
    text = Text(context, classes)
    for name, sizes in (
        ("gpt", {"width": part * heads, "depth": depth, "heads": heads}),
        ("lstm", {"width": part, "depth": depth}),
    ):
        model = build_for(name, text, sizes=sizes, seed=0)
        assert ARCHITECTURES[name].parameters(text, **sizes) == parameter_count(model)


@pytest.mark.parametrize("architecture", SMALL)
def test_a_step_takes_the_operations_that_pytorch_counts(architecture):
    counted = counted_flops_per_sample(stackable(net(architecture)), TEXT)
    assert ARCHITECTURES[architecture].flops_per_sample(TEXT, **SMALL[architecture]) == counted


@pytest.mark.parametrize("architecture", SMALL)
def test_scores_depend_on_earlier_tokens_only(architecture):
    model = net(architecture).eval()
    before, after = tokens(1, 12), tokens(1, 12)
    after[0, 7] = (after[0, 7] + 1) % TEXT.classes
    first, second = model(before), model(after)
    assert first.shape == (1, 12, TEXT.classes)
    assert torch.equal(first[:, :7], second[:, :7])
    assert (first[:, 7:] != second[:, 7:]).any(dim=2).all()


@pytest.mark.parametrize("architecture", SMALL)
def test_a_stack_of_clients_has_the_gradients_of_each_alone(architecture):
    models = [net(architecture, seed=seed) for seed in range(3)]
    inputs, targets = tokens(3, 4, 12), tokens(3, 4, 12, seed=1)
    stacked = stackable(models[0])
    names = [name for name, _ in models[0].named_parameters()]
    assert [name for name, _ in stacked.named_parameters()] == names
    parameters = {name: torch.stack([dict(m.named_parameters())[name].detach() for m in models]) for name in names}

    def loss(parameters, inputs, targets):
        return next_token_loss(torch.func.functional_call(stacked, parameters, (inputs,)), targets)

    gradients = torch.func.vmap(torch.func.grad(loss))(parameters, inputs, targets)
    for client, model in enumerate(models):
        next_token_loss(model(inputs[client]), targets[client]).backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(gradients[name][client], parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("architecture", SMALL)
def test_a_step_can_be_traced_as_the_gpu_needs_it(architecture):
    model = ClientModel(net(architecture, text=Text(3, 7)), cross_entropy, torch.device("cpu"))
    views = model.parameters.views(model.initial_weights.repeat(2, 1))
    given = (*views.values(), tokens(2, 2, 3), tokens(2, 2, 3, seed=1), torch.full((2, 2), 0.5))

    def step(*tensors):
        weights = dict(zip(views, tensors[:-3], strict=True))
        gradients, losses, _, _ = model.gradients(weights, {}, *tensors[-3:])
        return [*gradients, losses]

    for traced, plain in zip(make_fx(step)(*given)(*given), step(*given), strict=True):
        assert torch.equal(traced, plain)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_the_written_out_lstm_is_pytorchs(batch_first, bias):
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 5, 2, batch_first=batch_first, bias=bias)
    stacked = stackable(lstm)
    assert isinstance(stacked, StackedLSTM)
    inputs = torch.randn(4, 6, 3)
    batch = 4 if batch_first else 6
    state = torch.randn(2, batch, 5), torch.randn(2, batch, 5)
    for arguments in ((inputs,), (inputs, state)):
        (ours, (hidden, cell)), (theirs, (their_hidden, their_cell)) = stacked(*arguments), lstm(*arguments)
        for one, other in ((ours, theirs), (hidden, their_hidden), (cell, their_cell)):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match="batches of sequences"):
        stacked(inputs[0])


def test_an_lstm_that_the_stack_does_not_know_is_left_as_it_is():
    for unusual in ({"bidirectional": True}, {"proj_size": 2}, {"num_layers": 2, "dropout": 0.1}):
        assert type(stackable(nn.LSTM(3, 5, **unusual))) is nn.LSTM


@pytest.mark.parametrize("architecture", SMALL)
def test_each_learns_a_text_by_heart(architecture):
    text = torch.arange(13).remainder(5).repeat(4, 1)  # 0 1 2 3 4 0 1 ...
    model = net(architecture)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    first = next_token_loss(model(text[:, :-1]), text[:, 1:]).item()
    assert first == pytest.approx(math.log(TEXT.classes), rel=0.1)
    for _ in range(60):
        optimiser.zero_grad()
        loss = next_token_loss(model(text[:, :-1]), text[:, 1:])
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1 * first


def test_written_out_attention_is_pytorchs():
    block = net("gpt").blocks[0]
    hidden = torch.randn(2, 5, 16)
    queries, keys, values = block.queries_keys_values(hidden).chunk(3, dim=2)
    heads = [one.unflatten(2, (2, 8)).transpose(1, 2) for one in (queries, keys, values)]
    theirs = functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(block._attention(hidden, later), theirs)


def test_the_output_layer_of_gpt_is_the_embedding_of_tokens():
    model = net("gpt")
    model(tokens(2, 12)).sum().backward()
    assert sum(one.shape == (TEXT.classes, 16) for one in model.parameters()) == 1


REFUSED = {
    "not a multiple": ("gpt", TEXT, {"width": 10, "heads": 4}, r"width must be a multiple of heads \(4\).* got 10"),
    "no heads": ("lstm", TEXT, {"heads": 2}, "heads is unused: architecture 'lstm' has width and depth"),
    "no sizes": ("mlp", Images(1, 8, 8, 10), {"width": 2}, "width is unused: architecture 'mlp' has no sizes"),
    "zero": ("gpt", TEXT, {"depth": 0}, "depth must be a whole number from 1"),
    "text for images": ("cnn", TEXT, {}, "architecture 'cnn' is for images, got text"),
    "images for text": ("gpt", Images(1, 8, 8, 10), {}, "architecture 'gpt' is for text, got images"),
    "context": ("gpt", Text(0, 7), {}, "context must be a whole number from 1"),
}


@pytest.mark.parametrize(("architecture", "shape", "sizes", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_built_is_refused(architecture, shape, sizes, message):
    with pytest.raises(InvalidInputError, match=message):
        build_for(architecture, shape, sizes=sizes, seed=0)


def test_a_network_for_images_needs_images():
    with pytest.raises(InvalidInputError, match="is for text"):
        build("lstm", channels=1, height=8, width=8, classes=10, seed=0)
