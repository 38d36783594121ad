"""Sizes of messages without writing them: exact for short messages, within 0.1 % or 4 bytes for long ones.

Recorded sizes of earlier runs are compared to the byte, so the two ways to size a message keep their own thresholds:

- ``ESTIMATE_FROM``: float32 messages, any number in one call. Positions are estimated from this many coded gaps on,
  exponents from this many values on.
- ``LOSSY_ESTIMATE_FROM``: messages of the other kinds, one at a time. Messages of fewer entries are encoded; for longer
  ones both parts are estimated.
"""

import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import IntArray
from fewjoules.codec import size_kernels as kernels
from fewjoules.codec import symbols as sym
from fewjoules.codec.update import SparseUpdate
from fewjoules.codec.values import KINDS, SplitValues, ValueKind, kind_named

ESTIMATE_FROM = 1 << 11
LOSSY_ESTIMATE_FROM = 1 << 13
_STREAM_BYTES = 8  # of a long stream in addition to its entropy: its state and its length


def float32_sizes(size: int, positions: IntArray, values: NDArray[np.float32], counts: IntArray) -> IntArray:
    """Bytes of messages of ``counts`` entries each, stored one after the other in ``positions`` and ``values``."""
    sizes = np.empty(counts.size, dtype=np.int64)
    plain_bytes, bits = KINDS["float32"].plain_bytes, values.view(np.uint32)
    kernels.float32_messages(size, positions, bits, plain_bytes, counts, ESTIMATE_FROM, sizes)
    return sizes


def position_sizes(size: int, positions: IntArray, counts: IntArray) -> IntArray:
    """Bytes of the positions of consecutive messages of ``counts`` entries each; estimated for long messages."""
    spans = zip(np.cumsum(counts) - counts, np.cumsum(counts), strict=True)
    sizes = [kernels.position_bytes(size, positions[start:end], ESTIMATE_FROM) for start, end in spans]
    return np.array(sizes, dtype=np.int64)


def counted_sizes(kind: str, size: int, symbol_counts: IntArray, position_bytes: IntArray | int = 0) -> IntArray:
    """Bytes of messages, from the counts (messages, 256) of their modelled bytes and the bytes of their positions.

    Messages may differ in their number of entries, which should be at least ``ESTIMATE_FROM``. Messages with every
    entry have 0 bytes of positions.
    """
    chosen = kind_named(kind)
    coded = [_counted_bytes(chosen, size, counts) for counts in symbol_counts.astype(np.int64)]
    return np.array(coded, dtype=np.int64) + position_bytes


def dense_float32_sizes(size: int, exponent_counts: IntArray) -> IntArray:
    """Bytes of float32 messages with every entry, from the counts (messages, 256) of their exponents.

    ``size`` should be at least ``ESTIMATE_FROM``.
    """
    return counted_sizes("float32", size, exponent_counts)


def dense_qsgd_sizes(size: int, symbol_counts: IntArray) -> IntArray:
    """Bytes of QSGD messages with every entry, from the counts (messages, 256) of signed levels; 128 stands for 0."""
    return counted_sizes("qsgd", size, symbol_counts)


def lossy_size(update: SparseUpdate, kind: ValueKind, parts: SplitValues) -> int:
    """Bytes of one message of at least ``LOSSY_ESTIMATE_FROM`` entries, estimated from the parts of its values."""
    frequencies = sym.fit_frequencies(parts.symbols)
    stream = _STREAM_BYTES + int(sym.estimated_bits(parts.symbols, frequencies)) // 8
    modelled = min(len(sym.table_to_bytes(frequencies)) + stream, update.count)
    positions = int(kernels.position_bytes(update.size, update.positions, 0))
    return _beside(kind, update.size, update.count) + positions + modelled


def _counted_bytes(kind: ValueKind, size: int, counts: IntArray) -> int:
    entries = int(counts.sum())
    return _beside(kind, size, entries) + int(kernels.counted_bytes(counts, entries))


def _beside(kind: ValueKind, size: int, count: int) -> int:
    """Bytes of a message without its positions and its modelled bytes."""
    return int(kernels.frame_bytes(size, count)) + kind.side_bytes(count) + kind.plain_bytes * count
