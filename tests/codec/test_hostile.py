"""Bytes that no encoder of ours wrote: read as a valid update or refused, quickly and in bounded memory.

Every mutation is tried twice, as it is and with its checksum repaired, because the checksum finds accidents, not
attackers. What the literal reader of docs/wire-format.md refuses must be refused, and what is accepted must be what
it reads.
"""

import contextlib
import subprocess
import sys
import textwrap
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules import codec
from fewjoules.errors import CorruptPayloadError
from tests.codec.strategies import KINDS, moderate_updates, uniform_positions
from tests.reference.codec import RefusedError, gap_steps, plain_steps, sealed, varint, write_stream
from tests.reference.codec import decode as literal_decode

SMALL = 2**14  # the largest vector that these tests let a message claim
KIND_FLAG = {kind: index for index, kind in enumerate(KINDS)}
ALL, BITMAP, GAPS, MISSING = 0 << 4, 1 << 4, 2 << 4, 3 << 4
CODED = 1 << 6


def outcome(payload, max_size=SMALL):
    """The update, checked to be consistent and to be what the page says, or None where it is refused."""
    try:
        update = codec.decode(payload, max_size=max_size, allow_nonfinite=True)
    except CorruptPayloadError:
        return None
    if not np.isfinite(update.values).all():
        assert refused(payload, max_size)
    assert 0 <= update.size <= max_size
    assert (update.positions.dtype, update.values.dtype) == (np.int64, np.float32)
    assert update.positions.shape == update.values.shape == (update.count,)
    assert (np.diff(update.positions, prepend=-1) > 0).all()
    assert update.count == 0 or update.positions[-1] < update.size
    again = codec.encode(update, allow_nonfinite=True)
    assert codec.decode(again, max_size=max_size, allow_nonfinite=True) == update
    try:
        message = literal_decode(payload, max_size)
    except RefusedError as refusal:
        raise AssertionError(f"accepted, but {refusal}: {payload.hex()}") from refusal
    assert (message.size, message.positions) == (update.size, update.positions.tolist())
    np.testing.assert_array_equal(np.array(message.values, np.float32), update.values)  # NaN may lose its payload here
    return update


def refused(payload, max_size=SMALL):
    with pytest.raises(CorruptPayloadError):
        codec.decode(payload, max_size=max_size)
    return True


def message(flags, size, count, rest=b""):
    """A message with an honest version and checksum; `size` and `count` may be the bytes of a varint."""
    numbers = [number if isinstance(number, bytes) else varint(number) for number in (size, count)]
    version = 2 if flags % 16 == KIND_FLAG["two-bit"] else 1
    return sealed(b"FJ" + bytes([version, flags]) + numbers[0] + numbers[1] + rest)


def block(level, mean, shift):
    return bytes([level]) + (shift << 10 | mean).to_bytes(2, "little")


def with_length(stream):
    return varint(len(stream)) + stream


def gaps(numbers, mean=64, shift=0, level=0):
    """Blocks and stream of these gaps under one law."""
    stream = write_stream([step for gap in numbers for step in gap_steps(gap, mean, shift)])
    return block(level, mean, shift) + with_length(stream)


PLUS_ONE = np.float32(1.0).tobytes()  # side information of ternary values


def ternary_at(numbers, size, count, coder=GAPS, **law):
    return message(KIND_FLAG["ternary"] | coder, size, count, gaps(numbers, **law) + PLUS_ONE + bytes(count))


def sample_updates():
    rng = np.random.default_rng(8)
    few = np.array([3, 9, 10, 47, 200, 299])
    half = np.flatnonzero(rng.random(60) < 0.5)
    for kind in KINDS:
        for size, positions in [(300, few), (300, few[:0]), (60, half), (8, np.arange(8))]:
            values = rng.normal(size=positions.size).astype(np.float32)
            yield kind, codec.SparseUpdate(size=size, positions=positions, values=values)
    many = np.setdiff1d(np.arange(80), [7, 30])
    alike = np.full(many.size, 0.5, np.float32)  # one exponent: its modelled bytes are coded
    yield "float32", codec.SparseUpdate(size=80, positions=many, values=alike)
    yield "bfloat16", codec.SparseUpdate(size=2000, positions=np.arange(0, 1600, 20), values=np.ones(80, np.float32))


SAMPLES = [codec.encode(update, values=kind, rng=np.random.default_rng(1)) for kind, update in sample_updates()]


# ---- accidents ----


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.binary(max_size=256))
def test_arbitrary_bytes_are_decoded_or_refused(data):
    outcome(data)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(0, 127), st.integers(0, 3000), st.integers(0, 300), st.binary(max_size=200))
def test_arbitrary_bytes_behind_an_honest_header_are_decoded_or_refused(flags, size, count, rest):
    outcome(message(flags, size, count, rest))


@pytest.mark.parametrize("payload", SAMPLES, ids=lambda payload: payload[:8].hex())
def test_the_samples_are_valid(payload):
    assert outcome(payload) is not None


@pytest.mark.parametrize("payload", SAMPLES, ids=lambda payload: payload[:8].hex())
def test_every_truncation_is_refused(payload):
    for length in range(len(payload)):
        assert refused(payload[:length])
        outcome(sealed(payload[:length]))
        outcome(sealed(payload[: max(0, length - 4)]))


@pytest.mark.parametrize("payload", SAMPLES, ids=lambda payload: payload[:8].hex())
@pytest.mark.parametrize("more", [b"\x00", b"\xff", b"FJ\x01\x00", bytes(32)])
def test_nothing_may_follow_a_message(payload, more):
    assert refused(payload + more)
    assert refused(sealed(payload[:-4] + more))


@pytest.mark.parametrize("payload", SAMPLES, ids=lambda payload: payload[:8].hex())
def test_every_flipped_bit_is_refused(payload):
    for bit in range(8 * len(payload)):
        flipped = bytearray(payload)
        flipped[bit // 8] ^= 1 << bit % 8
        assert refused(bytes(flipped))


@pytest.mark.parametrize("payload", SAMPLES, ids=lambda payload: payload[:8].hex())
def test_every_flipped_bit_behind_a_repaired_checksum_is_decoded_or_refused(payload):
    for bit in range(8 * (len(payload) - 4)):
        flipped = bytearray(payload[:-4])
        flipped[bit // 8] ^= 1 << bit % 8
        outcome(sealed(flipped))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=6), st.data())
def test_changed_bytes_behind_a_repaired_checksum_are_decoded_or_refused(payload, changes, data):
    body = bytearray(payload[:-4])
    for at, byte in changes:
        body[at % len(body)] = byte
    cut = data.draw(st.integers(0, len(body)))
    outcome(sealed(body))
    outcome(sealed(body[:cut] + body[cut + 1 :]))
    outcome(sealed(body[:cut] + bytes([changes[0][1] if changes else 0]) + body[cut:]))


@settings(deadline=None, derandomize=True, max_examples=25)
@given(moderate_updates(max_count=100), st.sampled_from(KINDS), st.data())
def test_spliced_messages_are_decoded_or_refused(update, kind, data):
    payload = codec.encode(update, values=kind, rng=np.random.default_rng(1))[:-4]
    other = data.draw(st.sampled_from(SAMPLES))[:-4]
    at, start = data.draw(st.integers(0, len(payload))), data.draw(st.integers(0, len(other)))
    outcome(sealed(payload[:at] + other[start:]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparsity", [1, 1.1, 10])
def test_long_messages_with_changed_bytes_are_decoded_or_refused(kind, sparsity):
    """Long enough for whatever a codec does only with much work, such as threads; too long for the literal reader."""
    rng = np.random.default_rng(6)
    positions = uniform_positions(rng, 100_000, sparsity)
    values = rng.normal(size=positions.size).astype(np.float32)
    update = codec.SparseUpdate(size=100_000, positions=positions, values=values)
    payload = codec.encode(update, values=kind, rng=rng)
    for at in [*range(4, 60, 5), *rng.integers(0, len(payload) - 4, 25)]:
        body = bytearray(payload[:-4])
        body[at] ^= 1 << int(rng.integers(0, 8))
        try:
            decoded = codec.decode(sealed(body), max_size=2**18)
        except CorruptPayloadError:
            continue
        assert decoded.positions.size == decoded.values.size <= decoded.size <= 2**18
        assert (np.diff(decoded.positions, prepend=-1) > 0).all()
        assert decoded.positions[-1] < decoded.size
        assert np.isfinite(decoded.values).all()


# ---- the header ----


def test_an_honest_message_of_these_helpers_is_read():
    update = outcome(ternary_at([3, 0, 255, 300], size=1000, count=4))
    np.testing.assert_array_equal(update.positions, [3, 4, 260, 561])
    np.testing.assert_array_equal(update.values, np.ones(4))


@pytest.mark.parametrize("head", [b"FK\x01", b"fj\x01", b"FJ\x00", b"FJ\x02", b"FJ\x03", b"FJ\xff"])
def test_another_magic_or_version_is_refused(head):
    assert refused(sealed(head + b"\x00\x05\x00"))


@pytest.mark.parametrize("payload", SAMPLES, ids=lambda payload: payload[:8].hex())
def test_a_message_in_the_version_of_another_kind_is_refused(payload):
    """Version 1 is of the kinds that it knew, version 2 of the one that it brought: a message has one form."""
    assert payload[2] == (2 if payload[3] % 16 == KIND_FLAG["two-bit"] else 1)
    for version in {0, 1, 2, 3, 255} - {payload[2]}:
        assert refused(sealed(payload[:2] + bytes([version]) + payload[3:-4]))


@pytest.mark.parametrize("flags", [128, 134, 7, 15])
def test_flags_without_a_meaning_are_refused(flags):
    assert refused(message(flags, 5, 0))


@pytest.mark.parametrize("size", [2**14 + 1, 2**28, 2**32, 2**62, 2**63 - 1])
@pytest.mark.parametrize("count", [0, 1, 2**14, 2**63 - 1])
@pytest.mark.parametrize("coder", [ALL, BITMAP, GAPS, MISSING])
def test_a_size_above_the_limit_is_refused(size, count, coder):
    assert refused(message(coder, size, count, bytes(30)))


@pytest.mark.parametrize("count", [11, 2**31, 2**32 + 5, 2**63 - 1])
@pytest.mark.parametrize("coder", [ALL, BITMAP, GAPS, MISSING])
def test_more_entries_than_the_vector_has_are_refused(count, coder):
    assert refused(message(coder, 10, count, bytes(60)))


@pytest.mark.parametrize(
    "number",
    [
        b"\x80\x00",
        b"\x85\x00",
        b"\x85\x80\x00",
        b"\x85\x80\x80\x80\x80\x80\x80\x80\x00",
        b"\x85" + b"\x80" * 8 + b"\x02",  # bit 64 and above: 5 where a register wraps
        b"\x85" + b"\x80" * 8 + b"\x01",
        b"\x85" + b"\x80" * 9 + b"\x01",
        b"\xff" * 9 + b"\x7f",
        b"\xff" * 40,
        b"\x80" * 40,
    ],
)
def test_a_number_that_is_not_in_its_shortest_form_is_refused(number):
    empty = bytes(0)
    assert refused(message(ALL, number, 0, empty))
    assert refused(message(ALL | KIND_FLAG["int8"], 5, number, np.float32(1).tobytes() + bytes([128] * 5)))


@pytest.mark.parametrize("count", [1, 4])
def test_all_positions_are_all_or_none(count):
    assert refused(message(ALL | KIND_FLAG["ternary"], 5, count, PLUS_ONE + bytes(count)))


# ---- positions ----


@pytest.mark.parametrize(
    "bitmap",
    [b"\x03\x00", b"\x0f\x00", b"\x00\x00", b"\xff\xff", b"\x03\x04", b"\x03\x80"],
)
def test_a_bitmap_of_another_population_or_with_unused_bits_is_refused(bitmap):
    honest = message(BITMAP | KIND_FLAG["ternary"], 10, 3, b"\x03\x02" + PLUS_ONE + bytes(3))
    outcome(honest)
    assert refused(message(BITMAP | KIND_FLAG["ternary"], 10, 3, bitmap + PLUS_ONE + bytes(3)))


def test_a_bitmap_longer_than_the_message_is_refused():
    assert refused(message(BITMAP, SMALL, 3, bytes(20)))


@pytest.mark.parametrize("level", [41, 58, 59, 63, 64, 255])
def test_a_level_above_40_is_refused(level):
    assert refused(ternary_at([1, 2], size=100, count=2, level=level))


@pytest.mark.parametrize("level", [1, 26, 27, 40])
def test_a_level_up_to_40_covers_what_is_left(level):
    update = outcome(ternary_at([1, 2], size=100, count=2, level=level))
    assert update is None or update.positions.tolist() == [1, 4]


@pytest.mark.parametrize("shift", [41, 48, 63])
def test_a_shift_above_40_is_refused(shift):
    stream = write_stream([step for gap in (1, 2) for step in gap_steps(gap, 64, shift)])
    rest = block(0, 64, shift) + with_length(stream) + PLUS_ONE + bytes(2)
    assert refused(message(GAPS | KIND_FLAG["ternary"], 100, 2, rest))


@pytest.mark.parametrize(("mean", "shift"), [(0, 0), (1, 3), (1023, 0), (64, 24), (64, 25), (64, 40)])
def test_any_allowed_law_is_read(mean, shift):
    update = outcome(ternary_at([1, 0, 2, 260], size=1000, count=4, mean=mean, shift=shift))
    assert update is None or update.positions.tolist() == [1, 2, 5, 266]


@pytest.mark.parametrize(
    "numbers",
    [[100], [99, 0], [0, 2**20], [0, 2**40], [2**31], [2**32], [2**63 - 1], [2**47 + 255]],
)
def test_a_position_beyond_the_vector_is_refused(numbers):
    for shift in (0, 20):
        assert refused(ternary_at(numbers, size=100, count=len(numbers), shift=shift))


@pytest.mark.parametrize(
    ("numbers", "shift"),
    [
        ([2**64 + 3], 40),
        ([2**63 + 3], 40),
        ([3, 2**64 - 3], 40),  # back to position 1 where a register wraps
        ([3, 2**64 - 1], 40),
        ([(2**48 + 254) << 40], 40),
        ([2**62, 2**62, 2**62, 2**62], 40),
        ([2**63 - 1, 2**63 - 1, 5], 40),
    ],
)
def test_gaps_that_wrap_around_a_register_are_refused(numbers, shift):
    assert refused(ternary_at(numbers, size=100, count=len(numbers), shift=shift))
    assert refused(ternary_at(numbers, size=2**40, count=len(numbers), shift=shift), max_size=2**41)


@pytest.mark.parametrize("gap", [10, 2**30])
def test_a_missing_position_beyond_the_vector_is_refused(gap):
    assert refused(ternary_at([gap], size=10, count=9, coder=MISSING))


def test_a_stream_of_one_word_too_many_or_too_few_is_refused():
    numbers = [7] * 20
    stream = write_stream([step for gap in numbers for step in gap_steps(gap, 64, 0)])
    rest = PLUS_ONE + bytes(20)
    for changed in (stream + bytes(4), stream[:-4], stream[:5], stream[:4], b"", stream + b"\x00"):
        body = block(0, 64, 0) + with_length(changed) + rest
        assert refused(message(GAPS | KIND_FLAG["ternary"], 1000, 20, body))


@pytest.mark.parametrize("state", [0, 1, 2**31 - 1, 2**63, 2**64 - 1])
def test_a_state_out_of_its_range_is_refused(state):
    for width in (5, 6, 7, 8):
        if state < 256**width:
            body = block(0, 64, 0) + with_length(state.to_bytes(width, "little")) + PLUS_ONE + bytes(2)
            assert refused(message(GAPS | KIND_FLAG["ternary"], 1000, 2, body))


@pytest.mark.parametrize("length", [100, 2**31, 2**32, 2**62, 2**63 - 1])
def test_a_stream_beyond_the_end_is_refused(length):
    stream = write_stream(gap_steps(1, 64, 0))
    start = block(0, 64, 0) + varint(length) + stream
    assert refused(message(GAPS | KIND_FLAG["ternary"], 1000, 1, start))
    assert refused(message(GAPS | KIND_FLAG["ternary"], 1000, 1, start + PLUS_ONE + bytes(1)))
    modelled = PLUS_ONE + b"\x00\x00" + varint(4096) + varint(length) + (2**31).to_bytes(5, "little")
    assert refused(message(CODED | ALL | KIND_FLAG["ternary"], 4, 4, modelled))


# ---- values ----


def ternary_table(table, count=4, stream=None):
    stream = (2**31).to_bytes(5, "little") if stream is None else stream
    return message(CODED | ALL | KIND_FLAG["ternary"], count, count, PLUS_ONE + table + with_length(stream))


def test_an_honest_table_of_one_byte_value_is_read():
    update = outcome(ternary_table(b"\x00\x00" + varint(4096)))
    np.testing.assert_array_equal(update.values, np.ones(4))


@pytest.mark.parametrize(
    "table",
    [
        b"\x00\x00" + varint(4095),
        b"\x00\x00" + varint(4097),
        b"\x00\x00" + varint(0),
        b"\x00\x00" + varint(2**32 + 4096),
        b"\x00\x00" + varint(2**63 - 1),
        b"\x00\x01" + varint(4096) + varint(0),
        b"\x00\x01" + varint(0) + varint(4096),
        b"\x00\x01" + varint(4096) + varint(4096),
        b"\x00\x02" + varint(2**63 - 1) + varint(2**63 - 1) + varint(4098),  # 4096 where a register wraps
        b"\x00\x02" + varint(1) + varint(0) + varint(4094),
        b"\x01\xff" + varint(1) * 255 + varint(4096 - 255),
        b"\xff\x01" + varint(1) + varint(4095),
        b"\xff\xff" + varint(16) * 256,
        b"\x00\x00\x80\xa0\x00",  # 4096, not in its shortest form
        b"\x00\x01" + varint(4096),
    ],
)
def test_a_table_that_is_no_table_is_refused(table):
    assert refused(ternary_table(table))


def test_a_ternary_value_that_is_neither_plus_nor_minus_is_refused():
    assert refused(message(ALL | KIND_FLAG["ternary"], 2, 2, PLUS_ONE + b"\x00\x02"))
    assert refused(ternary_table(b"\x02\x00" + varint(4096)))


@pytest.mark.parametrize("levels", [0, 128, 255])
def test_a_number_of_levels_out_of_range_is_refused(levels):
    assert refused(message(ALL | KIND_FLAG["qsgd"], 2, 2, bytes([levels]) + PLUS_ONE + b"\x80\x80"))
    assert refused(message(ALL | KIND_FLAG["qsgd"], 2, 0, bytes([levels])))


@pytest.mark.parametrize("byte", [0, 127 - 3, 128 + 4, 255])
def test_a_level_above_their_number_is_refused(byte):
    assert refused(message(ALL | KIND_FLAG["qsgd"], 2, 2, b"\x03" + PLUS_ONE + bytes([128, byte])))


def test_an_int8_of_minus_128_is_refused():
    assert refused(message(ALL | KIND_FLAG["int8"], 2, 2, PLUS_ONE + b"\x00\x80"))


def two_bit(magnitudes, symbols):
    """All entries of a short vector, as two-bit values of these two magnitudes."""
    count = len(symbols)
    return message(ALL | KIND_FLAG["two-bit"], count, count, np.array(magnitudes, "<f4").tobytes() + bytes(symbols))


def test_an_honest_message_of_two_bit_values_is_read():
    np.testing.assert_array_equal(outcome(two_bit([0.5, 2.0], [0, 1, 2, 3])).values, [-2.0, -0.5, 0.5, 2.0])
    np.testing.assert_array_equal(outcome(two_bit([0.5, 0.5], [1, 2])).values, [-0.5, 0.5])
    np.testing.assert_array_equal(outcome(two_bit([0.0, 0.0], [2])).values, [0.0])
    assert outcome(message(ALL | KIND_FLAG["two-bit"], 5, 0)).count == 0


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, -1.0, -0.0])
def test_a_magnitude_that_no_encoder_writes_is_refused(scale):
    assert refused(two_bit([scale, 2.0], [1, 3]))
    assert refused(two_bit([0.0, scale], [1, 3]))
    assert refused(two_bit([scale, scale], [1, 3]))


def test_a_small_magnitude_above_the_large_one_is_refused():
    assert refused(two_bit([np.nextafter(np.float32(2), np.float32(3)), 2.0], [1, 3]))
    blocks = np.array([1.0, 2.0, 2.0, 1.0], "<f4").tobytes()  # the second one
    assert refused(message(ALL | KIND_FLAG["two-bit"], 1025, 1025, blocks + bytes([2] * 1025)))


@pytest.mark.parametrize("symbol", [4, 5, 128, 255])
def test_a_two_bit_value_of_more_than_two_bits_is_refused(symbol):
    assert refused(two_bit([1.0, 2.0], [1, symbol]))
    table = bytes([symbol, 0]) + varint(4096) + with_length((2**31).to_bytes(5, "little"))
    assert refused(message(CODED | ALL | KIND_FLAG["two-bit"], 4, 4, np.array([1, 2], "<f4").tobytes() + table))


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, -1.0])
@pytest.mark.parametrize("kind", ["int8", "qsgd", "ternary"])
def test_a_scale_that_no_encoder_writes_is_refused(kind, scale):
    side = (b"\x03" if kind == "qsgd" else b"") + np.float32(scale).tobytes()
    assert refused(message(ALL | KIND_FLAG[kind], 2, 2, side + (b"\x00\x01" if kind == "ternary" else b"\x80\x81")))


@pytest.mark.parametrize("kind", ["int8", "qsgd", "ternary", "two-bit"])
def test_the_largest_scale_gives_finite_values(kind):
    """A level is at most the number of levels, so that no value exceeds its scale."""
    largest = np.finfo(np.float32).max
    side, symbols = np.float32(largest).tobytes(), b"\x01\xff"
    if kind == "qsgd":
        side = b"\x7f" + side
    if kind == "two-bit":
        side = 2 * side
    if kind in ("ternary", "two-bit"):
        symbols = b"\x00\x01"
    update = outcome(message(ALL | KIND_FLAG[kind], 2, 2, side + symbols))
    np.testing.assert_array_equal(np.abs(update.values), [largest, largest])


# ---- memory and time ----


def bombs(size):
    """Short messages that claim `size` entries."""
    one_symbol = (2**31).to_bytes(5, "little")
    for coder in (ALL, BITMAP, GAPS, MISSING):
        for kind in KIND_FLAG.values():
            for count in (size, size - 1, size // 2, 1, 0):
                for coded in (0, CODED):
                    yield message(coder | kind | coded, size, count, bytes(24))
                    law = block(40, 0, 0) + with_length(one_symbol)
                    table = b"\x00\x00" + varint(4096) + with_length(one_symbol)
                    yield message(coder | kind | coded, size, count, law + PLUS_ONE + table)
                    yield message(coder | kind | coded, size, count, PLUS_ONE + table)


def test_a_short_message_above_the_limit_is_refused_at_once_without_memory():
    payloads = list(bombs(2**28))
    with contextlib.suppress(CorruptPayloadError):
        codec.decode(payloads[0], max_size=2**20)  # compiled before the clock starts
    tracemalloc.start()
    started = time.perf_counter()
    for payload in payloads:
        assert refused(payload, max_size=2**20)
    seconds, (_, peak_bytes) = time.perf_counter() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 2.0
    assert peak_bytes < 2**20


def test_a_short_message_that_claims_a_huge_vector_is_refused_by_default():
    for payload in bombs(2**28):
        with pytest.raises(CorruptPayloadError):
            codec.decode(payload)


def test_short_messages_within_the_limit_take_bounded_memory_and_time():
    """In a process of its own that the system stops at 24 times the limit, in entries of 12 bytes."""
    script = """
        import resource, time
        from fewjoules import codec
        from fewjoules.errors import CorruptPayloadError
        from tests.codec.test_hostile import SAMPLES, bombs

        for payload in [*SAMPLES, *bombs(2**8)]:  # compiles what there is to compile
            try: codec.decode(payload, max_size=2**20)
            except CorruptPayloadError: pass
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        limit = used + 24 * 12 * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        slowest = 0.0
        for payload in bombs(2**20):
            started = time.perf_counter()
            try:
                update = codec.decode(payload, max_size=2**20)
                assert update.count <= update.size <= 2**20
            except CorruptPayloadError: pass
            slowest = max(slowest, time.perf_counter() - started)
        print(slowest)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 2.0


def test_the_largest_honest_message_of_one_symbol_is_read():
    """Zero bits an entry: the message is as short as any, its claim is true, and the limit alone bounds the work."""
    size = 2**20
    stream = with_length((2**31).to_bytes(5, "little"))
    payload = message(CODED | ALL | KIND_FLAG["ternary"], size, size, PLUS_ONE + b"\x00\x00" + varint(4096) + stream)
    update = codec.decode(payload, max_size=size)
    assert (update.count, float(update.values.sum(dtype=np.float64))) == (size, size)


def test_plain_bits_are_read_lower_part_first():
    """The escape of 48 bits and a shift above 24, written by the literal coder."""
    assert plain_steps(0xABCDEF123456, 48) == [(0x123456, 1, 24), (0xABCDEF, 1, 24)]
    far = (2**30 + 12345 + 255) * 2**8 + 77
    update = codec.decode(ternary_at([5, far], size=2**40, count=2, shift=8), max_size=2**40)
    assert update.positions.tolist() == [5, 6 + far]
    update = codec.decode(ternary_at([5, 2**36 + 2**25 + 1], size=2**40, count=2, shift=30), max_size=2**40)
    assert update.positions.tolist() == [5, 6 + 2**36 + 2**25 + 1]
