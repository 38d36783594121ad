"""The sums over entries that a ``MessageSizer`` needs, in tensor operations; ``FusedSums`` has the same in Triton.

Everything else about a size is computed from sums over groups of 32 entries.
"""

import torch

from fewjoules.codec.positions import GROUP
from fewjoules.codec.rans import VALUE_SYMBOLS
from fewjoules.engine.simulator.cuda.gap_groups import GapGroups
from fewjoules.engine.simulator.cuda.gap_laws import ESCAPE, ONE, SHORT


class EntrySums:
    """Sums over the entries of each group or row."""

    def __init__(self, groups: GapGroups, shifts: int) -> None:
        """Prepare for groups of this layout; gaps are summed for ``shifts`` shifts."""
        self._groups, self._shifts = groups, shifts
        places = torch.arange(GROUP, device=groups.counts.device)
        self._vacant = places >= groups.members[:, None]
        self._entries = (groups.begins[:, None] + places).clamp_(max=groups.entries - 1)
        self._rows = torch.repeat_interleave(groups.counts, output_size=groups.entries)

    def gaps(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the entries skipped before each position, int32 (groups, 32), and what of them is near.

        Line s of the second, int64 (shifts, groups), has count * 2^32 + sum of each group's gaps below 2^(7 + s).
        """
        previous = positions.roll(1).index_fill_(0, self._groups.row_starts, -1)
        gaps = (positions - previous - 1)[self._entries].masked_fill_(self._vacant, 0)
        lines = [
            ((gaps + ONE) * ((gaps < 1 << SHORT + shift) & ~self._vacant)).sum(dim=1) for shift in range(self._shifts)
        ]
        return gaps.int(), torch.stack(lines)

    def symbols(self, gaps: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
        """Return, for each group, how many gaps have a symbol of their own and the sum of these; int64 (2, groups)."""
        symbols = _symbols(gaps, shifts)
        escapes = (symbols == ESCAPE).sum(dim=1)
        return torch.stack([self._groups.members - escapes, symbols.sum(dim=1) - ESCAPE * escapes])

    def costs(self, gaps: torch.Tensor, shifts: torch.Tensor, laws: torch.Tensor, costs: torch.Tensor) -> torch.Tensor:
        """Return the cost of the symbols of each group, by its line of the table ``costs``; int64 (groups,)."""
        places = _symbols(gaps, shifts) + laws[:, None] * (ESCAPE + 1)
        return costs[places].masked_fill_(self._vacant, 0).sum(dim=1)

    def exponents(self, values: torch.Tensor) -> torch.Tensor:
        """Count the float32 values of each row by exponent; int64 (rows, 256)."""
        exponents = (values.view(torch.int32) >> 23) & (VALUE_SYMBOLS - 1)
        places = self._rows * VALUE_SYMBOLS + exponents
        counts = torch.zeros(self._groups.rows * VALUE_SYMBOLS, dtype=torch.int64, device=values.device)
        return counts.scatter_add_(0, places, torch.ones_like(places)).view(-1, VALUE_SYMBOLS)


def _symbols(gaps: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
    return (gaps >> shifts[:, None]).clamp_(max=ESCAPE).long()
