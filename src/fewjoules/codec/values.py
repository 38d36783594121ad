"""Values on the wire: each is one byte that an entropy coder models, and a few plain bytes.

| kind     | modelled byte                       | plain bytes               | side information        |
|----------|-------------------------------------|---------------------------|-------------------------|
| float32  | exponent                            | sign and mantissa: 3      |                         |
| float16  | exponent, 3 bits of the mantissa    | sign, 7 bits: 1           |                         |
| bfloat16 | exponent                            | sign and mantissa: 1      |                         |
| int8     | round(127 v / largest of the block) | none                      | largest of each block   |
| qsgd     | signed level, stochastic            | none                      | norm of each block, s   |
| ternary  | sign                                | none                      | mean magnitude          |
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fewjoules.errors import CorruptPayloadError, InvalidInputError, require_integer

FLOAT32, FLOAT16, BFLOAT16, INT8, QSGD, TERNARY = range(6)
KINDS = {
    "float32": FLOAT32,
    "float16": FLOAT16,
    "bfloat16": BFLOAT16,
    "int8": INT8,
    "qsgd": QSGD,
    "ternary": TERNARY,
}
PLAIN_BYTES = {FLOAT32: 3, FLOAT16: 1, BFLOAT16: 1, INT8: 0, QSGD: 0, TERNARY: 0}
BLOCK = 1024  # values that share a scale
MAX_LEVELS = 127
ZERO_SYMBOL = 128

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SplitValues:
    """The parts of a vector of values: modelled bytes, plain bytes, and side information."""

    symbols: Bytes
    plain: bytes
    side: bytes


def split(values: Floats, kind: int, *, levels: int = 0, rng: np.random.Generator | None = None) -> SplitValues:
    """Values in parts; the lossy kinds round here."""
    if kind == FLOAT32:
        return _split_float32(values)
    if kind == FLOAT16:
        return _split_float16(values)
    if kind == BFLOAT16:
        return _split_bfloat16(values)
    if not np.isfinite(values).all():
        raise InvalidInputError("values must be finite to be sent as int8, qsgd or ternary, got one that is not")
    if kind == INT8:
        return _split_int8(values)
    return _split_qsgd(values, levels, rng) if kind == QSGD else _split_ternary(values)


def join(symbols: Bytes, plain: memoryview, side: memoryview, kind: int) -> Floats:
    """The values that the parts stand for."""
    if kind == FLOAT32:
        return _join_float32(symbols, plain)
    if kind == FLOAT16:
        high = np.frombuffer(plain, dtype=np.uint8).astype(np.uint16)
        bits = (high & 0x80) << 8 | symbols.astype(np.uint16) << 7 | (high & 0x7F)
        return bits.view(np.float16).astype(np.float32)
    if kind == BFLOAT16:
        rest = np.frombuffer(plain, dtype=np.uint8).astype(np.uint32)
        return ((rest & 0x80) << 24 | symbols.astype(np.uint32) << 23 | (rest & 0x7F) << 16).view(np.float32)
    if kind == TERNARY:
        return _join_ternary(symbols, side)
    return _join_scaled(symbols, side, kind)


def quantised(values: Floats, kind: str, *, levels: int = 15, rng: np.random.Generator | None = None) -> Floats:
    """What a receiver sees of the values when they are sent as this kind."""
    code = kind_code(kind)
    parts = split(values, code, levels=levels, rng=rng)
    return join(parts.symbols, memoryview(parts.plain), memoryview(parts.side), code)


def kind_code(kind: str) -> int:
    """The number of a kind on the wire."""
    if kind not in KINDS:
        raise InvalidInputError(f"values must be one of {', '.join(KINDS)}, got {kind!r}")
    return KINDS[kind]


def side_bytes(count: int, kind: int) -> int:
    """Bytes of side information of so many values."""
    if kind not in (INT8, QSGD):
        return 4 if kind == TERNARY and count else 0
    return 4 * -(-count // BLOCK) + (1 if kind == QSGD else 0)


def _split_float32(values: Floats) -> SplitValues:
    bits = values.view(np.uint32)
    rest = (bits >> 8 & 0x800000) | (bits & 0x7FFFFF)
    plain = rest.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    return SplitValues((bits >> 23).astype(np.uint8), plain, b"")


def _join_float32(symbols: Bytes, plain: memoryview) -> Floats:
    wide = np.zeros((symbols.size, 4), dtype=np.uint8)
    wide[:, :3] = np.frombuffer(plain, dtype=np.uint8).reshape(-1, 3)
    rest = wide.view("<u4").ravel().astype(np.uint32)
    return ((rest & 0x800000) << 8 | symbols.astype(np.uint32) << 23 | (rest & 0x7FFFFF)).view(np.float32)


def _split_float16(values: Floats) -> SplitValues:
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if np.any(np.isinf(half) & np.isfinite(values)):
        worst = float(np.abs(values[np.isfinite(values)]).max())
        raise InvalidInputError(
            f"values must be at most 65504 in size to be sent as float16, got {worst:g}; use bfloat16"
        )
    bits = half.view(np.uint16)
    plain = ((bits >> 8 & 0x80) | (bits & 0x7F)).astype(np.uint8)
    return SplitValues((bits >> 7 & 0xFF).astype(np.uint8), plain.tobytes(), b"")


def _split_bfloat16(values: Floats) -> SplitValues:
    bits = values.view(np.uint32)
    rounded = bits + 0x7FFF + (bits >> 16 & 1)  # to nearest, ties to even
    rounded = np.where((bits & 0x7FFFFFFF) > 0x7F800000, bits | 0x400000, rounded) >> 16  # a NaN stays one
    if np.any(((rounded & 0x7FFF) == 0x7F80) & np.isfinite(values)):
        raise InvalidInputError("values must be at most 3.3895e38 in size to be sent as bfloat16, got a larger one")
    plain = ((rounded >> 8 & 0x80) | (rounded & 0x7F)).astype(np.uint8)
    return SplitValues((rounded >> 7 & 0xFF).astype(np.uint8), plain.tobytes(), b"")


def _blocks(count: int) -> NDArray[np.int64]:
    return np.arange(0, count, BLOCK)


def _split_int8(values: Floats) -> SplitValues:
    scales = np.maximum.reduceat(np.abs(values), _blocks(values.size)) if values.size else np.zeros(0, np.float32)
    largest = np.repeat(scales.astype(np.float64), BLOCK)[: values.size]
    quotient = np.divide(127.0 * values.astype(np.float64), largest, out=np.zeros(values.size), where=largest > 0.0)
    return SplitValues(_offset(np.rint(quotient)), b"", scales.astype("<f4").tobytes())


def _split_qsgd(values: Floats, levels: int, rng: np.random.Generator | None) -> SplitValues:
    """Levels l of v = norm * sign * l / s, rounded up with the probability that makes them unbiased [ALISTARH17]."""
    require_integer("levels", levels, low=1, high=MAX_LEVELS)
    if not isinstance(rng, np.random.Generator):
        raise InvalidInputError(f"qsgd needs rng=, a NumPy Generator, got {rng!r}")
    norms = block_norms(values)
    if not np.isfinite(norms).all():
        raise InvalidInputError("values must have block norms of at most 3.4e38 to be sent as qsgd, got larger ones")
    wide = np.repeat(norms.astype(np.float64), BLOCK)[: values.size]
    target = np.divide(levels * np.abs(values, dtype=np.float64), wide, out=np.zeros(values.size), where=wide > 0.0)
    chosen = np.minimum(np.floor(target + rng.random(values.size)), levels)
    return SplitValues(_offset(np.copysign(chosen, values)), b"", bytes([levels]) + norms.astype("<f4").tobytes())


def block_norms(values: Floats) -> Floats:
    """Euclidean norm of each block, rounded up to float32 so that no level exceeds s.

    Squares are added by halves, in an order that other array libraries can repeat to the bit.
    """
    squares = np.zeros((-(-values.size // BLOCK), BLOCK))
    squares.ravel()[: values.size] = np.square(values, dtype=np.float64)
    half = BLOCK
    while half > 1:
        half //= 2
        squares = squares[:, :half] + squares[:, half:]
    with np.errstate(over="ignore"):
        norms = np.sqrt(squares[:, 0]).astype(np.float32)
    return np.where(norms.astype(np.float64) ** 2 < squares[:, 0], np.nextafter(norms, np.float32(np.inf)), norms)


def _split_ternary(values: Floats) -> SplitValues:
    """Signs, and the mean magnitude [SATTLER19]."""
    if not values.size:
        return SplitValues(np.zeros(0, np.uint8), b"", b"")
    mean = np.float32(np.mean(np.abs(values), dtype=np.float64))
    return SplitValues(np.signbit(values).astype(np.uint8), b"", mean.astype("<f4").tobytes())


def _join_ternary(symbols: Bytes, side: memoryview) -> Floats:
    if not symbols.size:
        return np.zeros(0, np.float32)
    mean = np.frombuffer(side, dtype="<f4")[0]
    if not np.isfinite(mean) or np.signbit(mean) or int(symbols.max()) > 1:
        raise CorruptPayloadError("ternary values must be signs with a finite mean magnitude of at least 0")
    return np.where(symbols == 1, -mean, mean).astype(np.float32)


def _offset(whole: NDArray[np.float64]) -> Bytes:
    """Whole numbers from -127 to 127 as bytes in their order, so that a table of frequencies has no hole."""
    return (whole + ZERO_SYMBOL).astype(np.uint8)


def _join_scaled(symbols: Bytes, side: memoryview, kind: int) -> Floats:
    steps = 127 if kind == INT8 else side[0]
    narrow = np.frombuffer(side, dtype="<f4", offset=0 if kind == INT8 else 1)
    if not (np.isfinite(narrow).all() and not np.signbit(narrow).any()):
        raise CorruptPayloadError("the scales of the values must be finite and at least 0")
    scales, signed = narrow.astype(np.float64), symbols.astype(np.int16) - ZERO_SYMBOL
    if not 1 <= steps <= MAX_LEVELS or (signed.size and max(int(signed.max()), -int(signed.min())) > steps):
        raise CorruptPayloadError(f"the levels of the values must lie within the {steps} steps of their kind")
    with np.errstate(over="ignore"):
        return (np.repeat(scales, BLOCK)[: signed.size] * signed / steps).astype(np.float32)
