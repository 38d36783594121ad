"""The networks have the published sizes, equal weights for equal seeds, and can be mapped over stacked clients."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.datasets.shapes import CLASSES, SHAPES
from fewjoules.engine.models.architectures import ARCHITECTURES, Images
from fewjoules.engine.models.networks import (
    build,
    counted_flops_per_sample,
    parameter_count,
    source_digest,
    statistics_count,
)
from fewjoules.errors import InvalidInputError

IMAGES = [name for name, one in ARCHITECTURES.items() if one.takes is Images]
SMALLEST = {"softmax": 1, "mlp": 1, "cnn": 4, "lenet5": 16, "resnet20": 8, "resnet20-gn": 8}


def net(architecture, side=32, channels=3, seed=0, **changes):
    sides = {"height": side, "width": side}
    return build(architecture, **{**sides, "channels": channels, "classes": 10, "seed": seed, **changes})


def flat(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


@pytest.mark.parametrize(
    ("architecture", "channels", "side", "parameters"),
    [
        ("softmax", 1, 28, 7_850),
        ("mlp", 1, 28, 199_210),
        ("cnn", 1, 8, 160 + 4_640 + 8_256 + 650),
        ("lenet5", 1, 28, 431_080),
        ("resnet20", 3, 32, 269_722),
        ("resnet20-gn", 3, 32, 269_722),
    ],
)
def test_the_sizes_are_the_published_ones(architecture, channels, side, parameters):
    assert parameter_count(net(architecture, side, channels)) == parameters
    assert ARCHITECTURES[architecture].parameters(Images(channels, side, side, 10)) == parameters


@pytest.mark.parametrize("architecture", IMAGES)
@pytest.mark.parametrize(("channels", "height", "width", "classes"), [(1, 28, 28, 10), (3, 32, 32, 10), (2, 17, 30, 7)])
def test_a_step_takes_the_operations_that_pytorch_counts(architecture, channels, height, width, classes):
    images = Images(channels, height, width, classes)
    model = net(architecture, channels=channels, height=height, width=width, classes=classes)
    assert ARCHITECTURES[architecture].flops_per_sample(images) == counted_flops_per_sample(model, images)


def test_a_step_of_lenet5_takes_three_forward_passes_of_two_operations_for_each_multiply_add():
    forward = 24 * 24 * 25 * 20 + 8 * 8 * 500 * 50 + 800 * 500 + 500 * 10
    assert ARCHITECTURES["lenet5"].flops_per_sample(Images(1, 28, 28, 10)) == 3 * 2 * forward


def test_frozen_parameters_and_buffers_do_not_count():
    model = net("resnet20")
    model.last.weight.requires_grad_(False)
    assert parameter_count(model) == 269_722 - 640


@pytest.mark.parametrize("architecture", IMAGES)
@pytest.mark.parametrize(("height", "width"), [(28, 28), (32, 32), (17, 30)])
def test_logits_have_one_row_an_image(architecture, height, width):
    model = net(architecture, channels=2, height=height, width=width, classes=7)
    assert model(torch.zeros(3, 2, height, width)).shape == (3, 7)


@pytest.mark.parametrize("architecture", IMAGES)
def test_the_smallest_image_can_be_learnt_from_and_a_smaller_one_is_refused(architecture):
    side = SMALLEST[architecture]
    net(architecture, side)(torch.zeros(1, 3, side, side)).sum().backward()
    for key in ("height", "width"):
        with pytest.raises(InvalidInputError, match=f"{key} for {architecture} must be .* from {side} "):
            net(architecture, side, **{key: side - 1})


@pytest.mark.parametrize("architecture", IMAGES)
def test_the_seed_decides_the_weights_and_nothing_else_does(architecture):
    torch.manual_seed(5)
    first = net(architecture, seed=1)
    state = torch.get_rng_state()
    torch.manual_seed(6)
    assert torch.equal(flat(first), flat(net(architecture, seed=1)))
    assert not torch.equal(flat(first), flat(net(architecture, seed=2)))
    torch.manual_seed(5)
    assert torch.equal(torch.get_rng_state(), state)


def test_convolutions_of_resnet20_start_with_the_variance_of_he():
    for layer in net("resnet20").modules():
        if isinstance(layer, torch.nn.Conv2d):
            deviation = (2.0 / (layer.out_channels * 9)) ** 0.5
            assert layer.weight.std().item() == pytest.approx(deviation, rel=0.15)


def test_the_shortcut_keeps_every_second_pixel_and_pads_channels():
    block = net("resnet20").eval().blocks[3]
    torch.nn.init.zeros_(block.body[4].weight)
    x = torch.rand(2, 16, 8, 8)
    out = block(x)
    torch.testing.assert_close(out[:, 8:24], x[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


@pytest.mark.parametrize("architecture", IMAGES)
def test_stacked_clients_give_what_each_gives_alone(architecture):
    models = [net(architecture, 16, seed=seed).eval() for seed in range(3)]
    images = torch.from_numpy(np.random.default_rng(0).random((3, 2, 3, 16, 16), dtype=np.float32))
    parameters, buffers = torch.func.stack_module_state(models)

    def loss(parameters, buffers, x):
        return torch.func.functional_call(models[0], (parameters, buffers), (x,)).square().mean()

    gradients = torch.func.vmap(torch.func.grad(loss))(parameters, buffers, images)
    for client, model in enumerate(models):
        model(images[client]).square().mean().backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(gradients[name][client], parameter.grad, rtol=1e-3, atol=1e-5)


def test_one_image_does_not_change_the_logits_of_another_with_group_norm():
    model = net("resnet20-gn")
    images = torch.rand(4, 3, 32, 32)
    torch.testing.assert_close(model(images)[:1], model(images[:1]), rtol=1e-4, atol=1e-5)


REFUSED = {
    "name": (("alexnet",), {}, "architecture must be one of cnn, gpt, lenet5, .* got 'alexnet'"),
    "channels": (("cnn",), {"channels": 0}, "channels must be a whole number from 1"),
    "classes": (("cnn",), {"classes": 2.5}, "classes must be a whole number .* got 2.5"),
    "seed": (("cnn",), {"seed": -1}, "seed must be a whole number from 0 .* got -1"),
    "huge": (("cnn",), {"side": 10**9}, "height for cnn must be"),
}


@pytest.mark.parametrize(("arguments", "changes", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_built_is_refused(arguments, changes, message):
    with pytest.raises(InvalidInputError, match=message):
        net(*arguments, **changes)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(IMAGES),
    st.integers(1, 4),
    st.integers(16, 40),
    st.integers(16, 40),
    st.integers(1, 12),
)
def test_parameters_are_counted_without_building(architecture, channels, height, width, classes):
    images = Images(channels, height, width, classes)
    model = build(architecture, channels=channels, height=height, width=width, classes=classes, seed=0)
    assert ARCHITECTURES[architecture].parameters(images) == parameter_count(model)
    assert ARCHITECTURES[architecture].statistics == statistics_count(model)


OWN = """
from torch import nn

def small(channels, height, width, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 7), nn.Linear(7, classes))

def no_module(channels, height, width, classes):
    return "a network"

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "users_networks.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "users_networks", raising=False)
    yield tmp_path
    sys.modules.pop("users_networks", None)


def images(data="digits"):
    channels, height, width = SHAPES[data]
    return {"channels": channels, "height": height, "width": width, "classes": CLASSES}


def test_a_users_own_network_is_built_by_name_with_the_weights_of_its_seed(own):
    before = list(sys.path)
    first, again, other = (build("users_networks:small", **images(), seed=seed, folder=own) for seed in (1, 1, 2))
    assert parameter_count(first) == 64 * 7 + 7 + 70 + 10
    assert torch.equal(flat(first), flat(again))
    assert not torch.equal(flat(first), flat(other))
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("users_networks:missing", "must name a function of users_networks; 'missing' is not one"),
        ("users_networks:number", "must name a function"),
        ("users_networks:no_module", "must return a torch.nn.Module, got str"),
        ("no_such_module:small", "must name a module that can be imported; importing 'no_such_module' failed"),
        ("torch:ones", "must return a torch.nn.Module, got Tensor"),
        ("json:dumps", "must be a function of (channels, height, width, classes)"),
        (":small", "must name a module that can be imported"),
    ],
)
def test_what_is_no_network_is_refused_in_one_sentence(own, name, sentence):
    with pytest.raises(InvalidInputError) as refused:
        build(name, **images(), seed=0, folder=own)
    assert sentence in str(refused.value)


def test_a_changed_source_has_another_digest(own):
    before = source_digest("users_networks:small", own)
    (own / "users_networks.py").write_text(OWN + "\n# changed\n")
    assert source_digest("users_networks:small", own) != before
    assert source_digest("cnn", own) is None
