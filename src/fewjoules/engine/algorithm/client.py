"""A client's side of a round: lines 4 to 10 of FT-LSGD-DB, [LI21] Algorithm 1.

With global weights w, local weights v_m, residuals e_m (zero at first), step sizes eta_t, H local steps:

    line 4    b_t = floor(rho^t b_0)                        ``round.batch_sizes``
    line 6    v_m <- v_m - eta_t grad f_m(v_m; batch)       ``inner``, at the local weights as in the appendix
    line 8    u_m = e_m + w - v_m                           ``upload_of``; e_m times ``residual_decay`` where it decays
    line 9    g_m = Top_k(u_m)                              or another of ``compressors``
    line 10   e_m <- u_m - g_m
              e_m <- u_m where g_m was lost                 ``settled``, once the client knows

docs/training.md lists what differs from the printed algorithm and why; ``server`` has lines 20 and 21.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fewjoules.arrays import FloatArray, Floats
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import ClientOrder
from fewjoules.engine.algorithm.rule import InnerRule
from fewjoules.engine.algorithm.state import ClientState, LastUpload
from fewjoules.errors import DivergedError, InvalidInputError


@dataclass(frozen=True, slots=True)
class Steps:
    """Result of H local steps of one client: its change w - v, buffers, moments, loss and accuracy of each step."""

    change: Floats
    buffers: Floats
    velocity: Floats | None
    squares: Floats | None
    losses: FloatArray
    correct: FloatArray


@dataclass(frozen=True, slots=True)
class Upload:
    """Message of one client: the update as the server decodes it, its buffers, and their size in bytes.

    ``payload`` is the message of the update, where it was really written.
    """

    update: SparseUpdate
    buffers: Floats
    payload_bytes: int
    losses: FloatArray
    correct: FloatArray
    payload: bytes | None = None


LocalSteps = Callable[[ClientState, ClientOrder], Steps]


def client_round(
    train: LocalSteps, state: ClientState, order: ClientOrder, *, write: bool = False
) -> tuple[Upload, ClientState]:
    """Run lines 4 to 10 for one client; ``train`` takes its H local steps, starting from the global weights.

    With ``write`` the message is written; else its size is computed without writing it.
    """
    state = settled(state, order.accepted_round)
    return upload_of(train(state, order), state, order, write=write)


def upload_of(
    steps: Steps, state: ClientState, order: ClientOrder, *, write: bool = False
) -> tuple[Upload, ClientState]:
    """Run lines 8 to 10: compress the change, return the upload and the new state. May overwrite its input arrays."""
    residual = np.zeros_like(steps.change) if state.residual is None else state.residual
    if order.residual_decay != 1.0:
        residual *= np.float32(order.residual_decay)
    compressor = COMPRESSORS[order.compressor]
    payload = None
    try:
        if write:
            payload, sent, left = compressor.write(steps.change, residual, order)
        else:
            sent, left = compressor.send(steps.change, residual, order)
    except InvalidInputError as error:
        raise DivergedError(
            f"the update of client {order.client} in round {order.round} cannot be sent: {error}"
        ) from error
    if not np.isfinite(sent.values).all():
        raise DivergedError(f"the update of client {order.client} in round {order.round} is not finite")
    velocity = steps.velocity
    if velocity is not None and order.rule.state == "cleared":
        velocity[sent.positions] = 0.0
    sized = len(payload) if payload is not None else compressor.message_bytes(sent, left[sent.positions], order)
    kept = ClientState(
        residual=None if state.residual is None else left,
        velocity=velocity,
        squares=steps.squares,
        steps=state.steps + order.local_steps,
        last_upload=None if state.residual is None else LastUpload(order.round, sent),
    )
    total = sized + dense_bytes(steps.buffers)
    return Upload(sent, steps.buffers, total, steps.losses, steps.correct, payload), kept


def settled(state: ClientState, accepted_round: int) -> ClientState:
    """Forget the last upload, or add it back to the residual if the server did not accept it."""
    last = state.last_upload
    if last is None:
        return state
    if last.round > accepted_round and state.residual is not None:
        state.residual[last.update.positions] += last.update.values
    return replace(state, last_upload=None)


def kept_vectors(options: TrainingOptions) -> tuple[str, ...]:
    """Names of the vectors that a client keeps from round to round."""
    return _kept(InnerRule.of(options), options.error_feedback)


def _kept(rule: InnerRule, error_feedback: bool) -> tuple[str, ...]:
    return ("residual", *rule.kept_moments) if error_feedback else rule.kept_moments


def new_client(order: ClientOrder, size: int) -> ClientState:
    """Return the state of a client that takes part for the first time, for a model of ``size`` parameters."""
    names = _kept(order.rule, order.error_feedback)
    vectors: dict[str, Any] = {name: np.zeros(size, dtype=np.float32) for name in names}
    return ClientState(**vectors)


def dense_bytes(vector: Floats) -> int:
    """Bytes of a message with every entry as float32, as used for buffers and for whole models on the downlink."""
    from fewjoules.codec.frame import encoded_size

    if vector.size == 0:
        return 0
    return encoded_size(SparseUpdate.trusted(vector.size, np.arange(vector.size), vector))
