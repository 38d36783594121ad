"""``EntrySums`` in Triton: each sum takes one pass over the entries and can be recorded in a CUDA graph."""

from typing import Any

import torch
import triton

from fewjoules.codec.positions import GROUP
from fewjoules.codec.rans import VALUE_SYMBOLS
from fewjoules.engine.simulator.cuda import entry_kernels as kernels
from fewjoules.engine.simulator.cuda.gap_groups import GapGroups
from fewjoules.engine.simulator.cuda.gap_laws import ESCAPE, SHORT

GROUPS = 32  # of a program
TILE = 4096  # values of a program
_SHAPE: dict[str, Any] = {"GROUPS": GROUPS, "GROUP": int(GROUP)}


class FusedSums:
    """Sums over the entries of each group or row; the methods do what those of ``EntrySums`` do."""

    def __init__(self, groups: GapGroups, shifts: int) -> None:
        """Prepare for groups of this layout; gaps are summed for ``shifts`` shifts."""
        self._groups, self._shifts = groups, shifts
        self._grid = (triton.cdiv(groups.total, GROUPS),)
        self._tiles = (triton.cdiv(max(groups.row_entries), TILE), groups.rows)

    def gaps(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the entries skipped before each position and, for each shift, what of them is near."""
        groups = self._groups
        gaps = torch.empty((groups.total, int(GROUP)), dtype=torch.int32, device=positions.device)
        near = torch.empty((self._shifts, groups.total), dtype=torch.int64, device=positions.device)
        layout = (groups.begins, groups.members, groups.numbers - groups.firsts)
        kernels.gaps_of_groups[self._grid](
            positions, *layout, gaps, near, groups.total, SHIFTS=self._shifts, SHORT=SHORT, **_SHAPE
        )
        return gaps, near

    def symbols(self, gaps: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
        """Return, for each group, how many gaps have a symbol of their own and the sum of these."""
        lines = torch.empty((2, self._groups.total), dtype=torch.int64, device=gaps.device)
        kernels.symbols_of_groups[self._grid](
            gaps, shifts, self._groups.members, lines, self._groups.total, ESCAPE=ESCAPE, **_SHAPE
        )
        return lines

    def costs(self, gaps: torch.Tensor, shifts: torch.Tensor, laws: torch.Tensor, costs: torch.Tensor) -> torch.Tensor:
        """Return the cost of the symbols of each group, by its line of the table ``costs``."""
        total = torch.empty(self._groups.total, dtype=torch.int64, device=gaps.device)
        given = (gaps, shifts, laws, self._groups.members, costs, total)
        kernels.costs_of_groups[self._grid](*given, self._groups.total, ESCAPE=ESCAPE, **_SHAPE)
        return total

    def exponents(self, values: torch.Tensor) -> torch.Tensor:
        """Count the float32 values of each row by exponent."""
        groups = self._groups
        counts = torch.zeros((groups.rows, VALUE_SYMBOLS), dtype=torch.int32, device=values.device)
        kernels.exponents_of_rows[self._tiles](
            values, groups.row_starts, groups.counts, counts, SYMBOLS=VALUE_SYMBOLS, TILE=TILE
        )
        return counts.long()
