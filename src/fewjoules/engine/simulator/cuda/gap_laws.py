"""Laws of many blocks of gaps and their costs at once: ``fewjoules.codec.blocks.best_laws`` in tensors.

One integer holds the count and the sum of near gaps, count * ONE + sum: the gaps of a row sum to less than 2^31.
"""

import functools

import torch

from fewjoules.codec.rans import ESCAPE_BITS, GAP_BITS, GAP_SCALE, GAP_SYMBOLS, MEAN_UNIT
from fewjoules.engine.simulator.cuda.gap_blocks import NATS, xlogx
from fewjoules.engine.simulator.cuda.gap_groups import GapGroups

SIZE_LIMIT = 1 << 31
COST_BITS = 20  # costs are counted in 2^-20 bits, so that sums are exact in any order
ESCAPE = int(GAP_SYMBOLS) - 1
MEANS = 1 << 10
SHORT = 7  # digits of a gap that is near under every shift
ONE = 1 << 32
_ESCAPE_NATS = 68.0 * NATS
_TOO_FAR = 16.0 - 2.0**-33  # high parts with a mean of 16 or more are refused; an empty block, with mean 0 / 0, is not


class ShiftSearch:
    """Finds the shift with the least estimated size."""

    def __init__(self, size: int, groups: GapGroups) -> None:
        """Prepare for gaps below ``size``; under shifts of at least ``count`` - 1 all of them are near."""
        device, digits = groups.counts.device, (size - 1).bit_length()
        self.count = digits - SHORT + 1
        shifts = torch.arange(digits + 1, dtype=torch.int32, device=device)[:, None]
        nats = shifts.double() * NATS + _ESCAPE_NATS
        self._shifts = shifts[: self.count], nats[: self.count]
        self._more = shifts[self.count :], nats[self.count :]
        self._short = groups.row_ends - 1

    def best(self, near: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return nats and shift of each column of ``near``, in which the blocks of the groups come first.

        Only the block of a row's last group may have fewer than 32 gaps and need a shift of ``count`` or more.
        For n >= 32 gaps that are all near, h, their sum shifted, is below 128: one shift more costs n bits and saves
        G(n, h) - G(n, h / 2), where G is the size under a geometric law. That never pays: the loss grows with n, and is
        positive for n = 32 and every h.
        """
        short = self._short
        nats, shifts = _cheapest(near, *self._shifts)
        more_nats, more_shifts = _cheapest(near[-1:].index_select(1, short), *self._more)
        nats_before, shifts_before = nats.index_select(0, short), shifts.index_select(0, short)
        better = more_nats < nats_before
        nats.index_copy_(0, short, torch.where(better, more_nats, nats_before))
        shifts.index_copy_(0, short, torch.where(better, more_shifts + self.count, shifts_before))
        return nats, shifts


def _cheapest(near: torch.Tensor, shifts: torch.Tensor, far_nats: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the least nats over the shifts, (shifts, 1), and its line; under the last shift all gaps are near.

    ``far_nats`` is the cost of a far gap under each shift.
    """
    sums, counts = near.view(torch.int32).unflatten(1, (-1, 2)).unbind(2)  # the low words and the high ones
    count, high = counts.double(), (sums >> shifts).double()
    both, total = count + high, count[-1]
    nats = xlogx(both).sub_(xlogx(count)).sub_(xlogx(high))
    nats.add_(count, alpha=-_ESCAPE_NATS).addcmul_(far_nats, total)
    nats.masked_fill_(high > count * _TOO_FAR, torch.inf)
    least, line = nats.min(dim=0)
    return least, line


def means(near: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return the mean of each block's near high parts in 64ths, rounded and capped at ten bits."""
    return ((MEAN_UNIT * high + near // 2) // near.clamp(min=1)).clamp_(max=MEANS - 1)


@functools.cache
def symbol_costs(device: torch.device) -> torch.Tensor:
    """Return a table whose entry 256 m + s is the cost of symbol s under the law of mean m, in 2^-20 bits.

    The laws are those of ``fewjoules.codec.rans.geometric_table``.
    """
    rest = torch.full((MEANS,), int(GAP_SCALE) - int(GAP_SYMBOLS))
    whole = torch.arange(MEANS) + MEAN_UNIT
    frequencies = torch.empty((MEANS, int(GAP_SYMBOLS)), dtype=torch.float64)
    for symbol in range(ESCAPE):
        share = rest * MEAN_UNIT // whole
        frequencies[:, symbol] = 1 + share
        rest -= share
    frequencies[:, ESCAPE] = 1 + rest
    bits = float(GAP_BITS) - frequencies.log2()
    bits[:, ESCAPE] += 2.0 * float(ESCAPE_BITS)
    return (bits * (1 << COST_BITS)).round().to(device, torch.int32).view(-1)
