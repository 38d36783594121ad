"""Convolution on a GPU for a stack of clients: the kernels of conv_kernels.py as PyTorch operators."""

from collections.abc import Sequence
from typing import Any

import torch

from fewjoules.engine.simulator.cuda.conv_kernels import (
    DOT_PRECISIONS,
    Shape,
    choose,
    launch_forward,
    launch_images_gradient,
    launch_weights_gradient,
)
from fewjoules.engine.simulator.cuda.stacked import stacked
from fewjoules.errors import InvalidInputError

_MAX_KERNEL, _MAX_CHANNELS = 7, 512
_MAX_NUMBERS = 2**30  # in one client's images, so that 32 bits hold every offset


def _shape(images: Sequence[int], out: int, kernel: int, stride: int, padding: int) -> Shape:
    """Return the sizes for images of shape (clients, batch, height, width, channels)."""
    _, _, height, width, channels = images
    return Shape(height, width, channels, out, kernel, stride, padding)


@torch.library.custom_op(
    "fewjoules::stacked_conv",
    mutates_args=(),
    schema="(Tensor images, Tensor weights, Tensor? bias, int stride, int padding, str precision) -> Tensor",
)
def stacked_conv(
    images: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None, stride: int, padding: int, precision: str
) -> torch.Tensor:
    """Convolve (clients, batch, height, width, in) with (clients, k, k, in, out)."""
    shape = _shape(images.shape, weights.shape[-1], weights.shape[1], stride, padding)
    tile = choose("forward", shape, images.element_size())
    given = None if bias is None else bias.contiguous()
    return launch_forward(images.contiguous(), weights.contiguous(), given, shape, tile, precision)


@stacked_conv.register_fake
def _(
    images: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None, stride: int, padding: int, precision: str
) -> torch.Tensor:
    shape = _shape(images.shape, weights.shape[-1], weights.shape[1], stride, padding)
    return images.new_empty((*images.shape[:2], shape.tall, shape.wide, shape.out))


@torch.library.custom_op(
    "fewjoules::stacked_conv_images_gradient",
    mutates_args=(),
    schema="(Tensor gradient, Tensor weights, int[] images, int stride, int padding, str precision) -> Tensor",
)
def stacked_conv_images_gradient(
    gradient: torch.Tensor, weights: torch.Tensor, images: Sequence[int], stride: int, padding: int, precision: str
) -> torch.Tensor:
    """Return the gradient of images of shape ``images``."""
    shape = _shape(images, weights.shape[-1], weights.shape[1], stride, padding)
    tile = choose("images", shape, gradient.element_size())
    return launch_images_gradient(gradient.contiguous(), weights.contiguous(), shape, tile, precision)


@stacked_conv_images_gradient.register_fake
def _(
    gradient: torch.Tensor, weights: torch.Tensor, images: Sequence[int], stride: int, padding: int, precision: str
) -> torch.Tensor:
    return gradient.new_empty(images)


@torch.library.custom_op(
    "fewjoules::stacked_conv_weights_gradient",
    mutates_args=(),
    schema="(Tensor images, Tensor gradient, int kernel, int stride, int padding, str precision) -> Tensor",
)
def stacked_conv_weights_gradient(
    images: torch.Tensor, gradient: torch.Tensor, kernel: int, stride: int, padding: int, precision: str
) -> torch.Tensor:
    """Return the gradient of the kernels as float32 parts (parts, clients, k, k, in, out) for the caller to add."""
    shape = _shape(images.shape, gradient.shape[-1], kernel, stride, padding)
    tile = choose("weights", shape, images.element_size())
    return launch_weights_gradient(images.contiguous(), gradient.contiguous(), shape, tile, precision)


@stacked_conv_weights_gradient.register_fake
def _(
    images: torch.Tensor, gradient: torch.Tensor, kernel: int, stride: int, padding: int, precision: str
) -> torch.Tensor:
    shape = _shape(images.shape, gradient.shape[-1], kernel, stride, padding)
    parts = choose("weights", shape, images.element_size()).parts(gradient.shape[1:4].numel())
    size = (parts, images.shape[0], kernel, kernel, shape.channels, shape.out)
    return torch.empty(size, dtype=torch.float32, device=images.device)


def _channels_last(images: torch.Tensor) -> torch.Tensor:
    return images.permute(0, 1, 3, 4, 2).contiguous()


class _Convolution(torch.autograd.Function):
    """Convolution of (clients, batch, in, height, width) with (clients, out, in, k, k) and a bias (clients, out)."""

    @staticmethod
    def forward(
        images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: int, padding: int, precision: str
    ) -> torch.Tensor:
        matrix = weight.permute(0, 3, 4, 2, 1).contiguous()
        given = None if bias is None else bias.contiguous()
        return stacked_conv(_channels_last(images), matrix, given, stride, padding, precision).permute(0, 1, 4, 2, 3)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        images, weight, bias, *ctx.options = inputs
        ctx.save_for_backward(images, weight)
        ctx.bias_dtype = None if bias is None else bias.dtype

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        images, weight = ctx.saved_tensors
        of_images = of_weight = of_bias = None
        of_out = _channels_last(gradient)
        if ctx.needs_input_grad[0]:
            clients, batch, channels, height, width = images.shape
            matrix = weight.permute(0, 3, 4, 2, 1).contiguous()
            size = [clients, batch, height, width, channels]
            of_images = stacked_conv_images_gradient(of_out, matrix, size, *ctx.options).permute(0, 1, 4, 2, 3)
        if ctx.needs_input_grad[1]:
            parts = stacked_conv_weights_gradient(_channels_last(images), of_out, weight.shape[-1], *ctx.options)
            of_weight = parts.sum(0).permute(0, 4, 3, 1, 2).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            of_bias = of_out.float().sum((1, 2, 3)).to(ctx.bias_dtype)
        return of_images, of_weight, of_bias, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        tensors = [stacked(info.batch_size, tensor, dim) for tensor, dim in zip(inputs[:3], in_dims[:3], strict=True)]
        return _Convolution.apply(*tensors, *inputs[3:])[:, None], 0


def supports(images_shape: Sequence[int], weight_shape: Sequence[int], stride: int, padding: int) -> bool:
    """Whether ``convolve`` supports images (batch, in, height, width) and a weight (out, in, k, k)."""
    batch, channels, height, width = images_shape
    out, inside, kernel, other = weight_shape
    small = 1 <= channels <= _MAX_CHANNELS and 1 <= out <= _MAX_CHANNELS and 1 <= kernel <= _MAX_KERNEL
    if not (small and inside == channels and kernel == other and stride >= 1 and padding >= 0 and batch >= 1):
        return False
    shape = Shape(height, width, channels, out, kernel, stride, padding)
    largest = max((height + 2 * padding) * (width + 2 * padding) * channels, shape.tall * shape.wide * out)
    return min(height, width) + 2 * padding >= kernel and batch * largest <= _MAX_NUMBERS


def convolve(
    images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: int, padding: int, precision: str
) -> torch.Tensor:
    """Convolve (batch, in, height, width) with (out, in, k, k), under vmap for a stack of clients.

    ``precision`` is "float32", "tf32" or "bf16", which also returns images in bfloat16. The channels of the result are
    innermost in memory.
    """
    if precision not in DOT_PRECISIONS:
        raise InvalidInputError(f"precision must be one of {', '.join(DOT_PRECISIONS)}, got {precision!r}")
    if not supports(images.shape, weight.shape, stride, padding):
        sizes = f"images {tuple(images.shape)}, weight {tuple(weight.shape)}, stride {stride} and padding {padding}"
        raise InvalidInputError(
            f"a stacked convolution must have a square kernel of at most {_MAX_KERNEL}, channels of at most "
            f"{_MAX_CHANNELS} and at most 2^30 numbers per client, got {sizes}"
        )
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    given = None if bias is None else bias.to(kind)[None]
    out: torch.Tensor = _Convolution.apply(
        images.to(kind)[None], weight.to(kind)[None], given, stride, padding, precision
    )
    return out[0]
