"""Messages: what goes in comes out, in the bytes that docs/wire-format.md describes, and in few of them."""

import functools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fewjoules import codec
from fewjoules.codec.values import quantised
from fewjoules.errors import CorruptPayloadError, InvalidInputError
from tests.codec.strategies import (
    KINDS,
    LARGEST_SIZE,
    bit_patterns,
    clustered_positions,
    moderate_updates,
    sparse_updates,
    uniform_positions,
)
from tests.reference import codec as literal

LOSSY_KINDS = KINDS[1:]
COARSE_KINDS = ["int8", "qsgd", "ternary", "two-bit"]
VALUES_IN_A_BLOCK = 1024

decode = functools.partial(codec.decode, max_size=LARGEST_SIZE)
encode_any = functools.partial(codec.encode, allow_nonfinite=True)
decode_any = functools.partial(decode, allow_nonfinite=True)


def update_of(size, positions, values):
    return codec.SparseUpdate(size=size, positions=np.asarray(positions), values=np.asarray(values, np.float32))


def rng():
    """A generator in the state where every call of this function leaves it: coins that fall twice alike."""
    return np.random.default_rng(5)


def bits_of(values):
    return np.asarray(values, np.float32).view(np.uint32)


def log2_choices(size, count):
    return (math.lgamma(size + 1) - math.lgamma(count + 1) - math.lgamma(size - count + 1)) / math.log(2)


# ---- round trips ----


@settings(deadline=None, derandomize=True, max_examples=60)
@given(sparse_updates())
def test_decode_inverts_encode_bit_for_bit(update):
    decoded = decode_any(encode_any(update))
    assert decoded == update
    assert decoded.size == update.size
    assert decoded.positions.dtype == np.int64
    np.testing.assert_array_equal(decoded.positions, update.positions)
    np.testing.assert_array_equal(bits_of(decoded.values), bits_of(update.values))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 90), st.data())
def test_every_set_of_positions_of_a_short_vector_comes_back(size, data):
    kept = data.draw(st.sets(st.integers(0, size - 1)))
    update = update_of(size, np.array(sorted(kept), np.int64), np.arange(len(kept)))
    assert decode(codec.encode(update)) == update


@pytest.mark.parametrize("count", [1023, 1024, 1025, 2048, 2049])
@pytest.mark.parametrize("kind", KINDS)
def test_counts_around_a_block_of_values_come_back(kind, count):
    values = np.random.default_rng(count).normal(size=count).astype(np.float32)
    update = update_of(5000, np.arange(count) * 2, values)
    decoded = decode(codec.encode(update, values=kind, rng=rng()))
    np.testing.assert_array_equal(decoded.positions, update.positions)
    np.testing.assert_array_equal(bits_of(decoded.values), bits_of(quantised(values, kind, rng=rng())))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparsity", [1, 1.05, 2, 20])
def test_long_updates_come_back(kind, sparsity):
    generator = np.random.default_rng(12)
    positions = uniform_positions(generator, 400_000, sparsity)
    update = update_of(400_000, positions, generator.laplace(size=positions.size))
    decoded = decode(codec.encode(update, values=kind, rng=rng()))
    np.testing.assert_array_equal(decoded.positions, positions)
    np.testing.assert_array_equal(bits_of(decoded.values), bits_of(quantised(update.values, kind, rng=rng())))


def test_threads_may_encode_and_decode_at_once():
    generator = np.random.default_rng(13)
    updates = []
    for sparsity in (1, 3, 10, 30, 100, 300, 1000, 3000):
        positions = uniform_positions(generator, 200_000, sparsity)
        updates.append(update_of(200_000, positions, generator.normal(size=positions.size)))
    with ThreadPoolExecutor(4) as pool:
        payloads = list(pool.map(codec.encode, updates))
        decoded = list(pool.map(codec.decode, payloads))
    assert payloads == [codec.encode(update) for update in updates]
    assert decoded == updates


@pytest.mark.parametrize("missing", [[0], [999], [0, 999], [500], [0, 1, 2, 3]])
def test_all_but_a_few_positions_come_back(missing):
    kept = np.setdiff1d(np.arange(1000), missing)
    update = update_of(1000, kept, np.sin(kept))
    assert decode(codec.encode(update)) == update


@pytest.mark.parametrize("size", [2**24 + 1, 2**28 + 1, 2**31, 2**33, 2**40])
def test_vectors_longer_than_the_default_limit_come_back_where_the_reader_allows_them(size):
    update = update_of(size, [0, 1, size // 3, size - 1], [1.0, -2.0, 3.0, -4.0])
    payload = codec.encode(update)
    assert codec.decode(payload, max_size=size) == update
    with pytest.raises(CorruptPayloadError):
        codec.decode(payload)


@pytest.mark.parametrize("wrap", [bytearray, memoryview, lambda payload: memoryview(b"!" + payload)[1:]])
def test_any_buffer_of_bytes_is_read(wrap):
    update = update_of(100, [3, 50], [1.0, 2.0])
    assert decode(wrap(codec.encode(update))) == update


def test_a_decoded_update_does_not_change_with_the_buffer_it_came_from():
    update = update_of(4, [0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    buffer = bytearray(codec.encode(update))
    decoded = decode(buffer)
    buffer[:] = bytes(len(buffer))
    assert decoded == update


def test_both_zeros_keep_their_sign():
    decoded = decode(codec.encode(update_of(10, [2, 7], [-0.0, 0.0])))
    np.testing.assert_array_equal(np.signbit(decoded.values), [True, False])


def test_encoding_leaves_the_update_alone():
    positions, values = np.arange(0, 3000, 3), np.linspace(-1, 1, 1000, dtype=np.float32)
    update = codec.SparseUpdate(size=3000, positions=positions.copy(), values=values.copy())
    for kind in KINDS:
        codec.encode(update, values=kind, rng=rng())
    np.testing.assert_array_equal(update.positions, positions)
    np.testing.assert_array_equal(update.values, values)


# ---- NaN and infinity ----


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_values_that_are_not_finite_are_not_sent_by_default(kind, value):
    with pytest.raises(InvalidInputError, match=f"must be finite .*, got {value} at position 4"):
        codec.encode(update_of(10, [1, 4], [1.0, value]), values=kind, rng=rng())


@pytest.mark.parametrize("count", [3, 20_000])  # one thread, two threads
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_values_that_are_not_finite_are_not_received_by_default(kind, value, count):
    values = np.ones(count, np.float32)
    values[2] = value
    update = update_of(2 * count, range(count), values)
    payload = encode_any(update, values=kind)
    with pytest.raises(CorruptPayloadError, match=rf"must be finite \(allow_nonfinite.*, got {value} at entry 2$"):
        decode(payload)
    np.testing.assert_array_equal(decode_any(payload).values, values)


def test_nan_comes_back_with_its_payload_bits_where_it_is_allowed():
    bits = np.array([0x7FC00000, 0xFFC00001, 0x7F800001, 0xFFFFFFFF, 0x3F800000], np.uint32)
    update = update_of(10, np.arange(5), bits.view(np.float32))
    decoded = decode_any(encode_any(update))
    np.testing.assert_array_equal(decoded.values.view(np.uint32), bits)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_keeps_nan_and_infinity_what_they_are(kind):
    # 0x7F800001 has its mantissa in the bits that are cut off: cutting alone would make it infinite
    bits = np.array([0x7FC00000, 0x7F800001, 0xFF800000, 0x7F800000], np.uint32)
    decoded = decode_any(encode_any(update_of(4, range(4), bits.view(np.float32)), values=kind))
    np.testing.assert_array_equal(np.isnan(decoded.values), [True, True, False, False])
    np.testing.assert_array_equal(decoded.values[2:], [-math.inf, math.inf])


@pytest.mark.parametrize("kind", COARSE_KINDS)
def test_infinity_is_refused_where_it_would_drown_its_block(kind):
    with pytest.raises(InvalidInputError, match=f"to be sent as {kind}"):
        encode_any(update_of(10, [1, 4], [1.0, math.inf]), values=kind, rng=rng())


@pytest.mark.parametrize("value", [65520.0, -65520.0, 1e6, 3e38])
def test_finite_values_beyond_float16_are_refused(value):
    with pytest.raises(InvalidInputError):
        codec.encode(update_of(10, [1, 4], [1.0, value]), values="float16")


def test_the_largest_float16_is_carried():
    decoded = decode(codec.encode(update_of(10, [1, 4], [65504.0, -65519.0]), values="float16"))
    np.testing.assert_array_equal(decoded.values, [65504.0, -65504.0])


@pytest.mark.parametrize("kind", ["bfloat16", *COARSE_KINDS])
@pytest.mark.parametrize("largest", [3.4e38, 1e38, 1e37])
def test_values_near_the_largest_float32_survive_or_are_refused(kind, largest):
    update = update_of(10, range(5), [largest, -largest, largest, 1.0, 0.0])
    try:
        payload = codec.encode(update, values=kind, rng=rng())
    except InvalidInputError:
        return
    assert np.isfinite(decode(payload).values).all()


# ---- arguments ----


RELEASED = memoryview(b"FJ")
RELEASED.release()


@pytest.mark.parametrize("payload", ["FJ", None, 5, [70, 74], memoryview(b"FJ" * 20)[::2], RELEASED])
def test_only_bytes_are_decoded(payload):
    allowed = "payload must be bytes, a bytearray or a contiguous memoryview"
    with pytest.raises(InvalidInputError, match=f"^{allowed}, got {type(payload).__name__}$"):
        codec.decode(payload)


def test_an_unknown_kind_of_values_is_refused():
    with pytest.raises(InvalidInputError, match="float12"):
        codec.encode(update_of(10, [1], [1.0]), values="float12")


@pytest.mark.parametrize("levels", [0, 128, -3])
def test_levels_out_of_range_are_refused(levels):
    with pytest.raises(InvalidInputError):
        codec.encode(update_of(10, [1], [1.0]), values="qsgd", levels=levels, rng=rng())


def test_stochastic_rounding_needs_a_generator():
    with pytest.raises(InvalidInputError):
        codec.encode(update_of(10, [1], [1.0]), values="qsgd")


@pytest.mark.parametrize(
    ("size", "positions", "values"),
    [
        (10, [3, 3], [1.0, 2.0]),
        (10, [4, 3], [1.0, 2.0]),
        (10, [-1, 3], [1.0, 2.0]),
        (10, [3, 10], [1.0, 2.0]),
        (10, [3], [1.0, 2.0]),
        (-1, [], []),
        (10, [[3]], [[1.0]]),
    ],
)
def test_an_inconsistent_update_is_refused(size, positions, values):
    with pytest.raises(InvalidInputError):
        codec.SparseUpdate(size=size, positions=np.array(positions, np.int64), values=np.array(values, np.float32))


@pytest.mark.parametrize("positions", [np.array([1.0]), np.array([True]), np.array([2**63], np.uint64)])
def test_positions_that_are_no_integers_are_refused(positions):
    with pytest.raises(InvalidInputError):
        codec.SparseUpdate(size=10, positions=positions, values=np.ones(1, np.float32))


def test_values_of_float64_are_refused_rather_than_rounded():
    with pytest.raises(InvalidInputError):
        codec.SparseUpdate(size=10, positions=np.array([1]), values=np.array([0.1]))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
def test_positions_of_any_integer_type_are_taken(kind):
    update = codec.SparseUpdate(size=10, positions=np.array([1, 9], kind), values=np.ones(2, np.float32))
    assert update.positions.dtype == np.int64
    assert decode(codec.encode(update)) == update


def test_an_update_knows_its_count_and_its_dense_form():
    update = update_of(5, [1, 3], [2.0, -1.0])
    assert update.count == 2
    np.testing.assert_array_equal(update.to_dense(), np.array([0, 2, 0, -1, 0], np.float32))
    assert update.to_dense().dtype == np.float32


def test_updates_are_equal_by_bits():
    assert update_of(5, [1], [0.0]) != update_of(5, [1], [-0.0])
    assert update_of(5, [1], [math.nan]) == update_of(5, [1], [math.nan])
    assert update_of(5, [1], [1.0]) != update_of(6, [1], [1.0])
    assert update_of(5, [1], [1.0]) != update_of(5, [2], [1.0])


# ---- the same bytes, and those of the page ----


@settings(deadline=None, derandomize=True, max_examples=25)
@given(moderate_updates(), st.sampled_from(KINDS))
def test_the_same_update_gives_the_same_bytes(update, kind):
    strided = codec.SparseUpdate(
        size=update.size, positions=np.repeat(update.positions, 2)[::2], values=np.repeat(update.values, 2)[::2]
    )
    payload = codec.encode(update, values=kind, rng=rng())
    assert codec.encode(update, values=kind, rng=rng()) == payload
    assert codec.encode(strided, values=kind, rng=rng()) == payload


@settings(deadline=None, derandomize=True, max_examples=40)
@given(sparse_updates(max_count=600))
def test_the_literal_decoder_reads_the_same_float32(update):
    message = literal.decode(encode_any(update))
    assert (message.size, message.positions) == (update.size, update.positions.tolist())
    np.testing.assert_array_equal(bits_of(message.values), bits_of(update.values))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(moderate_updates(max_count=1500), st.sampled_from(LOSSY_KINDS), st.integers(1, 127))
def test_the_literal_decoder_reads_the_same_lossy_values(update, kind, levels):
    payload = codec.encode(update, values=kind, levels=levels, rng=rng())
    message, decoded = literal.decode(payload), decode(payload)
    assert (message.size, message.positions) == (decoded.size, decoded.positions.tolist())
    np.testing.assert_array_equal(bits_of(message.values), bits_of(decoded.values))


@pytest.mark.parametrize(
    ("coder", "size", "positions"),
    [
        ("all", 300, range(0)),
        ("all", 300, range(300)),
        ("bitmap", 300, range(0, 300, 2)),
        ("gaps", 300, [5, 9, 270]),
        ("missing gaps", 300, [i for i in range(300) if i not in (5, 9, 270)]),
    ],
)
def test_each_coder_of_positions_is_used_where_it_is_the_smallest(coder, size, positions):
    # a regular bitmap would be cheaper as gaps of a constant law; these gaps are random coins
    if coder == "bitmap":
        positions = np.flatnonzero(np.random.default_rng(1).random(size) < 0.5)
    payload = codec.encode(update_of(size, np.array(positions, np.int64), np.ones(len(positions))))
    assert literal.parts_of(payload).coder == coder
    assert literal.decode(payload).positions == list(positions)


@pytest.mark.parametrize("gap", [2**15, 2**24 - 1, 2**24, 2**27, 2**36])
def test_one_gap_far_beyond_its_law_comes_back(gap):
    positions = np.concatenate([np.arange(0, 60, 2), 60 + gap + np.arange(0, 60, 2)])  # one block of gaps of 1
    size = int(positions[-1]) + 1
    update = update_of(size, positions, np.ones(positions.size))
    payload = codec.encode(update)
    assert codec.decode(payload, max_size=size) == update
    assert literal.decode(payload, max_size=size).positions == positions.tolist()


# ---- the error of lossy kinds ----


@settings(deadline=None, derandomize=True, max_examples=40)
@given(moderate_updates(), st.sampled_from(LOSSY_KINDS), st.integers(1, 127))
def test_the_receiver_sees_what_quantised_promises(update, kind, levels):
    decoded = decode(codec.encode(update, values=kind, levels=levels, rng=rng()))
    promised = quantised(update.values, kind, levels=levels, rng=rng())
    np.testing.assert_array_equal(decoded.positions, update.positions)
    np.testing.assert_array_equal(bits_of(decoded.values), bits_of(promised))
    assert promised.dtype == np.float32


@settings(deadline=None, derandomize=True, max_examples=25)
@given(moderate_updates())
def test_float16_is_the_nearest_float16(update):
    decoded = decode(codec.encode(update, values="float16"))
    np.testing.assert_array_equal(bits_of(decoded.values), bits_of(update.values.astype(np.float16)))


def nearest_bfloat16(values):
    """Round half to even on the 16 bits that go."""
    bits = bits_of(values).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def test_bfloat16_is_the_nearest_bfloat16():
    values = bit_patterns(np.random.default_rng(3), 20_000)
    values = values[np.abs(values) < 3.38e38]  # nearest is finite
    decoded = decode(codec.encode(update_of(values.size, range(values.size), values), values="bfloat16"))
    np.testing.assert_array_equal(bits_of(decoded.values), bits_of(nearest_bfloat16(values)))


@settings(deadline=None, derandomize=True, max_examples=25)
@given(moderate_updates())
def test_int8_is_within_half_a_step_of_its_block(update):
    decoded = decode(codec.encode(update, values="int8"))
    for start in range(0, update.count, VALUES_IN_A_BLOCK):
        block = slice(start, start + VALUES_IN_A_BLOCK)
        scale = float(np.abs(update.values[block]).max())
        error = np.abs(decoded.values[block].astype(np.float64) - update.values[block])
        assert error.max() <= scale / 254 * (1 + 1e-5)
        assert np.abs(decoded.values[block]).max() == np.float32(scale)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(moderate_updates(), st.integers(1, 127))
def test_qsgd_is_within_a_step_of_its_block_and_never_changes_sign(update, levels):
    decoded = decode(codec.encode(update, values="qsgd", levels=levels, rng=rng()))
    for start in range(0, update.count, VALUES_IN_A_BLOCK):
        block = slice(start, start + VALUES_IN_A_BLOCK)
        norm = float(np.linalg.norm(update.values[block].astype(np.float64)))
        error = np.abs(decoded.values[block].astype(np.float64) - update.values[block])
        assert error.max() <= norm / levels * (1 + 1e-5)
    assert (decoded.values.astype(np.float64) * update.values >= 0).all()


@settings(deadline=None, derandomize=True, max_examples=25)
@given(moderate_updates())
def test_ternary_is_the_mean_magnitude_with_the_sign_of_each(update):
    decoded = decode(codec.encode(update, values="ternary"))
    assume(update.count > 0)
    mean = np.abs(update.values.astype(np.float64)).mean()
    np.testing.assert_allclose(np.abs(decoded.values), mean, rtol=1e-6)
    sent = update.values != 0
    np.testing.assert_array_equal(np.signbit(decoded.values[sent]), np.signbit(update.values[sent]))


@pytest.mark.parametrize("kind", COARSE_KINDS)
def test_a_block_of_zeros_stays_zero(kind):
    decoded = decode(codec.encode(update_of(3000, range(1500), np.zeros(1500)), values=kind, rng=rng()))
    np.testing.assert_array_equal(decoded.values, np.zeros(1500))


@pytest.mark.parametrize("kind", COARSE_KINDS)
def test_denormal_values_are_carried_with_the_error_of_their_kind(kind):
    values = np.array([1e-45, -3e-45, 1e-42, -1e-40], np.float32)
    decoded = decode(codec.encode(update_of(10, range(4), values), values=kind, levels=127, rng=rng()))
    assert np.isfinite(decoded.values).all()
    assert np.abs(decoded.values).max() > 0


# ---- size ----


@settings(deadline=None, derandomize=True, max_examples=40)
@given(moderate_updates(), st.sampled_from(KINDS), st.integers(1, 127))
def test_encoded_size_is_exact_for_small_updates(update, kind, levels):
    written = len(codec.encode(update, values=kind, levels=levels, rng=rng()))
    assert codec.encoded_size(update, values=kind, levels=levels, rng=rng()) == written


@settings(deadline=None, derandomize=True, max_examples=25)
@given(sparse_updates())
def test_encoded_size_is_exact_for_small_float32_updates_of_any_bits(update):
    assume(max(update.count, update.size - update.count if 2 * update.count > update.size else 0) < 2048)
    assert codec.encoded_size(update) == len(encode_any(update))


def uneven_positions(generator, size):
    """Layers that keep very different shares of their entries."""
    keep = np.repeat([0.5, 0.001, 0.1, 0.9, 0.01, 0.0002], -(-size // 6))[:size]
    return np.flatnonzero(generator.random(size) < keep)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("size", "arrange"),
    [
        (250_000, lambda g, d: uniform_positions(g, d, 20)),
        (431_080, lambda g, d: uniform_positions(g, d, 8)),
        (30_000, lambda g, d: uniform_positions(g, d, 1.2)),
        (40_000, lambda g, d: np.arange(d)),
        (100_000, uneven_positions),
        (150_000, uneven_positions),
        (10**6, lambda g, d: clustered_positions(g, d, 30_000)),
        (2**27, lambda g, d: uniform_positions(g, d // 16, 500) * 16),
    ],
)
def test_encoded_size_is_within_a_thousandth(kind, size, arrange):
    generator = np.random.default_rng(size)
    positions = arrange(generator, size)
    values = generator.laplace(size=positions.size) * np.repeat([1e-4, 3.0], -(-positions.size // 2))[: positions.size]
    update = update_of(size, positions, values)
    assert positions.size > 10_000
    written = len(codec.encode(update, values=kind, rng=rng()))
    assert codec.encoded_size(update, values=kind, rng=rng()) == pytest.approx(written, rel=1e-3)


def parts_of_positions(size, positions):
    """Where the bytes of a message go whose values are all one."""
    payload = codec.encode(update_of(size, positions, np.ones(len(positions))), values="ternary")
    parts = literal.parts_of(payload)
    known = parts.header + parts.position_bits // 8 + parts.side_information + parts.modelled_parameters
    assert known + parts.modelled_stream + parts.plain + 4 == len(payload)
    return parts


@pytest.mark.parametrize(
    ("size", "sparsity"),
    [(431_080, sparsity) for sparsity in (4.5, 7, 10, 30, 100, 1000, 10_000)]
    + [(25_000_000, sparsity) for sparsity in (4.5, 100, 1000, 10_000)],
)
def test_uniform_positions_cost_a_thousandth_above_the_entropy(size, sparsity):
    positions = uniform_positions(np.random.default_rng(11), size, sparsity)
    parts = parts_of_positions(size, positions)
    limit = 1.001 * log2_choices(size, positions.size) + 64
    assert 8 * parts.position_stream <= limit
    assert parts.position_bits <= limit + 48  # one block and the length of the stream: three bytes each at most


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60_000), st.floats(0.0, 1.0))
def test_uniform_positions_of_any_share_never_cost_more_than_a_bitmap(seed, size, share):
    positions = np.flatnonzero(np.random.default_rng(seed).random(size) < share)
    assert parts_of_positions(size, positions).position_bits <= 8 * ((size + 7) // 8)


@pytest.mark.parametrize("count", [1, 10, 1000, 100_000])
def test_the_fixed_parts_of_a_frame_of_one_block_are_at_most_32_bytes(count):
    size = 2**28
    positions = np.sort(np.random.default_rng(count).choice(2**20, count, replace=False)) * 256
    parts = literal.parts_of(codec.encode(update_of(size, positions, np.ones(count)), values="ternary"))
    assert len(parts.blocks) == 1
    assert parts.header + parts.position_parameters + parts.modelled_parameters + 4 <= 32


def test_uniform_positions_are_one_block():
    """Parameters are fitted to the data: where the law does not change, one set of them is enough."""
    positions = uniform_positions(np.random.default_rng(2), 431_080, 100)
    assert len(parts_of_positions(431_080, positions).blocks) == 1


def test_layers_of_uneven_density_cost_clearly_less_than_uniform_positions():
    size = 431_080
    positions = uneven_positions(np.random.default_rng(3), size)
    parts = parts_of_positions(size, positions)
    share = np.array([0.5, 0.001, 0.1, 0.9, 0.01, 0.0002])
    entropy = size / 6 * -(share * np.log2(share) + (1 - share) * np.log2(1 - share)).sum()
    assert parts.position_bits < 0.8 * log2_choices(size, positions.size)
    assert parts.position_bits < 1.1 * entropy


def test_long_clusters_cost_clearly_less_than_uniform_positions():
    generator = np.random.default_rng(4)
    starts = np.arange(0, 10**6, 50_000)
    positions = np.unique(starts[:, None] + generator.integers(0, 2000, (starts.size, 1000)))
    assert parts_of_positions(10**6, positions).position_bits < 0.5 * log2_choices(10**6, positions.size)


def test_short_clusters_cost_clearly_less_than_uniform_positions():
    """Some 15 neighbours, then a gap of 1000: too short for a block of their own, but a far gap may escape."""
    positions = clustered_positions(np.random.default_rng(4), 10**6, 20_000)
    assert parts_of_positions(10**6, positions).position_bits < 0.8 * log2_choices(10**6, positions.size)


def test_exponents_of_alike_values_cost_less_than_a_byte_each():
    values = np.random.default_rng(5).normal(size=20_000)
    parts = literal.parts_of(codec.encode(update_of(20_000, range(20_000), values)))
    assert parts.modelled_parameters + parts.modelled_stream < 0.4 * 20_000


@settings(deadline=None, derandomize=True, max_examples=40)
@given(sparse_updates())
def test_modelling_values_never_costs_more_than_a_few_bytes(update):
    parts = literal.parts_of(encode_any(update))
    assert parts.modelled_parameters + parts.modelled_stream <= update.count


# ---- the limit of the reader ----


@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_above_max_size_is_refused_and_one_at_max_size_is_read(kind):
    update = update_of(1000, [1, 999], [1.0, 2.0])
    payload = codec.encode(update, values=kind, rng=rng())
    assert codec.decode(payload, max_size=1000).size == 1000
    with pytest.raises(CorruptPayloadError, match="1000"):
        codec.decode(payload, max_size=999)


def test_an_empty_vector_is_read_at_any_limit():
    update = update_of(0, np.zeros(0, np.int64), [])
    assert codec.decode(codec.encode(update), max_size=0) == update
