"""The compressors of ``fewjoules.codec.compressors`` on torch tensors, with the same results on processor and GPU.

Tensors on the processor share their memory with NumPy and use its kernels; on a GPU top-k runs in Triton. What is
random is drawn from a NumPy generator in both cases.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fewjoules.codec import compressors, select
from fewjoules.codec.update import SparseUpdate
from fewjoules.codec.values import BLOCK, MAX_LEVELS
from fewjoules.errors import InvalidInputError, require_integer


@dataclass(frozen=True, slots=True)
class SparseTensor:
    """A sparse update whose arrays live on the device of the vector: positions (int64, increasing) and values."""

    size: int
    positions: torch.Tensor
    values: torch.Tensor

    def to_update(self) -> SparseUpdate:
        """The update in NumPy, for the codec."""
        return SparseUpdate.trusted(self.size, self.positions.cpu().numpy(), self.values.cpu().numpy())


Sent = tuple[SparseTensor, torch.Tensor]


def none(update: torch.Tensor, residual: torch.Tensor) -> Sent:
    """Everything is sent; nothing is left."""
    total = _total(update, residual)
    positions = torch.arange(total.numel(), device=total.device)
    return SparseTensor(total.numel(), positions, total), torch.zeros_like(total)


def top_k(update: torch.Tensor, residual: torch.Tensor, k: int, *, out: torch.Tensor | None = None) -> Sent:
    """The k entries of ``update + residual`` largest in size; ties go to the lowest position."""
    sent, left = top_k_of_clients(update[None], residual[None], [k], out=None if out is None else out[None])
    return sent[0], left[0]


def top_k_of_clients(
    updates: torch.Tensor, residuals: torch.Tensor, counts: Sequence[int], *, out: torch.Tensor | None = None
) -> tuple[list[SparseTensor], torch.Tensor]:
    """``top_k`` for each row of (clients, size) stacks, each with its own k; ``out`` may be ``residuals``."""
    if updates.ndim != 2 or residuals.shape != updates.shape or len(counts) != updates.shape[0]:
        raise InvalidInputError(
            f"updates and residuals must be (clients, size) with one k a client, got shapes {tuple(updates.shape)} and "
            f"{tuple(residuals.shape)} with {len(counts)} counts"
        )
    if updates.dtype != torch.float32 or residuals.dtype != torch.float32:
        raise InvalidInputError(f"updates and residuals must be float32, got {updates.dtype} and {residuals.dtype}")
    size = updates.shape[1]
    ks = [require_integer("k", k, low=0, high=size) for k in counts]
    left = torch.empty_like(residuals) if out is None else out
    if updates.is_cuda:
        from fewjoules.engine.simulator.cuda.topk import top_k_rows

        positions, values = top_k_rows(updates.contiguous(), residuals.contiguous(), ks, left)
        pairs = zip(torch.split(positions, ks), torch.split(values, ks), strict=True)
        return [SparseTensor(size, p, v) for p, v in pairs], left
    sent, _ = select.top_k_of_clients(updates.numpy(), residuals.numpy(), ks, out=left.numpy())
    return [SparseTensor(size, torch.from_numpy(s.positions), torch.from_numpy(s.values)) for s in sent], left


def random_k(
    update: torch.Tensor, residual: torch.Tensor, k: int, rng: np.random.Generator, *, unbiased: bool = False
) -> Sent:
    """k entries at random, the same ones as NumPy's; ``unbiased`` scales them by d/k."""
    total = _total(update, residual)
    positions = torch.from_numpy(compressors.random_positions(total.numel(), k, rng)).to(total.device)
    values = total[positions]
    left = total.clone()
    left[positions] = 0.0
    if unbiased and k:
        values = values * float(np.float32(total.numel() / k))
        left[positions] = total[positions] - values
    return SparseTensor(total.numel(), positions, values), left


def ternary(update: torch.Tensor, residual: torch.Tensor, k: int) -> Sent:
    """The k largest, each as the mean of their magnitudes with its sign; the mean is taken where NumPy takes it."""
    sent, left = top_k(update, residual, k)
    magnitude = np.mean(np.abs(sent.values.cpu().numpy()), dtype=np.float64) if k else 0.0
    seen = torch.where(torch.signbit(sent.values), -1.0, 1.0) * float(np.float32(magnitude))
    left[sent.positions] += sent.values - seen
    return SparseTensor(sent.size, sent.positions, seen), left


def qsgd(update: torch.Tensor, residual: torch.Tensor, levels: int, rng: np.random.Generator) -> Sent:
    """QSGD of all entries with ``levels`` levels, divided by 1 + omega to be a contraction."""
    total = _total(update, residual)
    chance = torch.from_numpy(rng.random(total.numel())).to(total.device)
    values, _ = qsgd_of_clients(total[None], levels, chance[None])
    if not bool(torch.isfinite(values).all()):
        raise InvalidInputError("update + residual must be finite to be sent as qsgd, got what is not")
    positions = torch.arange(total.numel(), device=total.device)
    return SparseTensor(total.numel(), positions, values[0]), total - values[0]


def qsgd_of_clients(totals: torch.Tensor, levels: int, chances: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """QSGD of each row of (clients, size) by the draws of that row: what the server sees, and the signed levels.

    A row that is not finite gives values that are not.
    """
    require_integer("levels", levels, low=1, high=MAX_LEVELS)
    wide = _block_norms(totals).to(torch.float64).repeat_interleave(BLOCK, dim=1)[:, : totals.shape[1]]
    target = torch.where(wide > 0.0, levels * totals.abs().to(torch.float64) / wide, 0.0)
    signed = torch.copysign(torch.floor(target + chances).clamp(max=levels), totals.to(torch.float64))
    seen = (wide * signed / _divisor(levels, wide) + 0.0).to(torch.float32)
    return seen / _divisor(1.0 + compressors.qsgd_variance(levels), seen), signed


def _divisor(value: float, like: torch.Tensor) -> torch.Tensor:
    """A tensor to divide by: a GPU divides by a plain number as it multiplies by its rounded inverse."""
    return torch.full((1,), value, dtype=like.dtype, device=like.device)


def _total(update: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    if update.ndim != 1 or residual.shape != update.shape or {update.dtype, residual.dtype} != {torch.float32}:
        raise InvalidInputError(
            "update and residual must be float32 vectors of one size, "
            f"got {update.dtype} of shape {tuple(update.shape)} and {residual.dtype} of shape {tuple(residual.shape)}"
        )
    return update + residual


def _block_norms(rows: torch.Tensor) -> torch.Tensor:
    """The twin of ``fewjoules.codec.values.block_norms`` for each row, to the bit; (clients, blocks)."""
    clients, size = rows.shape
    squares = torch.zeros((clients, -(-size // BLOCK), BLOCK), dtype=torch.float64, device=rows.device)
    squares.view(clients, -1)[:, :size] = rows.to(torch.float64) ** 2
    half = BLOCK
    while half > 1:
        half //= 2
        squares = squares[..., :half] + squares[..., half:]
    squares = squares[..., 0]
    norms = torch.sqrt(squares).to(torch.float32)
    up = torch.nextafter(norms, torch.full_like(norms, torch.inf))
    return torch.where(norms.to(torch.float64) ** 2 < squares, up, norms)
