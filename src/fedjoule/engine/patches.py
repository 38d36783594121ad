"""Convolution and pooling on the processor for a stack of clients: patches gathered by numba, then matrix products.

Images are (clients, batch, channels, height, width) with the channels innermost in memory, so that a row of a patch
is one run of consecutive numbers. PyTorch's own convolution takes more than twice as long in the backward pass.
"""

from typing import Any

import numba
import numpy as np
import torch

Shape = tuple[int, ...]
_LONG_RUN = 32  # numbers from which a copy of a run pays for setting it up


@numba.njit(cache=True, nogil=True)
def _gather(images, kernel, stride, rows):
    """Row (image, i, j) of ``rows`` gets the patch of output pixel (i, j)."""
    count, height, width, channels = images.shape
    tall, wide = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    run = kernel * channels
    source, target = images.reshape(images.size), rows.reshape(rows.size)
    at = 0
    for image in range(count):
        for i in range(tall):
            for j in range(wide):
                for k in range(kernel):
                    start = ((image * height + i * stride + k) * width + j * stride) * channels
                    if run >= _LONG_RUN:
                        target[at : at + run] = source[start : start + run]
                    else:
                        for q in range(run):
                            target[np.uint64(at + q)] = source[np.uint64(start + q)]
                    at += run


@numba.njit(cache=True, nogil=True)
def _scatter(rows, kernel, stride, images):
    """The transpose of ``_gather``: every number is added to the pixel it came from."""
    count, height, width, channels = images.shape
    tall, wide = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    run = kernel * channels
    source, target = rows.reshape(rows.size), images.reshape(images.size)
    target[:] = 0.0
    at = 0
    for image in range(count):
        for i in range(tall):
            for j in range(wide):
                for k in range(kernel):
                    start = ((image * height + i * stride + k) * width + j * stride) * channels
                    if run >= _LONG_RUN:
                        added, sums = source[at : at + run], target[start : start + run]
                        for q in range(run):
                            sums[q] += added[q]
                    else:
                        for q in range(run):
                            target[np.uint64(start + q)] += source[np.uint64(at + q)]
                    at += run


@numba.njit(cache=True, nogil=True)
def _pool(images, largest, which):
    """The largest of each 2 x 2 pixels and which it was; of equals the first, and NaN wins, as in PyTorch."""
    count, height, width, channels = images.shape
    for image in range(count):
        for i in range(height // 2):
            for j in range(width // 2):
                a, b = images[image, 2 * i, 2 * j], images[image, 2 * i, 2 * j + 1]
                c, d = images[image, 2 * i + 1, 2 * j], images[image, 2 * i + 1, 2 * j + 1]
                best, index = largest[image, i, j], which[image, i, j]
                for q in range(channels):
                    top, chosen = a[q], np.uint8(0)
                    if not b[q] <= top:
                        top, chosen = b[q], np.uint8(1)
                    if not c[q] <= top:
                        top, chosen = c[q], np.uint8(2)
                    if not d[q] <= top:
                        top, chosen = d[q], np.uint8(3)
                    best[q] = top
                    index[q] = chosen


@numba.njit(cache=True, nogil=True)
def _unpool(gradient, which, images):
    """Each gradient goes to the pixel that was the largest."""
    _, height, width, channels = images.shape
    count, tall, wide, _ = gradient.shape
    flat, from_where, to = gradient.reshape(gradient.size), which.reshape(which.size), images.reshape(images.size)
    to[:] = 0.0
    at = np.uint64(0)
    for image in range(count):
        for i in range(tall):
            for j in range(wide):
                start = ((image * height + 2 * i) * width + 2 * j) * channels
                for q in range(channels):
                    chosen = from_where[at]
                    to[np.uint64(start + q + ((chosen >> 1) * width + (chosen & 1)) * channels)] = flat[at]
                    at += np.uint64(1)


def _channels_last(images: torch.Tensor) -> torch.Tensor:
    """(clients, batch, channels, height, width) as contiguous (clients * batch, height, width, channels)."""
    return images.permute(0, 1, 3, 4, 2).contiguous().flatten(0, 1)


def _planes(images: torch.Tensor, clients: int) -> torch.Tensor:
    """The inverse of ``_channels_last``, without a copy."""
    return images.unflatten(0, (clients, -1)).permute(0, 1, 4, 2, 3)


def _as_matrix(weight: torch.Tensor) -> torch.Tensor:
    """(clients, out, in, k, k) as (clients, k * k * in, out), rows in the order of a patch."""
    return weight.permute(0, 3, 4, 2, 1).flatten(1, 3)


class _Convolution(torch.autograd.Function):
    """Stacked convolution with square kernels; the patches are a second output so that backward may keep them."""

    @staticmethod
    def forward(
        images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: int, padding: int
    ) -> Any:
        clients, kernel = weight.shape[0], weight.shape[-1]
        last = _channels_last(torch.nn.functional.pad(images, (padding,) * 4) if padding else images)
        count, height, width, channels = last.shape
        tall, wide = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        rows = torch.empty((clients, count // clients * tall * wide, kernel * kernel * channels))
        _gather(last.numpy(), kernel, stride, rows.numpy())
        matrix = _as_matrix(weight)
        out = torch.bmm(rows, matrix) if bias is None else torch.baddbmm(bias[:, None], rows, matrix)
        return _planes(out.view(count, tall, wide, -1), clients), rows

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        images, weight, _, ctx.stride, ctx.padding = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weight, output[1])
        ctx.images_shape = images.shape

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: None) -> Any:
        weight, rows = ctx.saved_tensors
        clients, _, kernel = weight.shape[0], weight.shape[1], weight.shape[-1]
        channels = weight.shape[2]
        of_out = _channels_last(gradient).view(clients, rows.shape[1], -1)
        of_weight = of_images = None
        of_bias = of_out.sum(1) if ctx.needs_input_grad[2] else None
        if ctx.needs_input_grad[1]:
            product = torch.bmm(rows.mT, of_out)
            of_weight = product.unflatten(1, (kernel, kernel, channels)).permute(0, 4, 3, 1, 2)
        if ctx.needs_input_grad[0]:
            of_rows = torch.bmm(of_out, _as_matrix(weight).mT)
            padding = ctx.padding
            _, batch, _, height, width = ctx.images_shape
            last = torch.empty((clients * batch, height + 2 * padding, width + 2 * padding, channels))
            _scatter(of_rows.numpy(), kernel, ctx.stride, last.numpy())
            of_images = _planes(last[:, padding : padding + height, padding : padding + width], clients)
        return of_images, of_weight, of_bias, None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: Any,
        images: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        stride: int,
        padding: int,
    ) -> Any:
        images, weight = _stacked(info.batch_size, images, in_dims[0]), _stacked(info.batch_size, weight, in_dims[1])
        bias = None if bias is None else _stacked(info.batch_size, bias, in_dims[2])
        out, rows = _Convolution.apply(images, weight, bias, stride, padding)
        return (out[:, None], rows[:, None]), (0, 0)


class _Pooling(torch.autograd.Function):
    """2 x 2 maximum of stacked images; which pixel won is a second output so that backward may keep it."""

    @staticmethod
    def forward(images: torch.Tensor) -> Any:
        last = _channels_last(images)
        count, height, width, channels = last.shape
        largest = torch.empty((count, height // 2, width // 2, channels))
        which = torch.empty(largest.shape, dtype=torch.uint8)
        _pool(last.numpy(), largest.numpy(), which.numpy())
        return _planes(largest, images.shape[0]), which.unflatten(0, (images.shape[0], -1))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.images_shape = inputs[0].shape
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: None) -> Any:
        (which,) = ctx.saved_tensors
        clients, batch, channels, height, width = ctx.images_shape
        last = torch.empty((clients * batch, height, width, channels))
        _unpool(_channels_last(gradient).numpy(), which.flatten(0, 1).numpy(), last.numpy())
        return _planes(last, clients)

    @staticmethod
    def vmap(info: Any, in_dims: Any, images: torch.Tensor) -> Any:
        out, which = _Pooling.apply(_stacked(info.batch_size, images, in_dims[0]))
        return (out[:, None], which[:, None]), (0, 0)


def _stacked(clients: int, tensor: torch.Tensor, dim: int | None) -> torch.Tensor:
    """The hidden axis of vmap in place of the leading axis of length 1."""
    if dim is None:
        return tensor.expand(clients, *tensor.shape[1:])
    return tensor.movedim(dim, 0).flatten(0, 1)


def convolve(
    images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: int, padding: int
) -> torch.Tensor:
    """Convolution of (batch, channels, height, width) with (out, in, k, k), plus a bias (out,)."""
    stacked_bias = None if bias is None else bias[None]
    out: torch.Tensor = _Convolution.apply(images[None], weight[None], stacked_bias, stride, padding)[0][0]
    return out


def pool(images: torch.Tensor) -> torch.Tensor:
    """Maximum over 2 x 2 pixels with stride 2; an odd last row or column is left out."""
    out: torch.Tensor = _Pooling.apply(images[None])[0][0]
    return out
