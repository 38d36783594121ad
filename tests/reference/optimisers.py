"""Algorithm 1 of [LI21] with every optimiser and every compressor: one client, one step at a time, float64.

An extension of training.py by the options of ``fewjoules.train``, under the same names. A round of client m, with
the global weights w:

    v <- w, then local_steps times           ``local_step``: clip, decay, and SGD, momentum or AdamW
    u = residual_decay e + (w - v)
    g = C(u), e <- u - g                     e <- u where the upload was lost, e <- 0 without error feedback
    s = outer step along sum_m p_m g_m       ``outer_step``
    c = C'(e' + s), e' <- e' + s - c         C' is exact, or the largest entries as float32 or ternary
    w <- w - c

Clients that do not take part keep everything. Velocities and squares start at zero: once, or in every round where
``momentum_state`` is "reset" (with AdamW's count of steps). "cleared" zeroes the velocity wherever the client sent,
whether or not the upload arrived.

**Lemma 1 with momentum on the server.** Let all clients take part, with error feedback and a linear outer optimiser S
("none", "momentum" or "nesterov"): S(g)_r is the step that it takes in round r when it is fed g_1, g_2, ... Let d be
the mean changes sum_m p_m (w - v_m), E the mean residuals and gamma the residual's decay. The weights wt that S would
reach from the same start if it were fed d then satisfy after every round r

    w_r - wt_r = S(E)_r + (1 - gamma) sum_{s < r} S(E)_s.

Proof: g_r = d_r + gamma E_{r-1} - E_r, as nothing is lost, so w_r - wt_r = sum_{s <= r} S(E_s - gamma E_{s-1})_s as S
is linear. A delayed input delays the steps and E_0 = 0, so the sum is that of S(E)_s - gamma S(E)_{s-1}, and
telescopes. For gamma = 1 it is S(E)_r alone: outer_rate E_r without momentum, which is Lemma 1; outer_rate f_r with
momentum, where f_r = beta f_{r-1} + E_r; outer_rate (E_r + beta f_r) with Nesterov's.

``Trace`` tells how near a run came to where rounding changes more than the last digits: ties of top-k, values beside
the edge of a level, and second moments so small that AdamW divides noise by noise.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from fewjoules.codec.values import quantised
from fewjoules.engine.algorithm.streams import stream

CHUNK = 4096  # of "chunked-top-k"
BLOCK = 1024  # values that share a norm in QSGD
NUDGE = 5e-7  # what float32 may change a value by


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is trained how, as ``fewjoules.train`` calls it.

    ``sparsity`` has one entry a client, ``batch_size`` None is all local data. Who takes part (``participants``, by
    round) and whose upload is lost (``lost``, by round from 1) are given, not drawn; ``importance`` weighs the clients.
    """

    local_steps: int
    rounds: int
    sparsity: Sequence[float]
    learning_rate: float
    schedule: str = "constant"
    decay_rounds: Sequence[int] = ()
    decay_factor: float = 0.1
    warmup_rounds: int = 0
    batch_size: int | None = None
    batch_growth: float = 1.0
    inner: str = "sgd"
    momentum: float = 0.9
    momentum_state: str = "reset"
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    weight_decay: float = 0.0
    gradient_clip: float | None = None
    error_feedback: bool = True
    residual_decay: float = 1.0
    compressor: str = "top-k"
    values: str = "float32"
    levels: int = 15
    outer: str = "none"
    outer_momentum: float = 0.9
    outer_rate: float = 1.0
    outer_beta2: float = 0.99
    outer_epsilon: float = 1e-3
    downlink_sparsity: float = 1.0
    downlink_values: str = "float32"
    seed: int = 0
    importance: Sequence[float] | None = None
    participants: Sequence[Sequence[int]] | None = None
    lost: Mapping[int, Set[int]] = field(default_factory=dict)


@dataclass
class ClientState:
    """What one client keeps from round to round."""

    residual: np.ndarray
    velocity: np.ndarray
    squares: np.ndarray
    steps: int = 0


@dataclass
class ServerState:
    """What the server keeps from round to round."""

    weights: np.ndarray
    velocity: np.ndarray
    squares: np.ndarray
    residual: np.ndarray | float = 0.0


@dataclass(frozen=True)
class Round:
    """The end of a round; rows are clients, and those of clients that were not there are zero in what they did.

    ``chosen`` marks the entries that a client sent or tried to send, ``sent`` is what the server got of it.
    """

    weights: np.ndarray
    shares: np.ndarray
    changes: np.ndarray
    chosen: np.ndarray
    sent: np.ndarray
    residuals: np.ndarray
    velocities: np.ndarray
    squares: np.ndarray
    steps: list[int]


@dataclass
class Trace:
    """All rounds of a run, and how near it came to trouble.

    ``smallest_gap`` is the least distance to a tie or to an edge between levels, ``smallest_root`` the least root of a
    second moment that AdamW divided by.
    """

    rounds: list[Round] = field(default_factory=list)
    smallest_gap: float = math.inf
    smallest_root: float = math.inf


Draw = Callable[[int, int, int], Sequence[int]]


def run(model, clients, start, setting: Setting, draw: Draw | None = None) -> Trace:
    """``draw(t, m, b)`` names the b samples of client m at step t; it is not asked for all data."""
    M, d = len(clients), model.size
    states = [ClientState(np.zeros(d), np.zeros(d), np.zeros(d)) for _ in range(M)]
    server = ServerState(np.array(start, dtype=np.float64), np.zeros(d), np.full(d, setting.outer_epsilon**2))
    trace = Trace()
    for number in range(1, setting.rounds + 1):
        here = range(M) if setting.participants is None else setting.participants[number - 1]
        shares = shares_of(here, M, setting)
        changes, sent, chosen = np.zeros((M, d)), np.zeros((M, d)), np.zeros((M, d), dtype=bool)
        for m in here:
            changes[m] = local_change(model, clients[m], server.weights, states[m], setting, number, m, draw, trace)
            total = setting.residual_decay * states[m].residual + changes[m]
            chosen[m], sent[m], gap = compress(total, setting, number, m)
            trace.smallest_gap = min(trace.smallest_gap, gap)
            if setting.momentum_state == "cleared":
                states[m].velocity[chosen[m]] = 0.0
            if m in setting.lost.get(number, ()):
                sent[m] = 0.0
            states[m].residual = total - sent[m] if setting.error_feedback else np.zeros(d)
        gap = server_step(server, sum(shares[m] * sent[m] for m in here), setting)
        trace.smallest_gap = min(trace.smallest_gap, gap)
        trace.rounds.append(_after(server, states, shares, changes, chosen, sent))
    return trace


def shares_of(here, clients, setting):
    """p_m: the weights of the participants, which sum to one."""
    importance = [1.0] * clients if setting.importance is None else setting.importance
    total = sum(importance[m] for m in here)
    return np.array([importance[m] / total if m in here else 0.0 for m in range(clients)])


# --- A client's steps


def local_change(model, data, weights, state, setting, number, m, draw=None, trace=None):
    """w - v after the local steps of client m in round ``number``; its velocity, squares and count move on."""
    inputs, targets = data
    if setting.momentum_state == "reset":
        state.velocity, state.squares, state.steps = np.zeros(model.size), np.zeros(model.size), 0
    v = weights.copy()
    for step in range((number - 1) * setting.local_steps, number * setting.local_steps):
        batch = samples_of(step, m, len(targets), setting, draw)
        gradient = model.gradient(v, inputs[batch], targets[batch])
        v = local_step(v, gradient, state, rate_of(setting, number, step), setting)
        if setting.inner == "adamw" and trace is not None:
            root = np.sqrt(state.squares / (1.0 - setting.adam_beta2**state.steps)).min()
            trace.smallest_root = min(trace.smallest_root, root)
    return weights - v


def samples_of(step, m, size, setting, draw):
    """The sample numbers of a local step."""
    if setting.batch_size is None:
        return list(range(size))
    b = min(math.floor(setting.batch_growth**step * setting.batch_size), size)
    return list(range(size)) if b == size else list(draw(step, m, b))


def rate_of(setting, number, step):
    """The step size at local step ``step`` (from 0 over all rounds), which lies in round ``number``."""
    rate = setting.learning_rate
    if setting.schedule == "cosine":
        rate *= 0.5 * (1.0 + math.cos(math.pi * step / (setting.rounds * setting.local_steps)))
    if setting.schedule == "step":
        rate *= setting.decay_factor ** sum(number > last for last in setting.decay_rounds)
    if setting.warmup_rounds:
        rate *= min(1.0, number / setting.warmup_rounds)
    return rate


def local_step(v, gradient, state, rate, setting):
    """The next local weights; velocity, squares and count of ``state`` move on."""
    state.steps += 1
    gradient = clipped(gradient, setting.gradient_clip)
    if setting.inner == "adamw":
        return adamw_step(v, gradient, state, rate, setting)
    gradient = gradient + setting.weight_decay * v
    if setting.inner == "momentum":
        state.velocity = setting.momentum * state.velocity + gradient
        gradient = state.velocity
    return v - rate * gradient


def clipped(gradient, largest):
    """A gradient scaled to at most this Euclidean norm."""
    if largest is None:
        return gradient
    norm = math.sqrt(sum(x * x for x in gradient))
    return gradient * min(1.0, largest / (norm + 1e-6))


def adamw_step(v, gradient, state, rate, setting):
    """AdamW [LOSHCHILOV19] as PyTorch has it: the decay of the weights is scaled by the step size."""
    beta1, beta2, t = setting.momentum, setting.adam_beta2, state.steps
    state.velocity = beta1 * state.velocity + (1.0 - beta1) * gradient
    state.squares = beta2 * state.squares + (1.0 - beta2) * gradient**2
    mean, square = state.velocity / (1.0 - beta1**t), state.squares / (1.0 - beta2**t)
    return v - rate * setting.weight_decay * v - rate * mean / (np.sqrt(square) + setting.adam_epsilon)


# --- What is sent


def compress(vector, setting, number, client):
    """Marks of the entries sent, the vector that the server gets, and the smallest distance to another choice."""
    if setting.compressor in ("none", "qsgd"):
        positions, gap = list(range(vector.size)), math.inf
    elif setting.compressor == "random-k":
        rng = stream(setting.seed, "compressor", number, client)
        positions = sorted(rng.choice(vector.size, entries(vector.size, setting, client), replace=False, shuffle=False))
        gap = math.inf
    elif setting.compressor == "chunked-top-k":
        positions, gap = largest_of_chunks(vector, setting, client)
    else:
        positions, gap = largest(vector, entries(vector.size, setting, client))
    round_values = rounding(setting, number, client)
    kept = vector[positions]
    chosen, sent = np.zeros(vector.size, dtype=bool), np.zeros(vector.size)
    chosen[positions] = True
    sent[positions] = round_values(kept)
    return chosen, sent, gap if steady(round_values, kept) else 0.0


def entries(size, setting, client):
    """k of a client."""
    return max(1, round(size / setting.sparsity[client]))


def largest(vector, k):
    """Positions of the k entries largest in size, ties to the lowest, and by how much the next one is smaller."""
    order = sorted(range(len(vector)), key=lambda i: (-abs(vector[i]), i))
    gap = math.inf if k >= len(vector) else abs(vector[order[k - 1]]) - abs(vector[order[k]])
    return sorted(order[:k]), gap


def largest_of_chunks(vector, setting, client):
    """The same for each chunk of neighbouring entries, with k in proportion to its length."""
    positions, smallest = [], math.inf
    for start in range(0, vector.size, CHUNK):
        chunk = vector[start : start + CHUNK]
        found, gap = largest(chunk, entries(chunk.size, setting, client))
        positions += [start + i for i in found]
        smallest = min(smallest, gap)
    return positions, smallest


def rounding(setting, number, client):
    """What the server gets of the values of a message, as a function."""
    if setting.compressor == "ternary":
        return ternary
    if setting.compressor == "qsgd":
        scale = 1.0 + min(BLOCK / setting.levels**2, math.sqrt(BLOCK) / setting.levels)
        return lambda values: qsgd(values, setting.levels, stream(setting.seed, "compressor", number, client)) / scale
    if setting.values == "float32":
        return lambda values: values
    if setting.values == "qsgd":
        return lambda values: qsgd(values, setting.levels, stream(setting.seed, "compressor", number, client, 1))
    return lambda values: quantised(values.astype(np.float32), setting.values).astype(np.float64)


def ternary(values):
    """The mean magnitude with each value's sign [SATTLER19]."""
    mean = sum(abs(x) for x in values) / len(values)
    return np.array([-mean if x < 0.0 else mean for x in values])


def qsgd(values, levels, rng):
    """norm sign(x) l / levels, where l is levels |x| / norm rounded up with the chance of its fraction [ALISTARH17]."""
    draws, sent = rng.random(len(values)), np.zeros(len(values))
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        norm = math.sqrt(sum(x * x for x in block))
        for i, x in enumerate(block, start=start):
            exact = levels * abs(x) / norm if norm else 0.0
            level = math.floor(exact)
            level += draws[i] >= 1.0 - (exact - level)
            sent[i] = math.copysign(norm * level / levels, x)
    return sent


def steady(round_values, values):
    """Whether no sent value moves far when one value moves by ``NUDGE``."""
    sent = round_values(values)
    for i in range(len(values)):
        for change in (-NUDGE, NUDGE):
            moved = values.copy()
            moved[i] += change
            if np.abs(round_values(moved) - sent).max() > 4 * NUDGE:
                return False
    return True


# --- The server's step


def server_step(server, mean, setting):
    """The step along the mean update; ``server`` moves on. Returns the smallest distance to another broadcast."""
    carried = server.residual + outer_step(server, mean, setting)
    sent, gap = broadcast(carried, setting)
    server.residual = carried - sent
    server.weights = server.weights - sent
    return gap


def outer_step(server, mean, setting):
    """The outer optimiser's step; its moments move on."""
    beta = setting.outer_momentum
    if setting.outer == "none":
        direction = mean
    elif setting.outer == "adam":  # [REDDI21, Algorithm 2]: no correction of the bias
        server.velocity = beta * server.velocity + (1.0 - beta) * mean
        server.squares = setting.outer_beta2 * server.squares + (1.0 - setting.outer_beta2) * mean**2
        direction = server.velocity / (np.sqrt(server.squares) + setting.outer_epsilon)
    else:
        server.velocity = beta * server.velocity + mean
        direction = server.velocity if setting.outer == "momentum" else mean + beta * server.velocity
    return setting.outer_rate * direction


def broadcast(carried, setting):
    """What clients get of what the server has to send, and the smallest distance to another choice."""
    if setting.downlink_sparsity == 1.0 and setting.downlink_values == "float32":
        return carried, math.inf
    positions, gap = largest(carried, max(1, round(carried.size / setting.downlink_sparsity)))
    positions = [i for i in positions if carried[i] != 0.0]
    sent = np.zeros(carried.size)
    values = carried[positions]
    sent[positions] = ternary(values) if setting.downlink_values == "ternary" and positions else values
    return sent, gap


def outer_steps(setting, inputs):
    """S(inputs): the steps that a linear outer optimiser takes when it is fed these vectors, one a round."""
    server = ServerState(np.zeros_like(inputs[0]), np.zeros_like(inputs[0]), np.zeros_like(inputs[0]))
    steps = []
    for vector in inputs:
        before = server.weights
        server_step(server, vector, setting)
        steps.append(before - server.weights)
    return np.array(steps)


def lag(setting, mean_residuals):
    """w_r - wt_r of Lemma 1 after each round, from the mean residuals after each round."""
    steps = outer_steps(setting, mean_residuals)
    earlier = np.cumsum(steps, axis=0) - steps
    return steps + (1.0 - setting.residual_decay) * earlier


def _after(server, states, shares, changes, chosen, sent):
    return Round(
        weights=server.weights.copy(),
        shares=shares,
        changes=changes,
        chosen=chosen,
        sent=sent,
        residuals=np.array([state.residual for state in states]),
        velocities=np.array([state.velocity for state in states]),
        squares=np.array([state.squares for state in states]),
        steps=[state.steps for state in states],
    )
