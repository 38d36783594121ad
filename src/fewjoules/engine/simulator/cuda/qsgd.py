"""QSGD [ALISTARH17] for a stack of clients, equal to the bit to ``fewjoules.codec.compressors.qsgd`` of each."""

import torch

from fewjoules.codec.compressors import qsgd_variance
from fewjoules.codec.values import BLOCK, MAX_LEVELS
from fewjoules.errors import require_integer


def qsgd_of_clients(totals: torch.Tensor, levels: int, chances: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise each row of (clients, size) with its random draws; return the decoded values and the signed levels.

    A row that is not finite gives values that are not finite.
    """
    require_integer("levels", levels, low=1, high=MAX_LEVELS)
    wide = _block_norms(totals).to(torch.float64).repeat_interleave(BLOCK, dim=1)[:, : totals.shape[1]]
    target = torch.where(wide > 0.0, levels * totals.abs().to(torch.float64) / wide, 0.0)
    signed = torch.copysign(torch.floor(target + chances).clamp(max=levels), totals.to(torch.float64))
    seen = (wide * signed / _divisor(levels, wide) + 0.0).to(torch.float32)
    return seen / _divisor(1.0 + qsgd_variance(levels), seen), signed


def _divisor(value: float, like: torch.Tensor) -> torch.Tensor:
    """Return a divisor as a tensor: on a GPU, dividing by a plain number multiplies by its rounded reciprocal."""
    return torch.full((1,), value, dtype=like.dtype, device=like.device)


def _block_norms(rows: torch.Tensor) -> torch.Tensor:
    """Return ``fewjoules.codec.values.block_norms`` of each row, equal to the bit; (clients, blocks)."""
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
