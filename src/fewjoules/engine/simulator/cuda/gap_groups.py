"""Layout of the entries of many rows in groups of 32; shapes depend only on the numbers of entries."""

from collections.abc import Sequence

import torch

from fewjoules.codec.positions import GROUP


class GapGroups:
    """Groups of entries, row after row; the last group of each row may have fewer members."""

    def __init__(self, counts: Sequence[int], device: torch.device) -> None:
        """Lay out the groups; ``counts`` holds the number of entries of each row."""
        self.row_entries = [int(count) for count in counts]
        self.row_groups = [-(-count // GROUP) for count in counts]
        self.rows, self.total, self.entries = len(counts), sum(self.row_groups), sum(counts)
        self.counts = torch.tensor(counts, dtype=torch.int64, device=device)
        groups = torch.tensor(self.row_groups, dtype=torch.int64, device=device)
        self.row_starts = self.counts.cumsum(0) - self.counts
        self.row_ends = groups.cumsum(0)  # in groups, like row_firsts
        self.row_firsts = self.row_ends - groups
        self.numbers = torch.arange(self.total, device=device)
        self.rows_of = torch.repeat_interleave(groups, output_size=self.total)
        self.firsts, self.ends = self.row_firsts[self.rows_of], self.row_ends[self.rows_of]
        within = GROUP * (self.numbers - self.firsts)
        self.members = (self.counts[self.rows_of] - within).clamp_(max=GROUP)
        self.begins = self.row_starts[self.rows_of] + within  # the first entry of each group
        self._bounds, self._first_bounds = self._entries_at_bounds()

    def bounds(self, positions: torch.Tensor) -> torch.Tensor:
        """Return the position before each group and that of each row's last entry: one more than groups per row."""
        return positions.index_select(0, self._bounds).index_fill_(0, self._first_bounds, -1)

    def _entries_at_bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        device = self.counts.device
        bounds = torch.empty(self.total + self.rows, dtype=torch.int64, device=device)
        rows = torch.arange(self.rows, device=device)
        bounds[self.numbers + self.rows_of + 1] = self.begins + self.members - 1
        first_bounds = self.row_firsts + rows
        bounds[first_bounds] = self.row_starts
        return bounds, first_bounds


def sums_between(values: torch.Tensor, firsts: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Sum groups [firsts[i], ends[i]) of each line of int64 (lines, groups); shape (lines, ranges).

    One running sum over everything is fast, and exact because it overflows modulo 2^64.
    """
    running = torch.empty(values.numel() + 1, dtype=torch.int64, device=values.device)
    running[:1].zero_()
    torch.cumsum(values.reshape(-1), 0, out=running[1:])
    before, after = running[:-1].view(values.shape), running[1:].view(values.shape)
    return after.index_select(1, ends - 1) - before.index_select(1, firsts)
