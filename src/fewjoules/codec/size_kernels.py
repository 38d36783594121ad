"""Sizes of the parts of messages, exact or estimated, compiled by numba.

The kernels release the interpreter lock, so that a simulation can size messages during its next round.
"""

import numba
import numpy as np

from fewjoules.codec.blocks import best_laws, best_levels
from fewjoules.codec.layout import FRAME_BYTES
from fewjoules.codec.positions import BLOCK_BYTES, GROUP
from fewjoules.codec.rans import VALUE_SCALE, VALUE_SYMBOLS, encode_gaps, encode_symbols, estimate_gaps

_BLOCK_BITS = 8.0 * BLOCK_BYTES


@numba.njit(cache=True, nogil=True)
def float32_messages(size, positions, bits, plain_bytes, counts, estimate_from, sizes):
    """Write the sizes of consecutive messages of ``counts`` entries each into ``sizes``."""
    start = 0
    for message in range(counts.size):
        end = start + counts[message]
        beside = frame_bytes(size, counts[message]) + plain_bytes * counts[message]
        coded = position_bytes(size, positions[start:end], estimate_from)
        sizes[message] = beside + coded + _exponent_bytes(bits[start:end], estimate_from)
        start = end


@numba.njit(cache=True, nogil=True)
def frame_bytes(size, count):
    """Bytes of header and checksum."""
    return FRAME_BYTES + _varint_bytes(size) + _varint_bytes(count)


@numba.njit(cache=True, nogil=True)
def _varint_bytes(value):
    count = 1
    while value >= 128:
        value >>= 7
        count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _stream_bytes(state, used):
    """Bytes of a stream: a state in at least 5 bytes, and words."""
    count = 0
    while state > np.uint64(0):
        state >>= np.uint64(8)
        count += 1
    return max(5, count) + 4 * used


@numba.njit(cache=True, nogil=True)
def position_bytes(size, positions, estimate_from):
    """Bytes of the positions written the smallest way; estimated for ``estimate_from`` coded gaps or more."""
    if positions.size == 0 or positions.size == size:
        return 0
    gaps = _gaps(positions) if 2 * positions.size <= size else _missing_gaps(positions, size)
    levels = best_levels(gaps, GROUP, _BLOCK_BITS)
    starts = _starts(levels, gaps.size)
    shifts, means, estimate = best_laws(gaps, starts, _BLOCK_BITS)
    if levels.size > 1:
        whole = np.zeros(2, dtype=np.int64)
        whole[1] = gaps.size
        whole_shifts, whole_means, whole_estimate = best_laws(gaps, whole, _BLOCK_BITS)
        if whole_estimate < estimate:
            starts, shifts, means = whole, whole_shifts, whole_means
    if gaps.size < estimate_from:
        words = np.empty(gaps.size * 4 + 4, dtype=np.uint32)
        stream = _stream_bytes(*encode_gaps(gaps, starts, shifts, means, words))
    else:
        stream = np.int64(estimate_gaps(gaps, starts, shifts, means) + 31.0) // 8 + 1
    coded = BLOCK_BYTES * shifts.size + _varint_bytes(stream) + stream
    return min(coded, (size + 7) // 8)


@numba.njit(cache=True, nogil=True)
def _gaps(positions):
    gaps = np.empty(positions.size, dtype=np.int64)
    last = np.int64(-1)
    for i in range(positions.size):
        gaps[i] = positions[i] - last - 1
        last = positions[i]
    return gaps


@numba.njit(cache=True, nogil=True)
def _missing_gaps(positions, size):
    """Return the gaps between the missing positions."""
    gaps = np.empty(size - positions.size, dtype=np.int64)
    found, skipped, expected = 0, 0, np.int64(0)
    for i in range(positions.size):
        for _ in range(expected, positions[i]):
            gaps[found] = skipped
            found, skipped = found + 1, 0
        skipped += 1
        expected = positions[i] + 1
    for _ in range(expected, size):
        gaps[found] = skipped
        found, skipped = found + 1, 0
    return gaps


@numba.njit(cache=True, nogil=True)
def _starts(levels, entries):
    starts = np.zeros(levels.size + 1, dtype=np.int64)
    for block in range(levels.size):
        starts[block + 1] = min(entries, starts[block] + (np.int64(GROUP) << np.int64(levels[block])))
    return starts


@numba.njit(cache=True, nogil=True)
def _exponent_bytes(bits, estimate_from):
    """Size of the modelled bytes of float32 values; estimated for ``estimate_from`` values or more."""
    counts = np.zeros(VALUE_SYMBOLS, dtype=np.int64)
    for i in range(bits.size):
        counts[(bits[i] >> np.uint32(23)) & np.uint32(255)] += 1
    if bits.size == 0 or bits.size >= estimate_from:
        return counted_bytes(counts, bits.size)
    frequencies = _frequencies(counts, bits.size)
    return _coded_bytes(frequencies, _coded_symbols(bits, frequencies), bits.size)


@numba.njit(cache=True, nogil=True)
def counted_bytes(counts, entries):
    """Estimate the size of modelled bytes from the ``counts`` of each value, ``entries`` in all."""
    if entries == 0:
        return 0
    frequencies = _frequencies(counts, entries)
    return _coded_bytes(frequencies, _entropy_bytes(counts, frequencies), entries)


@numba.njit(cache=True, nogil=True)
def _coded_bytes(frequencies, stream, entries):
    first, last = 0, VALUE_SYMBOLS - 1
    while frequencies[first] == 0:
        first += 1
    while frequencies[last] == 0:
        last -= 1
    table = 2
    for symbol in range(first, last + 1):
        table += _varint_bytes(frequencies[symbol])
    return min(table + _varint_bytes(stream) + stream, entries)


@numba.njit(cache=True, nogil=True)
def _coded_symbols(bits, frequencies):
    symbols = np.empty(bits.size, dtype=np.uint8)
    for i in range(bits.size):
        symbols[i] = (bits[i] >> np.uint32(23)) & np.uint32(255)
    cumulative = np.zeros(VALUE_SYMBOLS + 1, dtype=np.uint32)
    for symbol in range(VALUE_SYMBOLS):
        cumulative[symbol + 1] = cumulative[symbol] + np.uint32(frequencies[symbol])
    words = np.empty(symbols.size + 4, dtype=np.uint32)
    return _stream_bytes(*encode_symbols(symbols, cumulative, words))


@numba.njit(cache=True, nogil=True)
def _entropy_bytes(counts, frequencies):
    bits = 0.0
    for symbol in range(VALUE_SYMBOLS):
        if counts[symbol] > 0:
            bits += counts[symbol] * (np.log2(float(VALUE_SCALE)) - np.log2(float(frequencies[symbol])))
    return np.int64(bits) // 8 + 6


@numba.njit(cache=True, nogil=True)
def _frequencies(counts, total):
    """Return what ``fewjoules.codec.symbols.fit_frequencies`` returns, from counts."""
    frequencies = np.zeros(VALUE_SYMBOLS, dtype=np.int64)
    rest = -np.int64(VALUE_SCALE)
    for symbol in range(VALUE_SYMBOLS):
        if counts[symbol] > 0:
            frequencies[symbol] = max(1, counts[symbol] * VALUE_SCALE // total)
            rest += frequencies[symbol]
    while rest != 0:
        largest = 0
        for symbol in range(1, VALUE_SYMBOLS):
            if frequencies[symbol] > frequencies[largest]:
                largest = symbol
        excess = min(rest, frequencies[largest] - 1)
        frequencies[largest] -= excess
        rest -= excess
    return frequencies
