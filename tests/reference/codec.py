"""The wire format read literally: docs/wire-format.md in loops over Python integers, one line of the page at a time.

Nothing here calls the codec. The decoder refuses what the page says a message may not be, and nothing else, so `decode`
of the package may refuse more, but may never accept what is refused here. `write_stream` is the same coder backwards,
for messages that no honest encoder writes. Below it are the literal twins of top-k and of stochastic quantisation.
"""

import math
import struct
import zlib
from typing import NamedTuple

import numpy as np

KINDS = ["float32", "float16", "bfloat16", "int8", "qsgd", "ternary", "two-bit"]
VERSION_OF = {kind: 2 if kind == "two-bit" else 1 for kind in KINDS}
CODERS = ["all", "bitmap", "gaps", "missing gaps"]
VALUES_IN_A_BLOCK = 1024
LOWEST_STATE = 2**31


class RefusedError(Exception):
    """The message breaks a rule of docs/wire-format.md."""


def require(rule, what):
    if not rule:
        raise RefusedError(what)


class Reader:
    """Bytes taken from the front, one part after another; the checksum is already off."""

    def __init__(self, body):
        self.body, self.at = body, 0

    def take(self, length):
        require(self.at + length <= len(self.body), "the message ends too early")
        self.at += length
        return self.body[self.at - length : self.at]

    def byte(self):
        return self.take(1)[0]

    def varint(self):
        value, shift = 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            require(shift < 70, "varint too long")
        require(byte != 0 or shift == 0, "varint not in its shortest form")
        require(value < 2**63, "varint of more than 63 bits")
        return value


# ---- the stream ----


class Stream:
    """Symbols and plain bits of one asymmetric numeral system, in the order of reading."""

    def __init__(self, data):
        require(len(data) >= 5, "a stream holds a state of at least 5 bytes")
        state_bytes = {1: 5, 2: 6, 3: 7, 0: 8}[len(data) % 4]
        require(len(data) >= state_bytes, "a stream holds its state")
        self.x = int.from_bytes(data[:state_bytes], "little")
        require(LOWEST_STATE <= self.x < 2**63, "state out of range")
        self.words = [int.from_bytes(data[i : i + 4], "little") for i in range(state_bytes, len(data), 4)]

    def _refill(self):
        if self.x < LOWEST_STATE:
            require(self.words, "the stream ends too early")
            self.x = self.x * 2**32 + self.words.pop(0)

    def symbol(self, frequencies, bits):
        slot = self.x % 2**bits
        start = 0
        for symbol, frequency in enumerate(frequencies):
            if start <= slot < start + frequency:
                self.x = frequency * (self.x >> bits) + slot - start
                self._refill()
                return symbol
            start += frequency
        raise AssertionError("frequencies do not add to their total")

    def plain(self, bits):
        if bits == 0:
            return 0
        if bits > 24:
            low = self.plain(24)
            return low + (self.plain(bits - 24) << 24)
        value = self.x % 2**bits
        self.x >>= bits
        self._refill()
        return value

    def close(self):
        require(self.x == LOWEST_STATE, "the stream does not end in its first state")
        require(not self.words, "words left in the stream")


def write_stream(steps):
    """The stream that a reader sees as these steps, each (start, frequency, bits) under a total of 2^bits."""
    x, words = LOWEST_STATE, []
    for start, frequency, bits in reversed(steps):
        if x >= frequency << (63 - bits):
            words.append(x % 2**32)
            x >>= 32
        x = ((x // frequency) << bits) + start + x % frequency
    state = x.to_bytes(max(5, (x.bit_length() + 7) // 8), "little")
    return state + b"".join(word.to_bytes(4, "little") for word in reversed(words))


def plain_steps(value, bits):
    """Steps that write `value` as plain bits, the lower 24 first."""
    if bits > 24:
        return plain_steps(value % 2**24, 24) + plain_steps(value >> 24, bits - 24)
    return [(value, 1, bits)] if bits else []


# ---- positions ----


def gap_frequencies(mean):
    rest = 2**20 - 256
    frequencies = []
    for _ in range(255):
        share = rest * 64 // (mean + 64)
        frequencies.append(1 + share)
        rest -= share
    return [*frequencies, 1 + rest]


def gap_steps(gap, mean, shift):
    """Steps that write one gap under a block's parameters."""
    frequencies = gap_frequencies(mean)
    high = gap >> shift
    symbol = min(high, 255)
    steps = [(sum(frequencies[:symbol]), frequencies[symbol], 20)]
    if symbol == 255:
        steps += plain_steps(high - 255, 48)
    return steps + plain_steps(gap % 2**shift, shift)


def read_blocks(reader, entries):
    """(entries, mean, shift) of each block."""
    blocks = []
    while entries > 0:
        level = reader.byte()
        require(level <= 40, "level above 40")
        both = int.from_bytes(reader.take(2), "little")
        mean, shift = both % 2**10, both >> 10
        require(shift <= 40, "shift above 40")
        covered = min(32 * 2**level, entries)
        blocks.append((covered, mean, shift))
        entries -= covered
    return blocks


def read_gaps(blocks, stream, size):
    positions, previous = [], -1
    for entries, mean, shift in blocks:
        frequencies = gap_frequencies(mean)
        for _ in range(entries):
            high = stream.symbol(frequencies, 20)
            if high == 255:
                high += stream.plain(48)
            gap = (high << shift) + stream.plain(shift)
            previous += 1 + gap
            require(previous < size, "position beyond the vector")
            positions.append(previous)
    stream.close()
    return positions


def read_bitmap(data, size, count):
    positions = []
    for index in range(8 * len(data)):
        if data[index // 8] >> (index % 8) & 1:
            require(index < size, "unused bits of the bitmap are zero")
            positions.append(index)
    require(len(positions) == count, "the bitmap has as many ones as entries")
    return positions


# ---- values ----


def float32_of_bits(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def float32_of(value):
    """The float64 rounded to float32; infinite where it is too large."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def byte_frequencies(reader):
    first, after = reader.byte(), reader.byte()
    require(first + after <= 255, "byte values end at 255")
    frequencies = [0] * 256
    for value in range(first, first + after + 1):
        frequencies[value] = reader.varint()
    require(sum(frequencies) == 2**12, "the frequencies add to 2^12")
    require(frequencies[first] > 0, "the first byte value occurs")
    require(frequencies[first + after] > 0, "the last byte value occurs")
    return frequencies


def value_of(kind, byte, plain, scales, levels):
    """`scales` are those of the block of the value: one, or two of kind two-bit."""
    if kind == "two-bit":
        small, large = scales
        require(byte <= 3, "a two-bit value is one of four")
        magnitude = large if byte in (0, 3) else small
        return -magnitude if byte < 2 else magnitude
    scale = scales[0] if scales else 0.0
    if kind == "float32":
        return float32_of_bits((plain >> 23) << 31 | byte << 23 | plain % 2**23)
    if kind == "float16":
        half = (plain >> 7) << 15 | byte << 7 | plain % 2**7
        return struct.unpack("<e", struct.pack("<H", half))[0]
    if kind == "bfloat16":
        return float32_of_bits(((plain >> 7) << 15 | byte << 7 | plain % 2**7) << 16)
    if kind == "int8":
        return float32_of(scale * (byte - 128) / 127)
    if kind == "qsgd":
        require(abs(byte - 128) <= levels, "a level above the number of levels")
        return float32_of(scale * (byte - 128) / levels)
    require(byte <= 1, "a ternary value is + or -")
    return -scale if byte else scale


def scales_in_a_block(kind):
    return {"int8": 1, "qsgd": 1, "ternary": 1, "two-bit": 2}.get(kind, 0)


def sum_by_halves(numbers):
    """Of at most 1024 numbers, filled with zeros: each half added to the other, until one number is left."""
    row = list(numbers) + [0.0] * (VALUES_IN_A_BLOCK - len(numbers))
    while len(row) > 1:
        half = len(row) // 2
        row = [first + second for first, second in zip(row[:half], row[half:], strict=True)]
    return row[0]


def two_bit_blocks(values):
    """(small, large, modelled bytes) of each block of values."""
    blocks = []
    for start in range(0, len(values), VALUES_IN_A_BLOCK):
        block = [float(value) for value in values[start : start + VALUES_IN_A_BLOCK]]
        mean = sum_by_halves([abs(value) for value in block]) / len(block)
        means = []
        for wanted in (False, True):
            # members keep their places, so that the halves are those of the block
            group = [abs(value) if (abs(value) > mean) == wanted else 0.0 for value in block]
            members = sum((abs(value) > mean) == wanted for value in block)
            means.append(float32_of(sum_by_halves(group) / members) if members else means[0])
        names = []
        for value in block:
            minus, large = math.copysign(1.0, value) < 0, abs(value) > mean
            names.append({(True, True): 0, (True, False): 1, (False, False): 2, (False, True): 3}[minus, large])
        blocks.append((means[0], means[1], names))
    return blocks


# ---- the frame ----


class Message(NamedTuple):
    size: int
    positions: list
    values: list


class Parts(NamedTuple):
    """Where a message spends its bytes."""

    kind: str
    coder: str
    size: int
    count: int
    header: int
    blocks: list
    position_parameters: int  # the blocks and the length of the stream
    position_stream: int  # or bitmap
    side_information: int
    modelled_parameters: int
    modelled_stream: int
    plain: int

    @property
    def position_bits(self):
        return 8 * (self.position_parameters + self.position_stream)


def _read(payload, max_size):
    """Parts and what they hold: positions (bitmap or stream bytes), side information, frequencies, bytes."""
    require(len(payload) >= 4, "no room for a checksum")
    body, checksum = payload[:-4], payload[-4:]
    require(zlib.crc32(body) == int.from_bytes(checksum, "little"), "checksum")
    reader = Reader(body)
    require(reader.take(2) == b"FJ", "magic")
    version = reader.byte()
    flags = reader.byte()
    require(flags >> 7 == 0, "bit 7 of the flags is zero")
    require(flags % 16 < len(KINDS), "kind of values")
    kind, coder, coded = KINDS[flags % 16], CODERS[flags >> 4 & 3], flags >> 6 & 1
    require(version == VERSION_OF[kind], "version of this kind of values")
    size = reader.varint()
    require(size <= max_size, "size above the caller's limit")
    count = reader.varint()
    require(count <= size, "more entries than the vector has")
    header = reader.at

    blocks, position_data, position_parameters = [], b"", 0
    if coder == "all":
        require(count in (0, size), "all or nothing")
    elif coder == "bitmap":
        position_data = reader.take((size + 7) // 8)
    else:
        blocks = read_blocks(reader, count if coder == "gaps" else size - count)
        length = reader.varint()
        position_parameters = reader.at - header
        position_data = reader.take(length)

    start = reader.at
    levels, scales = 0, []
    if kind == "qsgd":
        levels = reader.byte()
        require(1 <= levels <= 127, "number of levels")
    value_blocks = -(-count // VALUES_IN_A_BLOCK)
    scale_count = min(count, 1) if kind == "ternary" else scales_in_a_block(kind) * value_blocks
    require(4 * scale_count <= len(body), "the message ends too early")
    for _ in range(scale_count):
        scales.append(float32_of_bits(int.from_bytes(reader.take(4), "little")))
    for scale in scales:
        require(math.isfinite(scale) and math.copysign(1.0, scale) > 0, "scales are finite and have no sign")
    if kind == "two-bit":
        for small, large in zip(scales[::2], scales[1::2], strict=True):
            require(small <= large, "small is at most large")
    side_information = reader.at - start

    start = reader.at
    frequencies, modelled_parameters = None, 0
    if coded:
        frequencies = byte_frequencies(reader)
        length = reader.varint()
        modelled_parameters = reader.at - start
        modelled = reader.take(length)
    else:
        modelled = reader.take(count)
    width = {"float32": 3, "float16": 1, "bfloat16": 1}.get(kind, 0)
    plain = reader.take(width * count)
    require(reader.at == len(body), "something follows the message")
    parts = Parts(
        kind=kind,
        coder=coder,
        size=size,
        count=count,
        header=header,
        blocks=blocks,
        position_parameters=position_parameters,
        position_stream=len(position_data),
        side_information=side_information,
        modelled_parameters=modelled_parameters,
        modelled_stream=len(modelled),
        plain=len(plain),
    )
    return parts, position_data, levels, scales, frequencies, modelled, plain


def parts_of(payload, max_size=2**28):
    """Where the bytes go, without decoding the streams."""
    return _read(bytes(payload), max_size)[0]


def decode(payload, max_size=2**28):
    """The message, or RefusedError."""
    parts, position_data, levels, scales, frequencies, modelled, plain = _read(bytes(payload), max_size)
    size, count, kind = parts.size, parts.count, parts.kind
    if parts.coder == "all":
        positions = list(range(count))
    elif parts.coder == "bitmap":
        positions = read_bitmap(position_data, size, count)
    else:
        positions = read_gaps(parts.blocks, Stream(position_data), size)
        if parts.coder == "missing gaps":
            missing = set(positions)
            positions = [index for index in range(size) if index not in missing]
    if frequencies is not None:
        stream = Stream(modelled)
        modelled = [stream.symbol(frequencies, 12) for _ in range(count)]
        stream.close()
    width = len(plain) // count if count else 0
    values = []
    for index, byte in enumerate(modelled):
        bits = int.from_bytes(plain[width * index : width * (index + 1)], "little")
        block, in_a_block = 0 if kind == "ternary" else index // VALUES_IN_A_BLOCK, scales_in_a_block(kind)
        own = scales[in_a_block * block : in_a_block * (block + 1)]
        values.append(value_of(kind, byte, bits, own, levels))
    return Message(size, positions, values)


def varint(value):
    """The shortest form."""
    data = bytearray()
    while value >= 128:
        data.append(value % 128 + 128)
        value >>= 7
    return bytes([*data, value])


def sealed(body):
    """The body and its checksum."""
    return bytes(body) + zlib.crc32(bytes(body)).to_bytes(4, "little")


# ---- compressors ----


def top_k_with_feedback(update, residual, k):
    """Positions and values sent, and the residual: the k largest magnitudes, ties to the lowest position."""
    total = [a + b for a, b in zip(update, residual, strict=True)]  # float32 scalars: rounded as float32
    order = sorted(range(len(total)), key=lambda index: -abs(float(total[index])))  # stable
    positions = sorted(order[:k])
    values = [total[index] for index in positions]
    left = list(total)
    for index in positions:
        left[index] = np.float32(0.0)
    return positions, values, left


def qsgd_moments(values, levels):
    """Mean and variance of each value after stochastic rounding to `levels` steps of the norm of its block."""
    means, variances = [], []
    for start in range(0, len(values), VALUES_IN_A_BLOCK):
        block = [float(v) for v in values[start : start + VALUES_IN_A_BLOCK]]
        norm = math.sqrt(math.fsum(v * v for v in block))
        for v in block:
            part = levels * abs(v) / norm if norm else 0.0
            above = part - math.floor(part)
            means.append(v)
            variances.append((norm / levels) ** 2 * above * (1 - above))
    return means, variances
