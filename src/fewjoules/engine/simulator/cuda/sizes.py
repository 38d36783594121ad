"""Sizes of messages on a GPU: the estimates of ``fewjoules.codec.sizes`` in tensor operations.

Nothing waits for the device and no shape depends on the data, so that a sizer can be recorded in a CUDA graph. Sums
over many entries are sums of integers, so that the same entries always give the same bytes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from fewjoules.codec import values as val
from fewjoules.codec.positions import BLOCK_BYTES
from fewjoules.codec.rans import VALUE_BITS, VALUE_SCALE, VALUE_SYMBOLS
from fewjoules.codec.sizes import ESTIMATE_FROM
from fewjoules.codec.varint import varint
from fewjoules.engine.simulator.cuda.entry_sums import EntrySums
from fewjoules.engine.simulator.cuda.gap_blocks import BLOCK_NATS, NATS, BlockTree
from fewjoules.engine.simulator.cuda.gap_groups import GapGroups, sums_between
from fewjoules.engine.simulator.cuda.gap_laws import COST_BITS, SIZE_LIMIT, ShiftSearch, means, symbol_costs
from fewjoules.errors import InvalidInputError

if TYPE_CHECKING:
    from fewjoules.engine.simulator.cuda.fused_sums import FusedSums

_FRAME_BYTES = 8  # magic, version, flags and checksum
_STATE_BITS = 31


def sizable(size: int, count: int) -> bool:
    """Whether a ``MessageSizer`` takes a message of ``count`` out of ``size`` entries; the host sizes the others."""
    return count >= ESTIMATE_FROM and 2 * count <= size < SIZE_LIMIT


class MessageSizer:
    """Sizes messages of ``counts`` entries each, stored one after the other in flat tensors."""

    def __init__(self, size: int, counts: Sequence[int], device: torch.device | str, values: str = "float32") -> None:
        """Prepare everything that depends on shapes alone; ``values`` is the kind of the messages' values."""
        counts, device, kind = [int(count) for count in counts], torch.device(device), val.kind_named(values)
        _check(size, counts)
        self._groups = groups = GapGroups(counts, device)
        self._tree, self._shifts = BlockTree(groups), ShiftSearch(size, groups)
        self._costs = symbol_costs(device)
        self._bitmap_bytes = (size + 7) // 8
        fixed = [_fixed_bytes(size, count) + kind.side_bytes(count) + kind.plain_bytes * count for count in counts]
        self._fixed_bytes = torch.tensor(fixed, device=device)
        self._sums = _entry_sums(groups, self._shifts.count)

    def __call__(self, positions: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return the bytes of each message of float32 values, int64 (rows,); positions (int64) increase in each row."""
        return self.with_symbols(positions, self._sums.exponents(values))

    def with_symbols(self, positions: torch.Tensor, symbol_counts: torch.Tensor) -> torch.Tensor:
        """Return the bytes of each message of any kind of values, from the counts (rows, 256) of modelled bytes."""
        coded = coded_bytes(symbol_counts, self._groups.counts)
        return self._fixed_bytes + self.position_bytes(positions) + coded

    def position_bytes(self, positions: torch.Tensor) -> torch.Tensor:
        """Return the bytes of the positions of each row, as gaps in blocks or as a bitmap; int64 (rows,)."""
        groups = self._groups
        gaps, near = self._sums.gaps(positions)
        firsts, ends, shifts = self._blocks(near, groups.bounds(positions))
        laws = means(*sums_between(self._sums.symbols(gaps, shifts), firsts, ends))
        costs = self._sums.costs(gaps, shifts, laws, self._costs) + (groups.members * shifts << COST_BITS)
        lines = torch.stack([costs, firsts == groups.numbers])
        cost, blocks = sums_between(lines, groups.row_firsts, groups.row_ends)
        stream = (cost + (_STATE_BITS << COST_BITS) >> (COST_BITS + 3)) + 1
        return (BLOCK_BYTES * blocks + _varint_bytes(stream) + stream).clamp_(max=self._bitmap_bytes)

    def _blocks(self, near: torch.Tensor, bounds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return first group, end and shift of each group's block; a row is one block where that is smaller."""
        groups = self._groups
        firsts, ends = self._tree.blocks(bounds)
        ranges = torch.cat([firsts, groups.row_firsts]), torch.cat([ends, groups.row_ends])
        nats, shifts = self._shifts.best(sums_between(near, *ranges))
        estimates = ((nats + BLOCK_NATS) * ((1 << COST_BITS) / NATS)).long()
        parted = estimates[: groups.total] * (firsts == groups.numbers)
        whole = estimates[groups.total :] < sums_between(parted[None], groups.row_firsts, groups.row_ends)[0]
        joined = whole.index_select(0, groups.rows_of)
        row_shifts = shifts[groups.total :].index_select(0, groups.rows_of)
        return (
            torch.where(joined, groups.firsts, firsts),
            torch.where(joined, groups.ends, ends),
            torch.where(joined, row_shifts, shifts[: groups.total]),
        )


def _entry_sums(groups: GapGroups, shifts: int) -> "EntrySums | FusedSums":
    if not groups.counts.is_cuda:
        return EntrySums(groups, shifts)
    from fewjoules.engine.simulator.cuda.fused_sums import FusedSums

    return FusedSums(groups, shifts)


def coded_bytes(symbol_counts: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
    """Return the size of modelled bytes with (rows, 256) counts: coded, or plain where that is smaller; (rows,)."""
    counts = symbol_counts.long()
    used = counts > 0
    shares = (counts * VALUE_SCALE // entries[:, None]).clamp_(min=1) * used
    frequencies, order = shares.sort(dim=1, descending=True, stable=True)
    frequencies = _with_sum(frequencies)
    bits = counts.gather(1, order) * (float(VALUE_BITS) - frequencies.clamp(min=1).double().log2())
    stream = bits.sum(dim=1).long() // 8 + 6
    marks = used.to(torch.uint8)
    span = VALUE_SYMBOLS - marks.argmax(dim=1) - marks.flip(1).argmax(dim=1)
    table = 2 + span + (frequencies >= 128).sum(dim=1)
    return torch.minimum(table + _varint_bytes(stream) + stream, entries)


def _with_sum(frequencies: torch.Tensor) -> torch.Tensor:
    """Change frequencies, sorted from the largest, so that they sum to 2^12.

    Like the host's coder, take an excess from the largest, down to 1, then from the next, and so on; add a deficit to
    the largest.
    """
    spare = (frequencies - 1).clamp_(min=0)
    excess = frequencies.sum(dim=1, keepdim=True) - VALUE_SCALE
    taken = torch.minimum(excess - (spare.cumsum(dim=1) - spare), spare)
    taken[:, 1:].clamp_(min=0)
    return frequencies - taken


def _varint_bytes(value: torch.Tensor) -> torch.Tensor:
    """Return the bytes of whole numbers of at least 1, with seven binary digits in each byte."""
    digits = torch.frexp(value.double()).exponent
    return (digits + 6) // 7


def _fixed_bytes(size: int, count: int) -> int:
    return _FRAME_BYTES + len(varint(size)) + len(varint(count))


def _check(size: int, counts: list[int]) -> None:
    if not counts:
        raise InvalidInputError("counts must have at least one entry")
    for count in counts:
        if not sizable(size, count):
            raise InvalidInputError(
                f"counts must be from {ESTIMATE_FROM} to size / 2 = {size // 2}, with a size below {SIZE_LIMIT}, "
                f"got {count}"
            )
    if sum(counts) >= SIZE_LIMIT:
        raise InvalidInputError(f"counts must sum to less than {SIZE_LIMIT}, got {sum(counts)}")
