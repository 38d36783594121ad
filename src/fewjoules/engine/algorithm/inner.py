"""Line 6 of Algorithm 1: one local step, by SGD, with momentum, or by AdamW [LOSHCHILOV19].

With gradient g (clipped, and with weight decay added where it is not AdamW's), step size eta, t steps taken so far:

    sgd       w <- w - eta g
    momentum  v <- mu v + g                   w <- w - eta v
    adamw     v <- mu v + (1 - mu) g          w <- w - eta decay w
              s <- beta2 s + (1 - beta2) g^2  w <- w - eta (v / (1 - mu^t)) / (sqrt(s / (1 - beta2^t)) + epsilon)

Tensors may have a leading axis of clients. ``step_in_place`` is for a processor; ``traced_step`` returns new tensors
and takes the step size as a tensor, so that a GPU can record it. tests/engine/test_contract.py compares the two.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from fewjoules.engine.algorithm.rule import InnerRule

_CLIP_EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_


@dataclass(slots=True)
class Moments:
    """Moments of each parameter tensor, and the number of steps taken: one number or (clients,)."""

    velocity: list[torch.Tensor] = field(default_factory=list)
    squares: list[torch.Tensor] = field(default_factory=list)
    steps: Any = 0


def step_in_place(
    weights: list[torch.Tensor],
    gradients: list[torch.Tensor],
    rate: float,
    rule: InnerRule,
    moments: Moments,
    *,
    stacked: bool,
) -> None:
    """Take one local step and change ``weights`` and ``moments`` in place."""
    gradients = _prepared(weights, gradients, rule, stacked)
    if rule.kind == "adamw":
        stepped, new = _adamw(weights, gradients, rate, rule, moments)
        torch._foreach_copy_(weights, stepped)
        moments.velocity, moments.squares, moments.steps = new.velocity, new.squares, new.steps
        return
    if rule.kind == "momentum":
        torch._foreach_mul_(moments.velocity, rule.momentum)
        torch._foreach_add_(moments.velocity, gradients)
        gradients = moments.velocity
    torch._foreach_add_(weights, gradients, alpha=-rate)


def traced_step(
    weights: list[torch.Tensor], gradients: list[torch.Tensor], rate: Any, rule: InnerRule, moments: Moments
) -> tuple[list[torch.Tensor], Moments]:
    """Take one local step for a stack of clients and return new weights and moments."""
    gradients = _prepared(weights, gradients, rule, True)
    if rule.kind == "adamw":
        return _adamw(weights, gradients, rate, rule, moments)
    if rule.kind == "momentum":
        gradients = [rule.momentum * v + g for v, g in zip(moments.velocity, gradients, strict=True)]
        moments = Moments(velocity=gradients)
    return [w - rate * g for w, g in zip(weights, gradients, strict=True)], moments


def _prepared(
    weights: list[torch.Tensor], gradients: list[torch.Tensor], rule: InnerRule, stacked: bool
) -> list[torch.Tensor]:
    """Return the gradients after clipping and weight decay."""
    if rule.clip is not None:
        axes = [list(range(1 if stacked else 0, g.ndim)) for g in gradients]
        squares = [g.square().sum(own) if own else g.square() for g, own in zip(gradients, axes, strict=True)]
        norms = torch.stack(squares).sum(0).sqrt()
        scale = (rule.clip / (norms + _CLIP_EPSILON)).clamp(max=1.0)
        gradients = [g * _along(scale, g) for g in gradients]
    if rule.weight_decay and rule.kind != "adamw":
        gradients = [g + rule.weight_decay * w for g, w in zip(gradients, weights, strict=True)]
    return gradients


def _adamw(
    weights: list[torch.Tensor], gradients: list[torch.Tensor], rate: Any, rule: InnerRule, moments: Moments
) -> tuple[list[torch.Tensor], Moments]:
    steps = moments.steps + 1
    first, second = (_correction(beta, steps) for beta in (rule.momentum, rule.beta2))
    new_weights, velocity, squares = [], [], []
    for w, g, v, s in zip(weights, gradients, moments.velocity, moments.squares, strict=True):
        v = rule.momentum * v + (1.0 - rule.momentum) * g
        s = rule.beta2 * s + (1.0 - rule.beta2) * g.square()
        mean, spread = v / _along(first, v), (s / _along(second, s)).sqrt()
        new_weights.append(w * (1.0 - rate * rule.weight_decay) - rate * mean / (spread + rule.epsilon))
        velocity.append(v)
        squares.append(s)
    return new_weights, Moments(velocity, squares, steps)


def _correction(beta: float, steps: Any) -> Any:
    """Return 1 - beta^t, the bias after t steps of a moment that started at zero."""
    if not torch.is_tensor(steps):
        return 1.0 - beta**steps
    return (1.0 - torch.pow(beta, steps.double())).float()


def _along(factor: Any, tensor: torch.Tensor) -> Any:
    """Reshape one factor per client so that it broadcasts over a stack; a single number stays as it is."""
    if not torch.is_tensor(factor) or factor.ndim == 0:
        return factor
    return factor.view(-1, *[1] * (tensor.ndim - 1))
