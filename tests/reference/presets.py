"""The methods behind the presets, each as its own paper states it, in the paper's symbols: slow, obvious, float64.

None of them knows the options of ``fewjoules.train``. Every local step uses all local data, every client takes part in
every round, and no upload is lost. ``Round.kept`` has what each client keeps under the paper's own symbol.

Where a paper says more, or other, than its preset, the preset's version is transcribed:

- All papers that choose entries by size do so tensor by tensor; here the whole vector is one tensor. k is
  max(1, round(d / sparsity)).
- ``dgc`` [LIN18, Algorithm 4]: no warm-up of the sparsity (75, 93.75, 98.44, 99.6, 99.9 % over the first epochs).
  Clipping is the paper's, with the 1e-6 that PyTorch adds to the norm. The step size is constant: the paper applies
  today's to gradients that wait in V, FewJoules the one of the round in which a gradient was computed. Gradients, U
  and V are 1/N of a client's own, as in the paper.
- ``diloco`` [DOUILLARD23, Algorithm 1]: the inner step size is constant. The paper names no betas of AdamW and no
  clipping; it gets PyTorch's betas and none.
- ``sparseloco`` [SARFI25]: two-bit values are those of FewJoules' codec (signs with the mean of the small or of the
  large magnitudes), in place of the authors' four bins over six standard deviations; positions are coded otherwise too.
  The mean is over all R clients, as in the paper; the authors' code divides each entry by the number of those who sent
  it. Chunks are 4,096 neighbours of the flat vector; theirs are 64 x 64 tiles of a matrix. Clipping at 1 and
  beta2 = 0.95 come from that code.
- ``slowmo`` [WANG20, Algorithm 1]: written with 1/gamma as printed, for a constant gamma; with a schedule the two
  differ, for FewJoules' server does not know gamma. The base optimiser is SGD with heavy-ball momentum whose buffers
  are reset; the paper uses Nesterov's form and also tries buffers that are kept.
- ``fedavgm`` [HSU19]: an epoch is one step over all local data, times the local steps.
- ``stc`` [SATTLER19, Algorithms 1 and 2]: a client that missed rounds gets the weights that changed meanwhile; the
  paper sends it the sum of the updates, or an approximation of it. Both directions have the same sparsity.
- ``qsparse`` [BASU19, Algorithm 1]: synchronous, the quantiser unscaled. QSGD takes norms of blocks of 1,024 values.
- ``qsgd`` [ALISTARH17, Algorithm 1]: the Euclidean norm as in its theory, of buckets of 1,024; its experiments use the
  largest magnitude and buckets of 512. Rounding takes FewJoules' own draws.
"""

import math
from dataclasses import dataclass

import numpy as np

from fewjoules.codec.values import quantised
from fewjoules.engine.algorithm.streams import stream
from tests.reference.training import top_k


@dataclass(frozen=True)
class Round:
    """The global weights after a round, and what each client keeps: (clients, parameters) by symbol."""

    weights: np.ndarray
    kept: dict[str, np.ndarray]


def dgc(model, clients, start, *, rounds, learning_rate, sparsity, momentum, threshold=None):
    """Deep gradient compression: momentum correction, local clipping, momentum factor masking."""
    N, m, w = len(clients), momentum, np.array(start)
    U, V = np.zeros((N, model.size)), np.zeros((N, model.size))
    after = []
    for _ in range(rounds):
        G = np.zeros(model.size)
        for k in range(N):
            G_k = model.gradient(w, *clients[k]) / N
            if threshold is not None:
                local = threshold / math.sqrt(N)
                G_k = G_k * min(1.0, local / (np.linalg.norm(G_k) + 1e-6 / N))
            U[k] = m * U[k] + G_k
            V[k] = V[k] + U[k]
            mask = mask_of_largest(V[k], sparsity)
            G = G + V[k] * mask
            V[k] = V[k] * ~mask
            U[k] = U[k] * ~mask
        w = w - learning_rate * G
        after.append(Round(w, {"U": U.copy(), "V": V.copy()}))
    return after


def diloco(model, clients, start, *, rounds, H, inner_rate, weight_decay, outer_rate, outer_momentum):
    """DiLoCo: AdamW inside, whose state stays with its worker, Nesterov outside along the outer gradient."""
    k, theta, b = len(clients), np.array(start), np.zeros(model.size)
    inner = [AdamW(model.size, inner_rate, 0.9, 0.999, weight_decay) for _ in range(k)]
    after = []
    for _ in range(rounds):
        outer_gradient = np.zeros(model.size)
        for i in range(k):
            theta_i = theta.copy()
            for _ in range(H):
                theta_i = inner[i].step(theta_i, model.gradient(theta_i, *clients[i]))
            outer_gradient += (theta - theta_i) / k
        b = outer_momentum * b + outer_gradient
        theta = theta - outer_rate * (outer_gradient + outer_momentum * b)
        after.append(Round(theta, {"m": np.array([one.m for one in inner]), "v": np.array([one.v for one in inner])}))
    return after


def sparseloco(model, clients, start, *, rounds, H, inner_rate, weight_decay, clip, beta, density, alpha, values):
    """SparseLoCo: AdamW inside, chunked top-k of a residual that decays by beta, a plain outer step of alpha."""
    R, theta, e = len(clients), np.array(start), np.zeros((len(clients), model.size))
    inner = [AdamW(model.size, inner_rate, 0.9, 0.95, weight_decay) for _ in range(R)]
    after = []
    for _ in range(rounds):
        sent = np.zeros((R, model.size))
        for r in range(R):
            theta_r = theta.copy()
            for _ in range(H):
                gradient = model.gradient(theta_r, *clients[r])
                gradient = gradient * min(1.0, clip / (np.linalg.norm(gradient) + 1e-6))
                theta_r = inner[r].step(theta_r, gradient)
            e[r] = beta * e[r] + (theta - theta_r)
            mask = np.concatenate([mask_of_largest(c, 1.0 / density) for c in chunks(e[r], 4096)])
            sent[r, mask] = two_bit(e[r, mask]) if values == "two-bit" else e[r, mask]
            e[r] = e[r] - sent[r]
        theta = theta - alpha * sent.sum(axis=0) / R
        after.append(Round(theta, {"e": e.copy(), "m": np.array([one.m for one in inner])}))
    return after


def slowmo(model, clients, start, *, rounds, tau, gamma, base_momentum, alpha, beta):
    """SlowMo over local SGD with momentum, whose buffers are reset in every round."""
    m, x, u = len(clients), np.array(start), np.zeros(model.size)
    after = []
    for _ in range(rounds):
        average = np.zeros(model.size)
        for i in range(m):
            x_i, h_i = x.copy(), np.zeros(model.size)
            for _ in range(tau):
                h_i = base_momentum * h_i + model.gradient(x_i, *clients[i])
                x_i = x_i - gamma * h_i
            average += x_i / m
        u = beta * u + (x - average) / gamma
        x = x - alpha * gamma * u
        after.append(Round(x, {}))
    return after


def fedavgm(model, clients, start, *, rounds, epochs, learning_rate, beta):
    """Federated averaging weighted by the number of samples, with momentum on the server."""
    n_k = [len(targets) for _, targets in clients]
    n, w, v = sum(n_k), np.array(start), np.zeros(model.size)
    after = []
    for _ in range(rounds):
        delta = np.zeros(model.size)
        for k, data in enumerate(clients):
            w_k = w.copy()
            for _ in range(epochs):
                w_k = w_k - learning_rate * model.gradient(w_k, *data)
            delta += n_k[k] / n * (w - w_k)
        v = beta * v + delta
        w = w - v
        after.append(Round(w, {}))
    return after


def stc(model, clients, start, *, rounds, learning_rate, sparsity):
    """Sparse ternary compression up and down with error accumulation A_i and A; updates point downhill."""
    n, W, A_i, A = len(clients), np.array(start), np.zeros((len(clients), model.size)), np.zeros(model.size)
    after = []
    for _ in range(rounds):
        update = A.copy()
        for i in range(n):
            W_i = W - learning_rate * model.gradient(W, *clients[i])
            carried = (W_i - W) + A_i[i]
            sent = ternary(carried, sparsity)
            A_i[i] = carried - sent
            update += sent / n
        sent = ternary(update, sparsity)
        A = update - sent
        W = W + sent
        after.append(Round(W, {"A_i": A_i.copy()}))
    return after


def ternary(carried, sparsity):
    """STC of a vector [SATTLER19, Algorithm 1]: the mean magnitude of its largest entries, with their signs."""
    mask = mask_of_largest(carried, sparsity)
    mu = np.abs(carried[mask]).sum() / mask.sum()
    return mu * np.sign(carried * mask)


def qsparse(model, clients, start, *, rounds, H, eta, sparsity, levels, seed):
    """Qsparse-local-SGD: m is the memory, x_hat the local weights, synchronised at every H-th step t."""
    R, x = len(clients), np.array(start)
    x_hat, m = np.tile(x, (R, 1)), np.zeros((R, model.size))
    after = []
    for t in range(rounds * H):
        for r in range(R):
            x_hat[r] = x_hat[r] - eta * model.gradient(x_hat[r], *clients[r])
        if (t + 1) % H == 0:
            g = np.zeros((R, model.size))
            for r in range(R):
                accumulated = m[r] + x - x_hat[r]
                mask = mask_of_largest(accumulated, sparsity)
                draws = stream(seed, "compressor", (t + 1) // H, r, 1).random(mask.sum())
                g[r, mask] = stochastic_levels(accumulated[mask], levels, draws)
                m[r] = accumulated - g[r]
            x = x - g.sum(axis=0) / R
            x_hat[:] = x
            after.append(Round(x, {"m": m.copy()}))
    return after


def qsgd(model, clients, start, *, rounds, eta, s, seed):
    """Parallel SGD with every gradient quantised to s levels."""
    K, x = len(clients), np.array(start)
    after = []
    for t in range(1, rounds + 1):
        mean = np.zeros(model.size)
        for i in range(K):
            draws = stream(seed, "compressor", t, i, 1).random(model.size)
            mean += stochastic_levels(model.gradient(x, *clients[i]), s, draws) / K
        x = x - eta * mean
        after.append(Round(x, {}))
    return after


class AdamW:
    """Adam with decoupled weight decay: the moments m and v of one worker, over all its steps."""

    def __init__(self, size, rate, beta1, beta2, weight_decay):
        self.rate, self.beta1, self.beta2, self.weight_decay = rate, beta1, beta2, weight_decay
        self.m, self.v, self.t = np.zeros(size), np.zeros(size), 0

    def step(self, theta, gradient):
        self.t += 1
        self.m = self.beta1 * self.m + (1.0 - self.beta1) * gradient
        self.v = self.beta2 * self.v + (1.0 - self.beta2) * gradient * gradient
        m_hat, v_hat = self.m / (1.0 - self.beta1**self.t), self.v / (1.0 - self.beta2**self.t)
        return theta - self.rate * (m_hat / (np.sqrt(v_hat) + 1e-8) + self.weight_decay * theta)


def mask_of_largest(vector, sparsity):
    """Marks the max(1, round(d / sparsity)) entries largest in size; where entries are zero, fewer."""
    kept, _ = top_k(vector, max(1, round(len(vector) / sparsity)))
    return kept != 0.0


def chunks(vector, length):
    """Neighbouring parts of a vector, the last one shorter where it does not divide."""
    return [vector[start : start + length] for start in range(0, len(vector), length)]


def stochastic_levels(vector, s, draws):
    """norm sign(v_i) xi_i of each bucket: xi_i is l/s or (l+1)/s, the latter with chance |v_i| s / norm - l."""
    sent = np.zeros(len(vector))
    for start, bucket in zip(range(0, len(vector), 1024), chunks(vector, 1024), strict=True):
        norm = np.sqrt(np.sum(bucket**2))
        for i, value in enumerate(bucket, start=start):
            ratio = abs(value) * s / norm
            lower = math.floor(ratio)
            up = draws[i] >= 1.0 - (ratio - lower)
            sent[i] = norm * np.sign(value) * (lower + up) / s
    return sent


def two_bit(values):
    """FewJoules' own two-bit values."""
    return quantised(values.astype(np.float32), "two-bit").astype(np.float64)
