"""Bytes coded under a table of frequencies that is sent with them."""

import numpy as np
from numpy.typing import NDArray

from fewjoules.codec import rans
from fewjoules.codec.varint import Reader, varint
from fewjoules.errors import CorruptPayloadError

Bytes = NDArray[np.uint8]
Frequencies = NDArray[np.int64]


def fit_frequencies(symbols: Bytes) -> Frequencies:
    """Return frequencies that sum to 2^12, at least 1 for each byte that occurs, in integers only; shape (256,)."""
    counts = np.bincount(symbols, minlength=rans.VALUE_SYMBOLS)
    frequencies = np.where(counts > 0, np.maximum(1, counts * rans.VALUE_SCALE // symbols.size), 0)
    while (excess := int(frequencies.sum()) - rans.VALUE_SCALE) != 0:
        largest = int(np.argmax(frequencies))
        frequencies[largest] -= min(excess, int(frequencies[largest]) - 1)
    return frequencies


def estimated_bits(symbols: Bytes, frequencies: Frequencies) -> float:
    """Estimate the bits of the coded bytes."""
    counts = np.bincount(symbols, minlength=rans.VALUE_SYMBOLS)
    used = counts > 0
    return float(np.sum(counts[used] * (np.log2(rans.VALUE_SCALE) - np.log2(frequencies[used]))))


def table_to_bytes(frequencies: Frequencies) -> bytes:
    """Write the table: the first byte that occurs, how many follow up to the last, and the frequency of each."""
    used = np.flatnonzero(frequencies)
    first, last = int(used[0]), int(used[-1])
    return bytes([first, last - first]) + b"".join(varint(int(f)) for f in frequencies[first : last + 1])


def read_table(reader: Reader) -> Frequencies:
    """Read a table that ``table_to_bytes`` wrote."""
    first, more = reader.take(2, "the table of values")
    if first + more >= rans.VALUE_SYMBOLS:
        raise CorruptPayloadError(f"the table of values must end by 255, got {first + more}")
    frequencies = np.zeros(rans.VALUE_SYMBOLS, dtype=np.int64)
    for symbol in range(first, first + more + 1):
        frequencies[symbol] = min(reader.varint("a frequency"), rans.VALUE_SCALE + 1)
    if not (frequencies[first] and frequencies[first + more]):
        raise CorruptPayloadError("the table of values must start and end with a value that occurs")
    if int(frequencies.sum()) != rans.VALUE_SCALE:
        raise CorruptPayloadError(f"the frequencies of values must add to {rans.VALUE_SCALE}")
    return frequencies


def encode_symbols(symbols: Bytes, frequencies: Frequencies) -> bytes:
    """Return the coded stream of the bytes."""
    words = np.empty(symbols.size + 4, dtype=np.uint32)
    state, used = rans.encode_symbols(symbols, _cumulative(frequencies), words)
    return rans.to_bytes(state, words, used)


def decode_symbols(stream: memoryview, frequencies: Frequencies, count: int) -> Bytes:
    """Decode a stream that ``encode_symbols`` wrote."""
    state, words = rans.from_bytes(stream)
    symbols = np.empty(count, dtype=np.uint8)
    if not rans.decode_symbols(state, words, _cumulative(frequencies), symbols):
        raise CorruptPayloadError("the values do not decode")
    return symbols


def _cumulative(frequencies: Frequencies) -> NDArray[np.uint32]:
    return np.concatenate([[0], np.cumsum(frequencies)]).astype(np.uint32)
