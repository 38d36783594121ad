"""Decide which groups of gaps share a law: ``fewjoules.codec.blocks.best_levels`` for many rows at once.

Each row has a binary tree over its groups, padded with empty groups to a power of two. Trees lie side by side, the
tallest first, so that in each level the nodes with parents come first and the two children of a node are neighbours.
The gaps of a node sum to the difference of two positions, so only the choice between one block and two goes level by
level. Sizes are compared in nats.
"""

import math

import torch

from fewjoules.codec.positions import BLOCK_BYTES, GROUP
from fewjoules.engine.simulator.cuda.gap_groups import GapGroups

NATS = math.log(2.0)  # nats in a bit
BLOCK_NATS = 8.0 * BLOCK_BYTES * NATS


class BlockTree:
    """The trees of all rows, one level after the other."""

    def __init__(self, groups: GapGroups) -> None:
        """Lay out the nodes: the bounds and the number of gaps of each."""
        device = groups.counts.device
        heights = [(own - 1).bit_length() for own in groups.row_groups]
        order = sorted(range(groups.rows), key=lambda row: -heights[row])
        self._levels: list[tuple[int, int]] = []  # first node of each level, and the one after its last
        parts: list[tuple[int, int, int, int]] = []  # row, level, first node and number of nodes
        end = 0
        for level in range(heights[order[0]] + 1):
            start = end
            for row in (row for row in order if heights[row] >= level):
                parts.append((row, level, end, 1 << (heights[row] - level)))
                end += parts[-1][3]
            self._levels.append((start, end))
        self._lay_out(groups, torch.tensor(parts, device=device))
        first_leaves = [first for _, _, first, _ in sorted(parts[: groups.rows])]
        self._within = groups.numbers - groups.firsts
        self._leaves = torch.tensor(first_leaves, device=device)[groups.rows_of] + self._within
        self._groups = groups
        self._one = torch.ones((), dtype=torch.int64, device=device)

    def _lay_out(self, groups: GapGroups, parts: torch.Tensor) -> None:
        nodes = self._levels[-1][1]
        rows, levels, firsts, _ = torch.repeat_interleave(parts, parts[:, 3], dim=0, output_size=nodes).unbind(1)
        numbers = torch.arange(nodes, device=parts.device) - firsts
        own, entries = (groups.row_ends - groups.row_firsts)[rows], groups.counts[rows]
        begins, ends = (torch.minimum(edge << levels, own) for edge in (numbers, numbers + 1))
        counts = torch.minimum(GROUP * ends, entries) - torch.minimum(GROUP * begins, entries)
        self._first_bounds, self._end_bounds = (edge + groups.row_firsts[rows] + rows for edge in (begins, ends))
        self._counts = counts.double()
        self._fixed_nats = BLOCK_NATS * (counts > 0) - xlogx(self._counts)
        self._node_levels = levels.to(torch.uint8)

    def blocks(self, bounds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the first group of each group's block and the one after its last, from ``GapGroups.bounds``."""
        levels = self._tops(self._nats(bounds.double())).index_select(0, self._leaves).long()
        width = self._one << levels
        firsts = (self._within & -width) + self._groups.firsts
        return firsts, torch.minimum(firsts + width, self._groups.ends)

    def _nats(self, bounds: torch.Tensor) -> torch.Tensor:
        """Return the size of each node as one block."""
        sums = bounds.index_select(0, self._end_bounds) - bounds.index_select(0, self._first_bounds) - self._counts
        return xlogx(self._counts + sums) - xlogx(sums) + self._fixed_nats

    def _tops(self, nats: torch.Tensor) -> torch.Tensor:
        """Return, for each leaf, the level of the topmost node above it that is smaller as one block than split."""
        apart = nats.clone()
        start, end = self._levels[0]
        least = nats[start:end]
        for start, end in self._levels[1:]:
            children = least[: 2 * (end - start)]
            torch.add(children[0::2], children[1::2], out=apart[start:end])
            least = torch.minimum(nats[start:end], apart[start:end])
        tops = (nats < apart) * self._node_levels
        for (below, _), (start, end) in zip(self._levels[-2::-1], self._levels[:0:-1], strict=True):
            children = tops[below : below + 2 * (end - start)].view(-1, 2)
            torch.maximum(children, tops[start:end, None], out=children)
        return tops[: self._levels[0][1]]


def xlogx(x: torch.Tensor) -> torch.Tensor:
    """Return x ln x for x >= 0."""
    return torch.special.xlogy(x, x)
