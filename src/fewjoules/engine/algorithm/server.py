"""The server's side of a round: lines 20 and 21 of Algorithm 1, and the outer optimiser between them.

    line 20   g = sum_m p_m g_m, p_m = 1/M                  ``mean_update``; p_m / pi_m with probabilities pi_m
    line 21   w <- w - g                                    ``server_step``; ``downlink`` where less is sent than g

An outer optimiser replaces the step g by another one (beta is ``outer_momentum``):

    momentum  v <- beta v + g                               w <- w - outer_rate v             [HSU19], [WANG20]
    nesterov  v <- beta v + g                               w <- w - outer_rate (g + beta v)  [DOUILLARD23]
    adam      v <- beta v + (1 - beta) g                    w <- w - outer_rate v / (sqrt(s) + epsilon)
              s <- beta2 s + (1 - beta2) g^2                                                  [REDDI21, algorithm 2]

Beside them the server may keep a mean of recent models, which is then evaluated and handed out in place of the last
one; devices go on from w, and neither compute nor send more for it. ``averaging`` is alpha, w the t-th of the models:

    average   a <- a + (w - a) / (1 + alpha (t - 1))                             [SHAMIR13], eta = 1/alpha - 1
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from fewjoules.arrays import Flags, FloatArray, Floats
from fewjoules.codec.aggregate import sum_of_updates
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.downlink import broadcast_of
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import RoundPlan, RoundResult
from fewjoules.engine.algorithm.state import Average, ServerState

Moments = dict[str, torch.Tensor]
_ROUNDING = 1e-12  # by which weights that sum to one may miss it


def mean_update(sent: Sequence[SparseUpdate], delivered: Flags, parts: FloatArray) -> Floats:
    """Return the dense sum of p_m g_m of line 20; a lost upload counts as zero, and the other p_m stay as they are."""
    arrived = [one if here else _nothing(one.size) for one, here in zip(sent, delivered, strict=True)]
    return sum_of_updates(arrived, weights=weights_in_mean(parts))


def weights_in_mean(parts: FloatArray) -> FloatArray:
    """Return the ``parts`` of a cohort: summing to one to the last bit, if they sum to one but for rounding.

    Where clients have probabilities of their own, they sum to one only on average.
    """
    total = parts.sum()
    return parts / total if math.isclose(total, 1.0, rel_tol=_ROUNDING) else parts


def _nothing(size: int) -> SparseUpdate:
    return SparseUpdate.trusted(size, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))


def mean_buffers(stacked: torch.Tensor, before: torch.Tensor, delivered: Flags, parts: FloatArray) -> torch.Tensor:
    """Return the mean of the delivered rows of ``stacked`` (participants, buffers), or ``before`` if there are none."""
    if not delivered.any() or not before.numel():
        return before
    arrived = torch.from_numpy(np.where(delivered, parts, 0.0)).to(stacked.device)
    rows = stacked.double().masked_fill_((arrived == 0.0)[:, None], 0.0)  # 0 times an infinite entry is NaN
    return ((arrived / arrived.sum()) @ rows).float()


def server_step(state: ServerState, plan: RoundPlan, result: RoundResult) -> ServerState:
    """Return the state after line 21; ``state`` itself is not changed."""
    step, outer = OUTER[plan.options.outer](result.mean_update, state.outer, plan.options)
    rate = plan.options.outer_rate * (plan.step_scale if plan.options.outer == "adam" else 1.0)
    if rate != 1.0:  # smaller local steps make the others smaller, but not that of Adam, which divides by their size
        step = rate * step
    broadcast = broadcast_of(step, state.residual, plan.options, plan.number)
    weights = state.weights - broadcast.sent
    reached = plan.participants if result.reached is None else plan.participants[result.reached]
    return replace(
        state,
        round=plan.number,
        weights=weights,
        buffers=result.buffers,
        accepted=state.accepted.with_round(plan.participants[result.delivered], plan.number),
        synced=state.synced.with_round(reached, plan.number),
        broadcast=broadcast.chosen,
        residual=broadcast.residual,
        changed=_last_changes(state, weights, plan.number),
        outer=outer,
        average=_average(state.average, weights, result.buffers, plan),
    )


def _average(before: Average | None, weights: torch.Tensor, buffers: torch.Tensor, plan: RoundPlan) -> Average | None:
    """Return the mean of recent models after a round; it covers about the part ``averaging`` of all of them."""
    if plan.options.averaging == 0.0:
        return None
    if before is None:
        return Average(weights, buffers, models=1)
    share = 1.0 / (1.0 + plan.options.averaging * before.models)
    moved = _towards(before.weights, weights, share), _towards(before.buffers, buffers, share)
    return Average(*moved, models=before.models + 1)


def _towards(before: torch.Tensor, now: torch.Tensor, share: float) -> torch.Tensor:
    """Return what is so far on the way from ``before`` to ``now``, with the same bits on all processors.

    ``torch.lerp`` rounds once where a processor has a fused multiply-add, and twice where it has none. Entries that are
    equal stay, infinite ones too; an entry whose mean would be infinite or NaN is that of ``now``.
    """
    mean = (now - before).mul_(share).add_(before)
    return torch.where((before != now) & mean.isfinite(), mean, now)


def called_off(state: ServerState, plan: RoundPlan) -> ServerState:
    """Return the state after a round that changed nothing: its participants have received the model of ``state``."""
    synced = state.synced.with_round(plan.participants, plan.number)
    return replace(state, round=plan.number, synced=synced, broadcast=state.broadcast[:0])


def returned(state: ServerState, good: ServerState) -> ServerState:
    """Return the state in which training goes on after the guard went back from ``state`` to an earlier ``good`` one.

    The round's number, and the record of which model each client has, stay: devices must be sent what changed back.
    ``accepted`` goes back with the residuals of the clients, which are those of the uploads accepted by then.
    """
    return replace(
        good,
        round=state.round,
        synced=state.synced,
        broadcast=state.broadcast[:0],
        changed=_last_changes(state, good.weights, state.round),
        returns=(*state.returns, state.round),
    )


def _last_changes(state: ServerState, weights: torch.Tensor, number: int) -> torch.Tensor:
    """Return the last round in which each weight changed, if that is noted; bits are compared, since -0.0 == 0.0."""
    if not state.changed.numel():
        return state.changed
    return state.changed.masked_fill(weights.view(torch.int32) != state.weights.view(torch.int32), number)


def _no_moments(update: torch.Tensor, moments: Moments, _options: TrainingOptions) -> tuple[torch.Tensor, Moments]:
    return update, moments


def _momentum(update: torch.Tensor, moments: Moments, options: TrainingOptions) -> tuple[torch.Tensor, Moments]:
    velocity = _velocity(update, moments, options)
    return velocity, {"velocity": velocity}


def _nesterov(update: torch.Tensor, moments: Moments, options: TrainingOptions) -> tuple[torch.Tensor, Moments]:
    velocity = _velocity(update, moments, options)
    return update + options.outer_momentum * velocity, {"velocity": velocity}


def _velocity(update: torch.Tensor, moments: Moments, options: TrainingOptions) -> torch.Tensor:
    before = moments.get("velocity")
    return update if before is None else options.outer_momentum * before + update


def _adam(update: torch.Tensor, moments: Moments, options: TrainingOptions) -> tuple[torch.Tensor, Moments]:
    beta, beta2, epsilon = options.outer_momentum, options.outer_beta2, options.outer_epsilon
    before = moments or {"velocity": torch.zeros_like(update), "squares": torch.full_like(update, epsilon**2)}
    velocity = beta * before["velocity"] + (1.0 - beta) * update
    squares = beta2 * before["squares"] + (1.0 - beta2) * update.square()
    return velocity / (squares.sqrt() + epsilon), {"velocity": velocity, "squares": squares}


OUTER_MOMENTS = {
    "none": (),
    "momentum": ("velocity",),
    "nesterov": ("velocity",),
    "adam": ("velocity", "squares"),
}
OUTER: dict[str, Callable[[torch.Tensor, Moments, TrainingOptions], tuple[torch.Tensor, Moments]]] = {
    "none": _no_moments,
    "momentum": _momentum,
    "nesterov": _nesterov,
    "adam": _adam,
}
