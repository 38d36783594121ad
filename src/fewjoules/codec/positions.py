"""Positions on the wire: gaps under geometric laws fitted block by block, or a bitmap, or nothing at all.

The gap before an entry is coded as ``gap >> shift`` under a geometric law and ``shift`` plain bits. Each
block of 32 * 2^level entries has its own shift and mean, in three bytes, so that dense and sparse layers are both coded
well. If more than half of all positions are kept, the missing ones are coded instead.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import IntArray
from fewjoules.codec import rans
from fewjoules.codec.blocks import best_laws, best_levels
from fewjoules.errors import CorruptPayloadError

ALL, BITMAP, GAPS, MISSING_GAPS = range(4)
GROUP = 32  # entries of the smallest block
MAX_LEVEL = 40
BLOCK_BYTES = 3
_BLOCK_BITS = 8.0 * BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class Blocks:
    """Entries [starts[b], starts[b + 1]) share a shift and a mean of their high parts, in 64ths."""

    levels: NDArray[np.uint8]
    starts: IntArray
    shifts: NDArray[np.uint8]
    means: NDArray[np.uint16]

    def to_bytes(self) -> bytes:
        """Write three bytes per block: level, then shift and mean as 6 + 10 bits."""
        packed = np.empty((self.levels.size, BLOCK_BYTES), dtype=np.uint8)
        packed[:, 0] = self.levels
        packed[:, 1:] = (self.shifts.astype("<u2") << 10 | self.means).astype("<u2").view(np.uint8).reshape(-1, 2)
        return packed.tobytes()


def gaps_of(positions: IntArray) -> IntArray:
    """Return the number of entries skipped before each position."""
    return np.diff(positions, prepend=-1) - 1


def fit_blocks(gaps: IntArray) -> Blocks:
    """Find dyadic blocks of least estimated size, each with its best law, or one block for all if that is smaller."""
    parted, parted_bits = _with_laws(gaps, best_levels(gaps, GROUP, _BLOCK_BITS))
    if parted.levels.size == 1:
        return parted
    level = int(-(-gaps.size // GROUP) - 1).bit_length()
    whole, whole_bits = _with_laws(gaps, np.array([level], dtype=np.uint8))
    return whole if whole_bits < parted_bits else parted


def _with_laws(gaps: IntArray, levels: NDArray[np.uint8]) -> tuple[Blocks, float]:
    starts = block_starts(levels, gaps.size)
    shifts, means, bits = best_laws(gaps, starts, _BLOCK_BITS)
    return Blocks(levels, starts, shifts, means), bits


def block_starts(levels: NDArray[np.uint8], entries: int) -> IntArray:
    """Return the first entry of each block, then the number of entries; the last block may be cut short."""
    ends = np.cumsum(np.int64(GROUP) << levels.astype(np.int64))
    return np.concatenate([[0], np.minimum(ends, entries)])


def parse_blocks(data: memoryview, entries: int) -> tuple[Blocks, int]:
    """Read the blocks that cover the entries; return them and their size in bytes."""
    most = min(len(data) // BLOCK_BYTES, -(-entries // GROUP))
    packed = np.frombuffer(data, dtype=np.uint8, count=most * BLOCK_BYTES).reshape(-1, BLOCK_BYTES)
    levels = np.minimum(packed[:, 0], MAX_LEVEL)
    ends = np.cumsum(np.minimum(np.int64(GROUP) << levels.astype(np.int64), entries))
    used = int(np.searchsorted(ends, entries)) + 1
    if used > levels.size or int(packed[:used, 0].max()) > MAX_LEVEL:
        raise CorruptPayloadError(f"the blocks of positions are cut off or do not cover {entries} entries")
    laws = packed[:used, 1:].copy().view("<u2").ravel()
    shifts, means = (laws >> 10).astype(np.uint8), (laws & 1023).astype(np.uint16)
    if int(shifts.max()) > rans.MAX_SHIFT:
        raise CorruptPayloadError(f"the shift of a block must be at most {rans.MAX_SHIFT}, got {int(shifts.max())}")
    return Blocks(levels[:used], block_starts(levels[:used], entries), shifts, means), used * BLOCK_BYTES


def encode_gaps(gaps: IntArray, blocks: Blocks) -> bytes:
    """Return the coded stream of the gaps."""
    words = np.empty(gaps.size * 4 + 4, dtype=np.uint32)
    state, used = rans.encode_gaps(gaps, blocks.starts, blocks.shifts, blocks.means, words)
    return rans.to_bytes(state, words, used)


def decode_gaps(stream: memoryview, blocks: Blocks, size: int) -> IntArray:
    """Decode a stream of gaps to positions."""
    state, words = rans.from_bytes(stream)
    positions = np.empty(int(blocks.starts[-1]), dtype=np.int64)
    if not rans.decode_gaps(state, words, blocks.starts, blocks.shifts, blocks.means, size, positions):
        raise CorruptPayloadError("the positions do not decode to increasing numbers below the size")
    return positions


def complement(positions: IntArray, size: int) -> IntArray:
    """Return all positions below ``size`` that are not among the given ones."""
    missing = np.ones(size, dtype=bool)
    missing[positions] = False
    return np.flatnonzero(missing)


def to_bitmap(positions: IntArray, size: int) -> bytes:
    """Write one bit per position, lowest bit first."""
    kept = np.zeros(size, dtype=np.uint8)
    kept[positions] = 1
    return np.packbits(kept, bitorder="little").tobytes()


def from_bitmap(data: memoryview, size: int, count: int) -> IntArray:
    """Read the positions whose bits are set; there must be ``count`` of them."""
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    if bits[size:].any() or int(np.count_nonzero(bits)) != count:
        raise CorruptPayloadError(f"the bitmap must have {count} bits set below {size}")
    return np.flatnonzero(bits[:size])
