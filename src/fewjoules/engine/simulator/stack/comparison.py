"""Whether a stack computes what the model by itself does: loss, gradients and new buffers of one step of both.

Layers are replaced where a model holds them as modules. What else refers to a layer, such as a plain list, or asks for
its class finds another one in a stack, and only the numbers tell.
"""

import contextlib
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from fewjoules.engine.models.layout import Tensors
from fewjoules.engine.models.tree import Tree, leaves, map_tree
from fewjoules.engine.simulator.cpu.single import SingleModel
from fewjoules.engine.simulator.cuda.precision import arithmetic
from fewjoules.engine.simulator.federation import Batch
from fewjoules.engine.simulator.probe import rng_states
from fewjoules.engine.simulator.stack.model import ClientModel

_TRIES = 3  # with other weights each; only a stack of another model differs at all of them
_MOVED = 0.1  # of a tensor's typical weight: a layer that keeps its first weights shows in the loss
_NUDGED = 1e-5  # of each weight and input: what this changes is as sensitive to rounding
_AS_SENSITIVE = 10.0  # times as much as nudging changes a tensor, rounding may
_GRADIENT, _BUFFER, _LOSS = "gradient of {}", "value of {}", "{}"  # kinds of tensors, in the words of a warning
# What rounding may do: shares of the largest number of a tensor, and of that of all of its kind. Gradients jump, as the
# loss does not, where rounding takes numbers to the other side of a relu; some would be zero and are rounding alone.
_ROUNDING = {_GRADIENT: (0.1, 1e-3), _BUFFER: (1e-4, 1e-5), _LOSS: (1e-4, 0.0)}
_GRAINS = 10.0  # times the rounding of one number, where modules compute in fewer bits

_Step = dict[str, Tensors]  # tensors by kind and by name


class Comparison:
    """A step of the model by itself, and one of a stack of two clients, the second of which has slightly other numbers.

    How far it is from the first tells how far rounding may take the first from the model by itself. Weights are others
    than those that the copies of the model hold. Where random numbers are drawn, all is in evaluation mode.
    """

    def __init__(self, stack: ClientModel, samples: Batch, *, seeded: bool) -> None:
        """Compare on all ``samples``; no stream of random numbers moves."""
        self._stack, self._samples, self._seeded = stack, samples, seeded
        device = leaves(samples[0])[0].device
        self._devices = [device] if device.type == "cuda" else []
        self._random = torch.Generator().manual_seed(0)
        self._grain = 0.0

    def difference(self, model: nn.Module) -> str | None:
        """Return what differs by more than rounding explains; None if nothing does, or if it cannot be told."""
        found = None
        with torch.random.fork_rng(devices=self._devices), arithmetic("float32"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(_TRIES):
                found = self._difference_at(self._moved(self._stack.initial_weights), model)
                if found is None:
                    break
        return found

    def _difference_at(self, weights: torch.Tensor, model: nn.Module) -> str | None:
        """Return the first kind of what differs at these weights, with the tensor that differs most."""
        alone = self._alone(weights, model)
        if alone is None:
            return None
        stacked, nudged = self._stacked(weights)
        for kind, tensors in alone.items():
            excess = self._excess(_ROUNDING[kind], tensors, stacked[kind], nudged[kind])
            if excess:
                return kind.format(max(excess, key=excess.__getitem__))
        return None

    def _alone(self, weights: torch.Tensor, model: nn.Module) -> _Step | None:
        """Return a step of the model by itself; None if it fails, draws random numbers or gives some not finite."""
        stack, before = self._stack, rng_states(self._devices)
        buffers = stack.initial_buffers.clone()
        single = SingleModel(model, stack.objective, buffers.device)
        for module in single.net.modules():
            module.register_forward_hook(lambda _module, _inputs, out: self._note_precision(out))
        single.start(weights, buffers)
        try:
            with _evaluating(single.net, self._seeded):
                gradients, loss, _ = single.gradients(*self._samples)
        except Exception:  # it has taken two samples in training mode, and need not take these
            return None
        single.finish(torch.empty_like(weights), buffers)
        drawn = any(not torch.equal(*pair) for pair in zip(before, rng_states(self._devices), strict=True))
        finite = all(bool(torch.isfinite(one).all()) for one in (loss, buffers, *gradients))
        return None if drawn or not finite else self._step(gradients, stack.buffers.views(buffers), loss)

    def _note_precision(self, out: Any) -> None:
        """Note how coarse the numbers are that a module gives, such as those of autocast."""
        numbers = (one for one in leaves(out) if torch.is_tensor(one) and one.is_floating_point())
        self._grain = max(self._grain, *(torch.finfo(one.dtype).eps for one in numbers), 0.0)

    def _stacked(self, own: torch.Tensor) -> tuple[_Step, _Step]:
        """Return the step of each of the two clients of a stack."""
        stack, count = self._stack, len(leaves(self._samples[0])[0])
        weights = torch.stack([own, self._nudged(own)])
        inputs = map_tree(lambda one: torch.stack([one, self._nudged(one)]), self._samples[0])
        targets: Tree | None = map_tree(lambda one: torch.stack([one, one]), self._samples[1])
        buffers = stack.buffers.views(stack.initial_buffers.repeat(2, 1))
        shares = torch.full((2, count), 1.0 / count, device=weights.device)
        with _evaluating(stack.net, self._seeded):
            gradients, losses, _, new = stack.gradients(
                stack.parameters.views(weights), buffers, inputs, targets, shares
            )
        first, second = (
            self._step([one[row] for one in gradients], {name: one[row] for name, one in new.items()}, losses[row])
            for row in range(2)
        )
        return first, second

    def _step(self, gradients: list[torch.Tensor], buffers: Tensors, loss: torch.Tensor) -> _Step:
        named = dict(zip(self._stack.parameters.shapes, gradients, strict=True))
        return {_GRADIENT: named, _BUFFER: buffers, _LOSS: {"loss": loss}}

    def _excess(
        self, rounding: tuple[float, float], alone: Tensors, stacked: Tensors, nudged: Tensors
    ) -> dict[str, float]:
        """Return of each tensor that differs how many times more it does than rounding explains."""
        own, common = (max(share, _GRAINS * self._grain) for share in rounding)
        noise = common * max(map(_largest, alone.values()), default=0.0)
        excess = {}
        for name, one in alone.items():
            sensitive = _AS_SENSITIVE * _largest(nudged[name] - stacked[name])
            allowed = own * _largest(one) + noise + sensitive
            found = _largest(stacked[name] - one)
            if found > allowed:
                excess[name] = found / allowed if allowed else math.inf
        return excess

    def _moved(self, weights: torch.Tensor) -> torch.Tensor:
        """Return other weights of the same size; those of a tensor of zeros are not zero."""
        moved = weights.clone()
        for part in self._stack.parameters.parts(moved).values():
            typical = float(part.square().mean().sqrt()) or 1.0
            part += _MOVED * typical * (2.0 * self._drawn(part) - 1.0)
        return moved

    def _nudged(self, one: torch.Tensor) -> torch.Tensor:
        """Return the tensor with its numbers slightly nearer to zero, but for whole ones, which may be codes."""
        if not one.is_floating_point():
            return one
        return torch.where(one == one.round(), one, one * (1.0 - max(_NUDGED, self._grain) * self._drawn(one)))

    def _drawn(self, like: torch.Tensor) -> torch.Tensor:
        return torch.rand(like.shape, generator=self._random).to(like.device, like.dtype)


@contextlib.contextmanager
def _evaluating(net: nn.Module, wanted: bool) -> Iterator[None]:
    """Put the modules into evaluation mode for a while if ``wanted``, past methods of their own."""
    modes = {module: module.training for module in net.modules()}
    for module, training in modes.items():
        module.training = training and not wanted
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _largest(one: torch.Tensor) -> float:
    return float(one.abs().nan_to_num(nan=math.inf, posinf=math.inf).max()) if one.numel() else 0.0
