"""Whole messages: ``encode``, ``decode`` and ``encoded_size``. docs/wire-format.md describes every byte."""

import zlib
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from fewjoules.arrays import Floats, IntArray
from fewjoules.codec import positions as pos
from fewjoules.codec import symbols as sym
from fewjoules.codec.layout import CHECKSUM_BYTES, FRAME_BYTES, MAGIC, VERSIONS, Header
from fewjoules.codec.sizes import LOSSY_ESTIMATE_FROM, float32_sizes, lossy_size
from fewjoules.codec.threads import threads
from fewjoules.codec.update import SparseUpdate
from fewjoules.codec.values import SplitValues, kind_named
from fewjoules.codec.varint import Reader, varint
from fewjoules.errors import CorruptPayloadError, InvalidInputError

First = TypeVar("First")
Second = TypeVar("Second")

DEFAULT_MAX_SIZE = 2**24  # a few bytes may claim as much; more is decoded only by callers who expect it
_PARALLEL_FROM = 1 << 14  # entries from which positions and values are coded at the same time


def encode(
    update: SparseUpdate,
    *,
    values: str = "float32",
    levels: int = 15,
    rng: np.random.Generator | None = None,
    allow_nonfinite: bool = False,
) -> bytes:
    """Encode an update as a message; float32 keeps every bit, the other kinds of values round.

    ``decode`` gives the update as the receiver sees it; add the difference to the residual.

    Args:
        update: What to send.
        values: "float32", "float16", "bfloat16", "int8", "qsgd", "ternary" or "two-bit".
        levels: Number of levels of "qsgd".
        rng: Random numbers, which "qsgd" needs to round.
        allow_nonfinite: Whether NaN and infinite values may be sent.

    Returns:
        The payload; docs/wire-format.md describes its bytes.

    Raises:
        InvalidInputError: The kind of values is unknown, or a value cannot be sent.
    """
    kind = kind_named(values)
    if not allow_nonfinite and not (finite := np.isfinite(update.values)).all():
        entry = int(np.argmin(finite))
        raise InvalidInputError(
            "values must be finite (allow_nonfinite=True sends others), "
            f"got {update.values[entry]} at position {int(update.positions[entry])}"
        )
    (coder, positions), (coded, written) = _both(
        lambda: _encode_positions(update.positions, update.size),
        lambda: _encode_values(kind.split(update.values, levels, rng)),
        update.count,
    )
    header = Header(update.size, update.count, kind, coder, coded)
    body = b"".join([header.to_bytes(), positions, *written])
    return body + zlib.crc32(body).to_bytes(CHECKSUM_BYTES, "little")


def decode(
    payload: bytes | bytearray | memoryview, *, max_size: int = DEFAULT_MAX_SIZE, allow_nonfinite: bool = False
) -> SparseUpdate:
    """Decode a message.

    Args:
        payload: Bytes that ``encode`` wrote, or that somebody else sent.
        max_size: The largest vector to accept, in entries; a short message can claim a huge one.
        allow_nonfinite: Whether NaN and infinite values are accepted; one spoils every weight that it is added to.

    Returns:
        The update as it was encoded.

    Raises:
        CorruptPayloadError: No encoder can have written these bytes, or they claim more than is allowed.
    """
    data = _bytes_of(payload)
    if len(data) < FRAME_BYTES or bytes(data[: len(MAGIC)]) != MAGIC:
        raise CorruptPayloadError(
            f"a payload must start with {MAGIC!r} and have at least {FRAME_BYTES} bytes, got {len(data)}"
        )
    if data[len(MAGIC)] not in VERSIONS:
        allowed = " or ".join(map(str, VERSIONS))
        raise CorruptPayloadError(f"the version of the payload must be {allowed}, got {data[len(MAGIC)]}")
    body = data[:-CHECKSUM_BYTES]
    if zlib.crc32(body) != int.from_bytes(data[-CHECKSUM_BYTES:], "little"):
        raise CorruptPayloadError("the checksum of the payload does not fit its bytes")
    return _decode_body(Reader(body), max_size, allow_nonfinite)


def encoded_size(
    update: SparseUpdate, *, values: str = "float32", levels: int = 15, rng: np.random.Generator | None = None
) -> int:
    """Return the bytes that ``encode`` would write: exact for few entries, else within 0.1 % or 4 bytes.

    Args:
        update: What to send.
        values: Kind of values, as for ``encode``.
        levels: Number of levels of "qsgd".
        rng: Random numbers, which "qsgd" needs to round.
    """
    kind = kind_named(values)
    if values == "float32":
        counts = np.array([update.count])
        return int(float32_sizes(update.size, update.positions, update.values, counts)[0])
    if update.count < LOSSY_ESTIMATE_FROM:
        return len(encode(update, values=values, levels=levels, rng=rng, allow_nonfinite=True))
    return lossy_size(update, kind, kind.split(update.values, levels, rng))


def _encode_positions(positions: IntArray, size: int) -> tuple[int, bytes]:
    """Write the positions in the smallest of the possible ways; return the way and the bytes."""
    if positions.size in (0, size):
        return pos.ALL, b""
    coder, listed = pos.GAPS, positions
    if 2 * positions.size > size:
        coder, listed = pos.MISSING_GAPS, pos.complement(positions, size)
    gaps = pos.gaps_of(listed)
    blocks = pos.fit_blocks(gaps)
    stream = pos.encode_gaps(gaps, blocks)
    coded = blocks.to_bytes() + varint(len(stream)) + stream
    if len(coded) <= (size + 7) // 8:
        return coder, coded
    return pos.BITMAP, pos.to_bitmap(positions, size)


def _encode_values(parts: SplitValues) -> tuple[bool, list[bytes]]:
    """Write the values; return whether the modelled bytes are coded (if that is smaller) and all parts."""
    raw = parts.symbols.tobytes()
    if not raw:
        return False, [parts.side]
    frequencies = sym.fit_frequencies(parts.symbols)
    stream = sym.encode_symbols(parts.symbols, frequencies)
    coded = sym.table_to_bytes(frequencies) + varint(len(stream)) + stream
    smaller = len(coded) < len(raw)
    return smaller, [parts.side, coded if smaller else raw, parts.plain]


def _bytes_of(payload: object) -> memoryview:
    """Return the bytes of a payload, not copied."""
    try:
        return memoryview(payload).cast("B")  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:  # no buffer, one with gaps, one released
        raise InvalidInputError(
            f"payload must be bytes, a bytearray or a contiguous memoryview, got {type(payload).__name__}"
        ) from error


def _decode_body(reader: Reader, max_size: int, allow_nonfinite: bool) -> SparseUpdate:
    header = Header.read(reader, max_size)
    size, count, kind = header.size, header.count, header.kind
    positions = _read_positions(reader, header.coder, size, count)
    side = reader.take(kind.side_bytes(count), "the scales")
    symbols = _read_values(reader, header.coded, count)
    plain = reader.take(count * kind.plain_bytes, "the values")
    if len(reader.rest):
        raise CorruptPayloadError(f"the payload must end after its values, got {len(reader.rest)} bytes more")

    def values() -> Floats:
        joined = kind.join(symbols(), plain, side)
        if not allow_nonfinite:
            _require_finite(joined)
        return joined

    listed, decoded = _both(positions, values, count)
    return SparseUpdate.trusted(size, listed, decoded)


def _require_finite(values: Floats) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        entry = int(np.argmin(finite))
        raise CorruptPayloadError(
            "the values of the payload must be finite (allow_nonfinite=True reads others), "
            f"got {values[entry]} at entry {entry}"
        )


def _both(first: Callable[[], First], second: Callable[[], Second], entries: int) -> tuple[First, Second]:
    """Return both results, computed at the same time if there are many entries."""
    if entries < _PARALLEL_FROM:
        return first(), second()
    pending = threads().submit(second)
    return first(), pending.result()


def _read_positions(reader: Reader, coder: int, size: int, count: int) -> Callable[[], IntArray]:
    """Read the bytes of the positions; return a function that decodes them."""
    if coder == pos.ALL:
        if count not in (0, size):
            raise CorruptPayloadError(f"a payload without positions must have 0 or {size} entries, got {count}")
        return lambda: np.arange(count, dtype=np.int64)
    if coder == pos.BITMAP:
        bitmap = reader.take((size + 7) // 8, "the bitmap")
        return lambda: pos.from_bitmap(bitmap, size, count)
    entries = count if coder == pos.GAPS else size - count
    blocks, used = pos.parse_blocks(reader.rest, entries)
    reader.take(used, "the blocks")
    stream = reader.take(reader.varint("the length of the positions"), "the positions")
    if coder == pos.GAPS:
        return lambda: pos.decode_gaps(stream, blocks, size)
    return lambda: pos.complement(pos.decode_gaps(stream, blocks, size), size)


def _read_values(reader: Reader, coded: bool, count: int) -> Callable[[], sym.Bytes]:
    """Read the modelled bytes of the values; return a function that decodes them."""
    if not coded:
        raw = reader.take(count, "the values")
        return lambda: np.frombuffer(raw, dtype=np.uint8)
    frequencies = sym.read_table(reader)
    stream = reader.take(reader.varint("the length of the values"), "the values")
    return lambda: sym.decode_symbols(stream, frequencies, count)
