"""Layers for a whole stack of clients, which replace PyTorch's own in a copy of the model.

Convolutions become matrix products over patches, because vmap turns a convolution into a grouped one, which is slow on
every device. Batch normalisation takes a weight for each sample, so that padded samples do not count, and returns its
new statistics instead of writing them.
"""

import copy

import torch
from torch import nn
from torch.nn import functional

from fewjoules.engine.simulator.stack.recurrent import StackedLSTM, can_stack
from fewjoules.engine.simulator.stack.replacement import Replacement


class PatchConv2d(Replacement):
    """``nn.Conv2d`` with a square kernel and zero padding, computed as patches times a matrix."""

    def __init__(self, conv: nn.Conv2d, precision: str) -> None:
        """Share the parameters of ``conv``."""
        super().__init__(conv)
        self.weight, self.bias = conv.weight, conv.bias
        self._precision = precision
        self._kernel, self._stride, self._padding = conv.kernel_size[0], conv.stride[0], int(conv.padding[0])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Convolve (batch, channels, height, width) to (batch, out, height, width), channels innermost in memory."""
        if images.is_cuda:
            from fewjoules.engine.simulator.cuda import conv

            if conv.supports(images.shape, self.weight.shape, self._stride, self._padding):
                shape = (self._stride, self._padding, self._precision)
                return conv.convolve(images, self.weight, self.bias, *shape)
        return self._by_slices(images)

    def _by_slices(self, images: torch.Tensor) -> torch.Tensor:
        """Convolve by shifted slices: a compiler fuses them, and their gradient, into one kernel without atomics."""
        last = functional.pad(images, (self._padding,) * 4).permute(0, 2, 3, 1)
        kernel, stride = self._kernel, self._stride
        tall, wide = ((size - kernel) // stride + 1 for size in last.shape[1:3])
        shifted = [
            last[:, i : i + (tall - 1) * stride + 1 : stride, j : j + (wide - 1) * stride + 1 : stride]
            for i in range(kernel)
            for j in range(kernel)
        ]
        rows = torch.stack(shifted, dim=3).flatten(3).flatten(0, 2)
        out = rows @ self.weight.permute(2, 3, 1, 0).flatten(0, 2)
        if self.bias is not None:
            out = out + self.bias
        return out.unflatten(0, (images.shape[0], tall, wide)).permute(0, 3, 1, 2)


class StackedGroupNorm(Replacement):
    """``nn.GroupNorm`` in plain arithmetic: vmap supports PyTorch's own for one memory layout only."""

    num_groups: int
    eps: float

    def __init__(self, norm: nn.GroupNorm) -> None:
        """Share the parameters of ``norm``."""
        super().__init__(norm)
        self.weight, self.bias = norm.weight, norm.bias

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalise each group of channels of each sample."""
        grouped = inputs.float().unflatten(1, (self.num_groups, -1))
        axes = list(range(2, grouped.ndim))
        variance, mean = torch.var_mean(grouped, axes, correction=0, keepdim=True)
        normal = ((grouped - mean) * torch.rsqrt(variance + self.eps)).flatten(1, 2)
        shape = [-1, *[1] * (inputs.ndim - 2)]
        return normal if self.weight is None else normal * self.weight.view(shape) + self.bias.view(shape)


class WeightedBatchNorm(Replacement):
    """Batch normalisation of weighted samples; it puts its new running statistics into ``updated``."""

    running_mean: torch.Tensor | None
    running_var: torch.Tensor | None
    sample_weights: torch.Tensor | None

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm) -> None:
        """Share parameters and statistics of ``norm``."""
        super().__init__(norm)
        self.weight, self.bias = norm.weight, norm.bias
        self.eps, self.momentum = norm.eps, 0.1 if norm.momentum is None else norm.momentum
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)
        self.register_buffer("sample_weights", None)
        self.updated: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalise by the batch in training or without running statistics, otherwise by the running statistics."""
        axes = [0, *range(2, inputs.ndim)]
        shape = [1, -1, *[1] * (inputs.ndim - 2)]
        if not self.training and self.running_mean is not None and self.running_var is not None:
            mean, variance = self.running_mean, self.running_var
        else:
            mean, variance = self._batch_statistics(inputs.float(), axes, shape)
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        shift = -mean * scale if self.bias is None else self.bias - mean * scale
        return inputs * scale.view(shape) + shift.view(shape)

    def _batch_statistics(
        self, inputs: torch.Tensor, axes: list[int], shape: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        pixels = inputs[0, 0].numel()
        if self.sample_weights is None:
            count = torch.tensor(float(inputs.shape[0] * pixels), device=inputs.device)
            mean = inputs.mean(axes)
            variance = (inputs - mean.view(shape)).square().mean(axes)
        else:
            weights = self.sample_weights.view(-1, *[1] * (inputs.ndim - 1))
            count = (self.sample_weights > 0).sum() * pixels
            mean = (inputs * weights).sum(axes) / pixels
            variance = ((inputs - mean.view(shape)).square() * weights).sum(axes) / pixels
        if self.training and self.running_mean is not None and self.running_var is not None:
            before = self.updated or (self.running_mean, self.running_var)
            unbiased = variance.detach() * count / (count - 1.0).clamp(min=1.0)
            pairs = zip(before, (mean.detach(), unbiased), strict=True)
            self.updated = tuple(torch.lerp(old, new, self.momentum) for old, new in pairs)  # type: ignore[assignment]
        return mean, variance


def stackable(model: nn.Module, precision: str = "float32") -> nn.Module:
    """Return a deep copy of the model in training mode, with its layers replaced where a stacked version exists.

    ``train()`` is called before, since one of the model's own may look for layers by their class, to keep them frozen.
    """
    copied = copy.deepcopy(model)
    copied.train()
    return _with_replacements(copied, precision, {})


def _with_replacements(module: nn.Module, precision: str, known: dict[nn.Module, nn.Module]) -> nn.Module:
    """Return the module with its layers replaced; a layer in several places has one replacement, in ``known``."""
    if module not in known:
        known[module] = _replacement(module, precision)
        if known[module] is module and not _has_hooks(module):
            for name, child in module._modules.items():
                if child is not None:
                    setattr(module, name, _with_replacements(child, precision, known))
    return known[module]


def _replacement(module: nn.Module, precision: str) -> nn.Module:
    """Return the stacked version of a layer, or the module itself where there is none."""
    if _has_hooks(module) or "forward" in vars(module):  # which make of it something else than its class says
        return module
    if type(module) is nn.Conv2d and _is_plain(module):
        return PatchConv2d(module, precision)
    if type(module) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d) and _has_plain_statistics(module):
        return WeightedBatchNorm(module)  # type: ignore[arg-type]
    if type(module) is nn.GroupNorm:
        return StackedGroupNorm(module)
    if type(module) is nn.LSTM and can_stack(module):
        return StackedLSTM(module)
    return module


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _is_plain(conv: nn.Conv2d) -> bool:
    square = all(a == b for a, b in (conv.kernel_size, conv.stride)) and conv.dilation == (1, 1)
    zeros = conv.padding_mode == "zeros" and not isinstance(conv.padding, str) and len(set(conv.padding)) == 1
    return square and zeros and conv.groups == 1


def _has_plain_statistics(norm: nn.Module) -> bool:
    return not getattr(norm, "track_running_stats", False) or getattr(norm, "momentum", None) is not None
