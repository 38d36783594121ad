"""Decide which runs of gaps share a law: the cheapest dyadic partition, found bottom-up in a binary tree.

Sizes are estimated with additions, multiplications and divisions only, which every processor rounds alike, so that an
encoder writes the same bytes everywhere.
"""

import math

import numba
import numpy as np

_ESCAPE = 255  # high parts of at least this are escaped
_LENGTHS = 49  # binary digits of a gap, and one more than the largest shift


@numba.njit(cache=True, nogil=True)
def _xlog2x(x):
    """Return x log2 x for x >= 0, by the series of the inverse hyperbolic tangent."""
    if x <= 1.0:
        return 0.0
    mantissa, exponent = math.frexp(x)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = 2.0 * mantissa, exponent - 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square, series = s * s, 0.0
    for odd in range(23, 0, -2):
        series = series * square + 1.0 / odd
    return x * (exponent + 2.8853900817779268 * s * series)


@numba.njit(cache=True, nogil=True)
def _geometric_bits(count, total):
    """Return the ideal bits of ``count`` gaps that sum to ``total`` under the best geometric law."""
    return _xlog2x(count + total) - _xlog2x(count) - _xlog2x(total)


@numba.njit(cache=True, nogil=True)
def best_levels(gaps, group, block_bits):
    """Return the levels of the best blocks: a block of level l has ``group`` * 2^l gaps, the last one maybe fewer."""
    groups = (gaps.size + group - 1) // group
    counts, sums, costs = np.empty(2 * groups + 64), np.empty(2 * groups + 64), np.empty(2 * groups + 64)
    joined = np.ones(2 * groups + 64, dtype=np.bool_)
    starts = np.zeros(64, dtype=np.int64)  # start of each level of the tree in these arrays
    for i in range(groups):
        first, end = i * group, min((i + 1) * group, gaps.size)
        total = np.int64(0)
        for j in range(first, end):
            total += gaps[j]
        counts[i], sums[i] = end - first, total
        costs[i] = _geometric_bits(counts[i], sums[i]) + block_bits
    width, level = groups, 0
    while width > 1:
        below, here = starts[level], starts[level] + width
        level += 1
        starts[level] = here
        for i in range((width + 1) // 2):
            left, right = below + 2 * i, below + 2 * i + 1
            lone = 2 * i + 1 == width
            counts[here + i] = counts[left] + (0.0 if lone else counts[right])
            sums[here + i] = sums[left] + (0.0 if lone else sums[right])
            apart = costs[left] + (0.0 if lone else costs[right])
            together = _geometric_bits(counts[here + i], sums[here + i]) + block_bits
            joined[here + i] = together < apart
            costs[here + i] = min(together, apart)
        width = (width + 1) // 2
    return _leaves(joined, starts, level, groups)


@numba.njit(cache=True, nogil=True)
def _leaves(joined, starts, top, groups):
    """Return the levels of the blocks: from the root down, a joined node is a block and any other is split."""
    levels = np.empty(groups, dtype=np.uint8)
    found, first = 0, np.int64(0)
    while first < groups:
        level = top
        while level > 0 and ((first >> level) << level != first or not joined[starts[level] + (first >> level)]):
            level -= 1
        levels[found] = level
        found += 1
        first += np.int64(1) << level
    return levels[:found]


@numba.njit(cache=True, nogil=True)
def best_laws(gaps, starts, block_bits):
    """Return shift and mean (in 64ths) of each block, and the estimated bits of all blocks.

    Far gaps may be escaped at 68 bits each, so that the law can fit the near ones where entries are clustered.
    """
    shifts = np.empty(starts.size - 1, dtype=np.uint8)
    means = np.empty(starts.size - 1, dtype=np.uint16)
    bits = 0.0
    for block in range(shifts.size):
        members = gaps[starts[block] : starts[block + 1]]
        counts, sums = _by_length(members)
        shift, best = _best_shift(counts, sums)
        near, high = np.int64(0), np.int64(0)
        for i in range(members.size):
            part = members[i] >> np.int64(shift)
            if part < _ESCAPE:
                near += 1
                high += part
        shifts[block] = shift
        means[block] = min((64 * high + near // 2) // max(near, 1), 1023)
        bits += best + block_bits
    return shifts, means, bits


@numba.njit(cache=True, nogil=True)
def _by_length(gaps):
    """Return the count and the sum of the gaps with each number of binary digits."""
    counts, sums = np.zeros(_LENGTHS, dtype=np.int64), np.zeros(_LENGTHS, dtype=np.int64)
    for i in range(gaps.size):
        gap, length = gaps[i], 0
        for digits in (32, 16, 8, 4, 2, 1):
            if gap >> digits:
                gap >>= digits
                length += digits
        length += gap  # the rest is the leading digit, or a gap of 0
        counts[length] += 1
        sums[length] += gaps[i]
    return counts, sums


@numba.njit(cache=True, nogil=True)
def _best_shift(counts, sums):
    """Return the shift of least estimated bits; gaps with more than shift + 7 digits count as escapes."""
    total = np.int64(0)
    for length in range(_LENGTHS):
        total += counts[length]
    chosen, best = 0, np.inf
    near, near_sum = np.int64(0), np.int64(0)
    for length in range(7):
        near += counts[length]
        near_sum += sums[length]
    for shift in range(_LENGTHS - 8):
        near += counts[shift + 7]
        near_sum += sums[shift + 7]
        high = float(near_sum >> shift)
        if high >= 16.0 * near and near > 0:
            continue
        bits = _geometric_bits(float(near), high) + float(shift) * total + 68.0 * (total - near)
        if bits < best:
            chosen, best = shift, bits
    return chosen, best
