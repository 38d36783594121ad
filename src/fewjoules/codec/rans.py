"""Range asymmetric numeral systems: a 64-bit entropy coder whose tables are integers, compiled by numba.

A stream is a state in [2^31, 2^63) followed by 32-bit words, all little-endian. A symbol of frequency f out of 2^b
costs b - log2(f) bits; the coder adds 31 bits to a stream, and at most 8 for whole bytes [DUDA13]. Encoding runs
backwards, so that decoding runs forwards.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from fewjoules.errors import CorruptPayloadError

LOWEST = np.uint64(1 << 31)
WORD = np.uint64(32)
MASK = np.uint64(0xFFFFFFFF)
ZERO = np.uint64(0)
ONE = np.uint64(1)

GAP_SYMBOLS = 256  # the last one is an escape
GAP_BITS = np.uint64(20)
GAP_SCALE = np.uint64(1 << 20)
ESCAPE_BITS = np.uint64(24)
GUESSES = 512
GUESS_SHIFT = np.uint64(20 - 9)
MEAN_UNIT = 64  # the mean of a block's high parts is coded in 64ths
MAX_SHIFT = 40

VALUE_SYMBOLS = 256
VALUE_BITS = np.uint64(12)
VALUE_SCALE = 1 << 12

Words = NDArray[np.uint32]


@numba.njit(cache=True, error_model="numpy", inline="always")
def _push(state, words, used, start, frequency, bits):
    """Push a symbol of ``frequency`` / 2^``bits`` onto the state; return the state and the words used."""
    if state >= ((LOWEST >> bits) << WORD) * frequency:
        words[used] = np.uint32(state & MASK)
        used += 1
        state >>= WORD
    whole = state // frequency
    return (whole << bits) + (state - whole * frequency) + start, used


@numba.njit(cache=True, error_model="numpy", inline="always")
def _refill(state, words, used):
    """Read the next word when the state is low; a stream that ends too early reads zeros and fails its check."""
    if state < LOWEST:
        word = words[used] if used < words.size else np.uint32(0)
        state = (state << WORD) | np.uint64(word)
        used += 1
    return state, used


@numba.njit(cache=True, error_model="numpy", nogil=True)
def geometric_table(mean, cumulative):
    """Fill in cumulative frequencies of a geometric law of mean ``mean`` / 64 over 256 symbols, in integers only.

    Each symbol gets at least 1. Of the rest, the first symbol takes the share 64 / (mean + 64), the second the same
    share of what remains, and so on.
    """
    rest = GAP_SCALE - np.uint64(GAP_SYMBOLS)
    unit, whole = np.uint64(MEAN_UNIT), np.uint64(mean) + np.uint64(MEAN_UNIT)
    total = ZERO
    for symbol in range(GAP_SYMBOLS):
        cumulative[symbol] = np.uint32(total)
        share = rest * unit // whole
        if symbol == GAP_SYMBOLS - 1:
            share = rest
        rest -= share
        total += ONE + share
    cumulative[GAP_SYMBOLS] = np.uint32(total)


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _first_symbols(cumulative, guess):
    """Fill in, for each value of a slot's leading bits, the symbol at which the search starts."""
    symbol = 0
    for i in range(GUESSES):
        while np.uint64(cumulative[symbol + 1]) <= np.uint64(i) << GUESS_SHIFT:
            symbol += 1
        guess[i] = symbol


@numba.njit(cache=True, error_model="numpy", nogil=True)
def encode_gaps(gaps, starts, shifts, means, words):
    """Encode gaps in blocks [starts[b], starts[b + 1]) into ``words``, last first; return (state, words used)."""
    state, used = LOWEST, 0
    cumulative = np.empty(GAP_SYMBOLS + 1, dtype=np.uint32)
    for block in range(shifts.size - 1, -1, -1):
        geometric_table(means[block], cumulative)
        shift = np.uint64(shifts[block])
        for i in range(starts[block + 1] - 1, starts[block] - 1, -1):
            gap = np.uint64(gaps[i])
            low, high = gap & ((ONE << shift) - ONE), gap >> shift
            if shift > ESCAPE_BITS:
                state, used = _push(state, words, used, low >> ESCAPE_BITS, ONE, shift - ESCAPE_BITS)
                state, used = _push(state, words, used, low & ((ONE << ESCAPE_BITS) - ONE), ONE, ESCAPE_BITS)
            elif shift > ZERO:
                state, used = _push(state, words, used, low, ONE, shift)
            symbol = GAP_SYMBOLS - 1
            if high < np.uint64(GAP_SYMBOLS - 1):
                symbol = np.int64(high)
            else:
                rest = high - np.uint64(GAP_SYMBOLS - 1)
                state, used = _push(state, words, used, rest >> ESCAPE_BITS, ONE, ESCAPE_BITS)
                state, used = _push(state, words, used, rest & ((ONE << ESCAPE_BITS) - ONE), ONE, ESCAPE_BITS)
            start = np.uint64(cumulative[symbol])
            frequency = np.uint64(cumulative[symbol + 1]) - start
            state, used = _push(state, words, used, start, frequency, GAP_BITS)
    return state, used


@numba.njit(cache=True, error_model="numpy", nogil=True)
def decode_gaps(state, words, starts, shifts, means, limit, positions):
    """Decode gaps to increasing positions below ``limit``; return False for a stream that no encoder wrote."""
    used, last = 0, np.int64(-1)
    cumulative = np.empty(GAP_SYMBOLS + 1, dtype=np.uint32)
    guess = np.empty(GUESSES, dtype=np.uint8)
    for block in range(shifts.size):
        geometric_table(means[block], cumulative)
        _first_symbols(cumulative, guess)
        shift = np.uint64(shifts[block])
        for i in range(starts[block], starts[block + 1]):
            slot = state & (GAP_SCALE - ONE)
            low = np.int64(guess[slot >> GUESS_SHIFT])
            while np.uint64(cumulative[low + 1]) <= slot:
                low += 1
            start = np.uint64(cumulative[low])
            state = (np.uint64(cumulative[low + 1]) - start) * (state >> GAP_BITS) + slot - start
            state, used = _refill(state, words, used)
            gap = np.uint64(low)
            if low == GAP_SYMBOLS - 1:
                rest = state & ((ONE << ESCAPE_BITS) - ONE)
                state, used = _refill(state >> ESCAPE_BITS, words, used)
                rest |= (state & ((ONE << ESCAPE_BITS) - ONE)) << ESCAPE_BITS
                state, used = _refill(state >> ESCAPE_BITS, words, used)
                gap += rest
            if used > words.size or gap > (np.uint64(limit) >> shift):
                return False
            gap <<= shift
            if shift > ESCAPE_BITS:
                gap |= state & ((ONE << ESCAPE_BITS) - ONE)
                state, used = _refill(state >> ESCAPE_BITS, words, used)
                gap |= (state & ((ONE << (shift - ESCAPE_BITS)) - ONE)) << ESCAPE_BITS
                state, used = _refill(state >> (shift - ESCAPE_BITS), words, used)
            elif shift > ZERO:
                gap |= state & ((ONE << shift) - ONE)
                state, used = _refill(state >> shift, words, used)
            if gap >= np.uint64(limit):
                return False
            last += np.int64(gap) + 1
            if last >= limit:
                return False
            positions[i] = last
    return state == LOWEST and used == words.size


@numba.njit(cache=True, error_model="numpy", nogil=True)
def encode_symbols(symbols, cumulative, words):
    """Encode bytes under the frequencies of ``cumulative`` (257 entries up to 2^12); return (state, words used)."""
    state, used = LOWEST, 0
    for i in range(symbols.size - 1, -1, -1):
        start = np.uint64(cumulative[symbols[i]])
        frequency = np.uint64(cumulative[symbols[i] + 1]) - start
        state, used = _push(state, words, used, start, frequency, VALUE_BITS)
    return state, used


@numba.njit(cache=True, error_model="numpy", nogil=True)
def decode_symbols(state, words, cumulative, symbols):
    """Decode bytes; return False for a stream that no encoder wrote."""
    lookup = np.empty(VALUE_SCALE, dtype=np.uint8)
    for symbol in range(VALUE_SYMBOLS):
        lookup[cumulative[symbol] : cumulative[symbol + 1]] = symbol
    used = 0
    for i in range(symbols.size):
        slot = state & np.uint64(VALUE_SCALE - 1)
        symbol = lookup[slot]
        start = np.uint64(cumulative[symbol])
        state = (np.uint64(cumulative[symbol + 1]) - start) * (state >> VALUE_BITS) + slot - start
        state, used = _refill(state, words, used)
        symbols[i] = symbol
    return state == LOWEST and used == words.size


def to_bytes(state: Any, words: Words, used: int) -> bytes:
    """Write a stream: the state in 5 to 8 bytes, a number that the length modulo 4 reveals, then the words."""
    value = int(state)
    size = max(5, (value.bit_length() + 7) // 8)
    return value.to_bytes(size, "little") + words[:used][::-1].astype("<u4").tobytes()


def from_bytes(stream: bytes | memoryview) -> tuple[np.uint64, Words]:
    """Read state and words of a stream."""
    size = 5 + (len(stream) - 5) % 4
    if len(stream) < size:
        raise CorruptPayloadError(f"a coded stream must have at least 5 bytes, got {len(stream)}")
    state = int.from_bytes(stream[:size], "little")
    if not int(LOWEST) <= state < 1 << 63:
        raise CorruptPayloadError("a coded stream starts with a state that no encoder leaves")
    return np.uint64(state), np.frombuffer(stream, dtype="<u4", offset=size).astype(np.uint32)


@numba.njit(cache=True, error_model="numpy", nogil=True)
def estimate_gaps(gaps, starts, shifts, means):
    """Estimate the bits that ``encode_gaps`` will write from the frequencies of its symbols."""
    bits = 0.0
    cumulative = np.empty(GAP_SYMBOLS + 1, dtype=np.uint32)
    counts = np.empty(GAP_SYMBOLS, dtype=np.int64)
    for block in range(shifts.size):
        geometric_table(means[block], cumulative)
        counts[:] = 0
        for i in range(starts[block], starts[block + 1]):
            counts[min(gaps[i] >> np.int64(shifts[block]), GAP_SYMBOLS - 1)] += 1
        for symbol in range(GAP_SYMBOLS):
            if counts[symbol]:
                bits += counts[symbol] * (20.0 - np.log2(float(cumulative[symbol + 1] - cumulative[symbol])))
        bits += counts[GAP_SYMBOLS - 1] * 48.0 + float(shifts[block]) * (starts[block + 1] - starts[block])
    return bits
