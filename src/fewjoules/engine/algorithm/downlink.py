"""What the server sends: the change of the model, compressed or exact, and to each client what it lacks.

With the server's step s (``server``), the residual r that it keeps, and C the d/delta largest entries, rounded to
``downlink_values`` as clients decode them:

    u = r + s,  c = C(u),  r <- u - c,  w <- w - c          [SATTLER19, Algorithm 2]

A client that has the model from before the last change gets c and subtracts it. One that was away gets the present
values of all weights that changed meanwhile and puts them in place: sums of float32 depend on their order, values do
not. Both then have the server's weights to the bit. Where the whole model is smaller, it is sent instead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from fewjoules.arrays import Floats
from fewjoules.codec.compressors import top_k
from fewjoules.codec.frame import decode, encode, encoded_size
from fewjoules.codec.update import SparseUpdate
from fewjoules.codec.values import KINDS, quantised
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.state import NO_MODEL, ServerState
from fewjoules.engine.algorithm.streams import stream
from fewjoules.errors import CorruptPayloadError, DivergedError, InvalidInputError
from fewjoules.planner.plan import kept_of

MAX_PARAMETERS = 2**31 - 1
_MAGNITUDE = 0x7FFFFFFF  # the bits of a float32 without its sign


@dataclass(frozen=True, slots=True)
class Broadcast:
    """A change of the weights: ``chosen`` before its values are rounded, ``sent`` as clients decode it.

    ``residual`` is what the server keeps for later. All are dense, on the training device.
    """

    chosen: torch.Tensor
    sent: torch.Tensor
    residual: torch.Tensor


def broadcast_of(step: torch.Tensor, residual: torch.Tensor, options: TrainingOptions, number: int) -> Broadcast:
    """Return what the server sends of its step in round ``number``; the exact step if nothing is compressed."""
    if not options.compresses_downlink:
        exact = step + 0.0  # without -0.0, which is not sent, and would turn a weight of -0.0 into 0.0
        return Broadcast(exact, exact, residual)
    carried = residual + step
    try:
        chosen = _largest(carried, int(kept_of(np.array(options.downlink_sparsity), carried.numel())))
        sent = chosen if options.downlink_values == "float32" else _rounded(chosen, options, number)
    except InvalidInputError as error:
        raise DivergedError(f"the broadcast of round {number} cannot be sent: {error}") from error
    return Broadcast(chosen, sent, carried - sent)


def sparse_of(dense: torch.Tensor) -> SparseUpdate:
    """Return the entries of a vector that are not zero, on the host."""
    positions = dense.nonzero().flatten()
    return SparseUpdate.trusted(dense.numel(), positions.cpu().numpy(), dense[positions].cpu().numpy())


@dataclass(frozen=True)
class ModelMessage:
    """What brings the weights of a client that holds the model after ``base`` rounds up to date.

    ``assigns`` tells values to put in place from a change to subtract. A base of NO_MODEL means that the message has
    every weight. ``draws`` returns the generator of values that are rounded at random.
    """

    base: int
    assigns: bool
    update: SparseUpdate
    values: str = "float32"
    levels: int = 15
    draws: Callable[[], np.random.Generator | None] = lambda: None

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the payload, by ``encoded_size``."""
        return encoded_size(self.update, values=self.values, levels=self.levels, rng=self.draws())

    @cached_property
    def payload(self) -> bytes:
        """The message as it is sent."""
        return encode(self.update, values=self.values, levels=self.levels, rng=self.draws())


class Downlink:
    """The messages that bring clients to the model of a state; clients that hold the same model share one."""

    def __init__(self, state: ServerState, options: TrainingOptions) -> None:
        """Make no message yet."""
        self._state, self._options = state, options
        self._messages: dict[int, ModelMessage] = {}

    def message(self, held: int) -> ModelMessage:
        """Return the message for a client that holds the model after ``held`` rounds; NO_MODEL if it has none."""
        if held not in self._messages:
            part, whole = self._part(held), self._whole
            smaller = part is not None and part.size_bytes < whole.size_bytes
            self._messages[held] = part if part is not None and smaller else whole
        return self._messages[held]

    def _part(self, held: int) -> ModelMessage | None:
        """Return what the client lacks; None if that is unknown or everything."""
        state = self._state
        if held == NO_MODEL:
            return None
        if held == state.round - 1 and state.broadcast.numel():
            return self.last_change()
        if not state.changed.numel():
            return None
        positions = np.flatnonzero(self._changed > held)
        update = SparseUpdate.trusted(self._weights.size, positions, self._weights[positions])
        return ModelMessage(held, True, update)

    def last_change(self) -> ModelMessage:
        """Return the message for a client that has the model from before the last change."""
        state, options = self._state, self._options
        return ModelMessage(
            base=state.round - 1,
            assigns=False,
            update=sparse_of(state.broadcast),
            values=options.downlink_values,
            levels=options.levels,
            draws=lambda: _draws(options, state.round),
        )

    @cached_property
    def _whole(self) -> ModelMessage:
        everything = SparseUpdate.trusted(self._weights.size, np.arange(self._weights.size), self._weights)
        return ModelMessage(NO_MODEL, True, everything)

    @cached_property
    def _weights(self) -> Floats:
        return self._state.weights.cpu().numpy()

    @cached_property
    def _changed(self) -> NDArray[np.int32]:
        return self._state.changed.cpu().numpy()


def taken_up(weights: Floats | None, payload: bytes, *, assigns: bool) -> Floats:
    """Return a client's weights after a message; ``weights`` is not changed, and None before it has any."""
    if weights is None:
        return decode(payload, max_size=MAX_PARAMETERS).to_dense()
    update = decode(payload, max_size=weights.size)
    if update.size != weights.size:
        raise CorruptPayloadError(f"the payload must be for {weights.size} parameters, got {update.size}")
    weights = weights.copy()
    if assigns:
        weights[update.positions] = update.values
    else:
        weights[update.positions] -= update.values
    return weights


def _largest(carried: torch.Tensor, k: int) -> torch.Tensor:
    """Return the k largest entries, with zeros elsewhere; ties go to the lowest position. None of them is -0.0."""
    if k == carried.numel():
        return carried + 0.0
    if carried.is_cuda:
        return largest_on_device(carried, k)
    sent, _ = top_k(carried.numpy(), np.zeros(carried.numel(), dtype=np.float32), k)
    return torch.from_numpy(sent.to_dense())


def largest_on_device(carried: torch.Tensor, k: int) -> torch.Tensor:
    """Choose as ``top_k`` does, by operations on whole vectors that run where the vector is and wait for nothing."""
    magnitudes = carried.view(torch.int32) & _MAGNITUDE
    smallest = torch.topk(magnitudes, k, sorted=False).values.min()
    larger, equal = magnitudes > smallest, magnitudes == smallest
    kept = larger | (equal & (equal.cumsum(0) <= k - larger.sum()))
    return torch.where(kept, carried, 0.0) + 0.0


def _rounded(chosen: torch.Tensor, options: TrainingOptions, number: int) -> torch.Tensor:
    """Return the chosen entries as clients decode them; their values, not the whole vector, go through the host."""
    positions = chosen.nonzero().flatten()
    values = chosen[positions].cpu().numpy()
    seen = quantised(values, options.downlink_values, levels=options.levels, rng=_draws(options, number))
    sent = torch.zeros_like(chosen)
    sent[positions] = torch.from_numpy(seen).to(chosen.device)
    return sent


def _draws(options: TrainingOptions, number: int) -> np.random.Generator | None:
    return stream(options.seed, "downlink", number) if KINDS[options.downlink_values].needs_rng else None
