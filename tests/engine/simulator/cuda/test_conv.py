"""Stacked convolutions in Triton give what PyTorch's give for each client alone, forwards and backwards.

They need Triton and a GPU, or TRITON_INTERPRET=1, with which Triton's interpreter stands in for the GPU.
"""

import os

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from fewjoules.errors import InvalidInputError
from tests.engine.late import Late

pytestmark = pytest.mark.gpu
conv_cuda = Late("fewjoules.engine.simulator.cuda.conv")
conv_kernels = Late("fewjoules.engine.simulator.cuda.conv_kernels")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
QUICK = (Phase.explicit, Phase.generate)  # to shrink a failure takes minutes in the interpreter
needs_cuda = pytest.mark.skipif(INTERPRETED, reason="the interpreter knows one arithmetic only")
OPERATIONS = {
    "fewjoules.stacked_conv.default",
    "fewjoules.stacked_conv_images_gradient.default",
    "fewjoules.stacked_conv_weights_gradient.default",
}


def normal(*size, seed=0):
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def problem(clients, batch, channels, height, width, out, kernel, seed=0):
    """Images, weights and biases of a stack of clients in float64."""
    images = normal(clients, batch, channels, height, width, seed=seed)
    return images, normal(clients, out, channels, kernel, kernel, seed=seed + 1), normal(clients, out, seed=seed + 2)


def expected(tensors, stride, padding):
    """Images and gradients of the sum of their squares, one client after the other, in float64."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    one = [functional.conv2d(*client, stride, padding) for client in zip(*leaves, strict=True)]
    out = torch.stack(one)
    return [out.detach(), *torch.autograd.grad((out**2).sum(), leaves)]


def stacked(tensors, stride, padding, precision):
    """The same by ``convolve`` under vmap, in float32."""
    leaves = [tensor.float().requires_grad_() for tensor in tensors]
    out = vmap(lambda *client: conv_cuda.convolve(*client, stride, padding, precision))(*leaves)
    return [out.detach(), *torch.autograd.grad((out.float() ** 2).sum(), leaves)]


def assert_close(found, wanted, tolerance):
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        assert (ours.double() - theirs).abs().max() <= tolerance * theirs.abs().max()


CHANNELS = st.sampled_from([1, 2, 3, 7, 16, 20, 32, 33])
SIDES = st.integers(5, 10)


@settings(deadline=None, derandomize=True, max_examples=16 if INTERPRETED else 60, phases=QUICK)
@given(
    st.integers(1, 3),
    st.integers(1, 2),
    CHANNELS,
    SIDES,
    SIDES,
    CHANNELS,
    st.integers(1, 5),
    st.integers(1, 2),
    st.data(),
)
def test_images_and_gradients_are_those_of_each_client_alone(
    clients, batch, channels, height, width, out, kernel, stride, data
):
    padding = data.draw(st.integers(0, 2))
    tensors = problem(clients, batch, channels, height, width, out, kernel)
    assert_close(stacked(tensors, stride, padding, "float32"), expected(tensors, stride, padding), 1e-5)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(1, 3, 0), (2, 3, 1), (5, 3, 4), (7, 4, 3), (3, 2, 5)])
def test_strides_and_paddings_that_no_common_network_has(kernel, stride, padding):
    tensors = problem(2, 1, 3, 11, 8, 4, kernel)
    assert_close(stacked(tensors, stride, padding, "float32"), expected(tensors, stride, padding), 1e-5)


@pytest.mark.parametrize("by_tap", [False, True])
@pytest.mark.parametrize(("channels", "out"), [(20, 18), (32, 16), (5, 33)])
@pytest.mark.parametrize("stride", [1, 2])
def test_every_way_to_cut_the_work_gives_the_same(by_tap, channels, out, stride):
    shape = conv_kernels.Shape(6, 5, channels, out, 3, stride, 1)
    tile = conv_kernels.Tile(pixels=16, block=16, columns=16, by_tap=by_tap, part_pixels=10)
    images, weight, bias = problem(2, 2, channels, 6, 5, out, 3)
    wanted = expected((images, weight, bias), stride, 1)
    last = [tensor.permute(0, 1, 3, 4, 2).float().contiguous() for tensor in (images, 2.0 * wanted[0])]
    matrix = weight.permute(0, 3, 4, 2, 1).float().contiguous()
    forward = conv_kernels.launch_forward(last[0], matrix, bias.float(), shape, tile, "float32")
    of_images = conv_kernels.launch_images_gradient(last[1], matrix, shape, tile, "float32")
    parts = conv_kernels.launch_weights_gradient(last[0], last[1], shape, tile, "float32")
    assert parts.shape[0] > 1
    found = [forward.permute(0, 1, 4, 2, 3), of_images.permute(0, 1, 4, 2, 3), parts.sum(0).permute(0, 4, 3, 1, 2)]
    assert_close(found, wanted[:3], 1e-5)


def test_a_client_gets_the_same_bits_alone_and_among_others():
    tensors = problem(3, 2, 16, 8, 8, 20, 3)
    together = stacked(tensors, 1, 1, "float32")
    alone = stacked([tensor[1:2] for tensor in tensors], 1, 1, "float32")
    for many, one in zip(together, alone, strict=True):
        assert torch.equal(many[1:2], one)


def test_one_client_without_vmap_and_without_bias():
    images, weight, _ = (tensor[0] for tensor in problem(1, 2, 3, 8, 8, 6, 3))
    leaf = weight.float().requires_grad_()
    out = conv_cuda.convolve(images.float(), leaf, None, 2, 1, "float32")
    zeros = torch.zeros((1, 6), dtype=torch.float64, device=DEVICE)
    wanted = expected((images[None], weight[None], zeros), 2, 1)
    assert out.permute(0, 2, 3, 1).is_contiguous()
    assert_close([out[None], torch.autograd.grad((out**2).sum(), leaf)[0][None]], [wanted[0], wanted[2]], 1e-5)


def test_shared_images_reach_every_client():
    images, weight, bias = problem(2, 2, 3, 6, 6, 4, 3)
    shared = images[:1].expand(2, -1, -1, -1, -1)
    wanted = expected((shared, weight, bias), 1, 1)[0]
    found = vmap(conv_cuda.convolve, (None, 0, 0, None, None, None))(
        images[0].float(), weight.float(), bias.float(), 1, 1, "float32"
    )
    assert_close([found], [wanted], 1e-5)


def two_layers(images, first, second, bias):
    """Mean squares of two convolutions, for one client."""
    hidden = torch.relu(conv_cuda.convolve(images, first, None, 2, 1, "float32"))
    return (conv_cuda.convolve(hidden, second, bias, 1, 0, "float32") ** 2).mean()


def gradients(images, *parameters):
    leaves = [parameter.detach().requires_grad_() for parameter in parameters]
    losses = vmap(two_layers)(images, *leaves)
    return list(torch.autograd.grad(losses.sum(), leaves))


def test_a_traced_step_holds_the_operations_and_gives_the_same_numbers():
    images, first, _ = problem(2, 2, 3, 9, 9, 16, 3)
    second, bias = normal(2, 5, 16, 2, 2, seed=5), normal(2, 5, seed=6)
    arguments = [tensor.float() for tensor in (images, first, second, bias)]
    graph = make_fx(gradients)(*arguments)
    targets = [str(node.target) for node in graph.graph.nodes]
    assert set(targets) >= OPERATIONS
    assert targets.count("fewjoules.stacked_conv_images_gradient.default") == 1  # none for what comes in
    for traced, direct in zip(graph(*arguments), gradients(*arguments), strict=True):
        assert torch.equal(traced, direct)


def test_the_operations_describe_themselves_rightly():
    images, matrix = normal(2, 2, 7, 9, 3).float(), normal(2, 3, 3, 3, 5).float()
    out = conv_cuda.stacked_conv(images, matrix, None, 2, 1, "float32")
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(conv_cuda.stacked_conv, (images, matrix, None, 2, 1, "float32"), test_utils=checks)
    backwards = (out, matrix, list(images.shape), 2, 1, "float32")
    torch.library.opcheck(conv_cuda.stacked_conv_images_gradient, backwards, test_utils=checks)
    torch.library.opcheck(conv_cuda.stacked_conv_weights_gradient, (images, out, 3, 2, 1, "float32"), test_utils=checks)


GOOD = {"images_shape": (2, 3, 8, 8), "weight_shape": (4, 3, 3, 3), "stride": 1, "padding": 1}
REFUSED = {
    "a kernel above 7": {"weight_shape": (4, 3, 8, 8)},
    "a kernel that is not square": {"weight_shape": (4, 3, 3, 5)},
    "channels that do not match": {"weight_shape": (4, 2, 3, 3)},
    "513 channels": {"images_shape": (2, 513, 8, 8), "weight_shape": (4, 513, 3, 3)},
    "513 channels that come out": {"weight_shape": (513, 3, 3, 3)},
    "an image smaller than the kernel": {"images_shape": (2, 3, 2, 8), "padding": 0},
    "no stride": {"stride": 0},
    "a negative padding": {"padding": -1},
    "no images": {"images_shape": (0, 3, 8, 8)},
    "images of more than 2^30 numbers": {"images_shape": (2**20, 64, 8, 8), "weight_shape": (4, 64, 3, 3)},
}


def test_what_is_supported():
    assert conv_cuda.supports(**GOOD)
    assert conv_cuda.supports((1, 512, 7, 7), (512, 512, 7, 7), 1, 0)


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(change):
    assert not conv_cuda.supports(**(GOOD | change))


def test_bad_arguments_raise():
    images, weight, _ = (tensor[0].float() for tensor in problem(1, 2, 3, 8, 8, 4, 3))
    with pytest.raises(InvalidInputError, match="precision must be one of float32, tf32, bf16, got 'half'"):
        conv_cuda.convolve(images, weight, None, 1, 1, "half")
    with pytest.raises(InvalidInputError, match="padding -1"):
        conv_cuda.convolve(images, weight, None, 1, -1, "float32")


# k, in, out, side, stride, padding: the layers of LeNet5, ResNet20 and the small CNN
LAYERS = [
    (5, 1, 20, 28, 1, 0),
    (5, 20, 50, 12, 1, 0),
    (3, 3, 16, 32, 1, 1),
    (3, 16, 16, 32, 1, 1),
    (3, 16, 32, 32, 2, 1),
    (3, 32, 32, 16, 1, 1),
    (3, 32, 64, 16, 2, 1),
    (3, 64, 64, 8, 1, 1),
    (3, 1, 16, 8, 1, 1),
    (3, 16, 32, 4, 1, 1),
    (3, 512, 300, 6, 1, 1),
]


@needs_cuda
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("tf32", 5e-3), ("bf16", 4e-2)])
def test_the_layers_of_the_models_in_every_arithmetic(layer, precision, tolerance):
    kernel, channels, out, side, stride, padding = layer
    tensors = problem(3, 8, channels, side, side, out, kernel)
    found = stacked(tensors, stride, padding, precision)
    assert_close(found, expected(tensors, stride, padding), tolerance)
    assert found[0].dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)
    for first, second in zip(found, stacked(tensors, stride, padding, precision), strict=True):
        assert torch.equal(first, second)


@needs_cuda
def test_more_numbers_than_32_bits_count():
    clients, side = 70, 256
    if torch.cuda.get_device_properties(0).total_memory < 40 * 2**30:
        pytest.skip("needs 40 GiB of GPU memory")
    size = (clients, 32, side, side, 16)
    images = torch.empty(size, dtype=torch.bfloat16, device=DEVICE).normal_()
    matrix = torch.empty((clients, 3, 3, 16, 16), dtype=torch.bfloat16, device=DEVICE).normal_()
    options = (1, 1, "bf16")
    alone = (images[-1:], matrix[-1:])
    assert images.numel() > 2**31
    assert torch.equal(
        conv_cuda.stacked_conv(images, matrix, None, *options)[-1:], conv_cuda.stacked_conv(*alone, None, *options)
    )
    assert torch.equal(
        conv_cuda.stacked_conv_images_gradient(images, matrix, list(size), *options)[-1:],
        conv_cuda.stacked_conv_images_gradient(*alone, [1, *size[1:]], *options),
    )
    assert torch.equal(
        conv_cuda.stacked_conv_weights_gradient(images, images, 3, *options)[:, -1:],
        conv_cuda.stacked_conv_weights_gradient(alone[0], alone[0], 3, *options),
    )
