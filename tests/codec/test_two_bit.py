"""Two-bit values: a sign and one of two mean magnitudes, never worse than one mean, and exact about what they keep."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fewjoules import codec
from fewjoules.codec.values import BLOCK, KINDS, quantised
from tests.codec.strategies import bit_patterns, seeded
from tests.reference import codec as literal

TWO_BIT = KINDS["two-bit"]
ROUNDING = Fraction(1, 2**24)  # to float32, relative
LEAST = Fraction(1, 2**149)  # the smallest float32 above 0
NORMAL = float(np.finfo(np.float32).tiny)


@st.composite
def vectors(draw, max_count=2500, lowest_exponent=-44):
    """Finite values: of one scale, of heavy tails, of any bits, or of so few magnitudes that some are the mean."""
    near_blocks = [count for count in (1, 2, 3, 1023, 1024, 1025, 2048) if count <= max_count]
    count = draw(st.sampled_from(near_blocks) | st.integers(1, max_count))
    rng, shape = seeded(draw), draw(st.sampled_from(["normal", "heavy tails", "any bits", "few", "constant"]))
    if shape == "any bits" and lowest_exponent < -38:
        values = bit_patterns(rng, count)
        return np.where(np.isfinite(values), values, np.float32(-0.0))
    scale = 10.0 ** draw(st.integers(lowest_exponent, 30))
    if shape == "normal":
        values = rng.normal(size=count)
    elif shape == "heavy tails":
        values = np.clip(rng.standard_cauchy(size=count), -1e6, 1e6)
    elif shape == "few":
        values = rng.choice([-3.0, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 3.0], count)
    else:
        values = rng.choice([-1.0, 1.0], count)
    return (scale * values).astype(np.float32)


def blocks_of(values):
    return [values[start : start + BLOCK] for start in range(0, values.size, BLOCK)]


def square(vector):
    """The squared norm, its sum rounded once."""
    return math.fsum(float(value) ** 2 for value in vector)


def error(values, seen):
    return square(values.astype(np.float64) - seen.astype(np.float64))


# ---- the definition ----


@settings(deadline=None, derandomize=True, max_examples=80)
@given(vectors())
@example(np.zeros(0, np.float32))
@example(np.array([-0.0, 0.0], np.float32))
@example(np.array([3.4028235e38, -3.4028235e38, 1e-45], np.float32))
def test_the_parts_are_those_of_the_literal_definition(values):
    parts, expected = TWO_BIT.split(values, 15, None), literal.two_bit_blocks(values)
    assert parts.plain == b""
    magnitudes = np.array([pair[:2] for pair in expected], "<f4").reshape(-1, 2)
    assert parts.side == magnitudes.tobytes()
    assert parts.symbols.tolist() == [symbol for *_, symbols in expected for symbol in symbols]


def exact_means(block):
    """Mean magnitudes of the values up to the mean and of those above it, as fractions; no second where none is."""
    magnitudes = [Fraction(abs(float(value))) for value in block]
    mean = sum(magnitudes) / len(magnitudes)
    groups = [[m for m in magnitudes if m <= mean], [m for m in magnitudes if m > mean]]
    return [sum(group) / len(group) for group in groups if group]


@settings(deadline=None, derandomize=True, max_examples=40)
@given(vectors(max_count=1500))
def test_the_magnitudes_are_the_exact_means_rounded(values):
    for block in blocks_of(values):
        exact, seen = exact_means(block), np.unique(np.abs(quantised(block, "two-bit")))
        assert len(seen) == len(exact)
        for mean, magnitude in zip(exact, seen, strict=True):
            assert abs(Fraction(float(magnitude)) - mean) <= ROUNDING * mean + LEAST / 2


def test_a_magnitude_that_is_the_mean_is_small():
    seen = quantised(np.array([1.0, -2.0, 3.0], np.float32), "two-bit")
    np.testing.assert_array_equal(seen, [1.5, -1.5, 3.0])


def test_the_symbols_are_in_the_order_of_the_values():
    parts = TWO_BIT.split(np.array([-8.0, -1.0, -0.0, 0.0, 1.0, 8.0], np.float32), 15, None)
    assert parts.symbols.tolist() == [0, 1, 1, 2, 2, 3]
    np.testing.assert_array_equal(np.frombuffer(parts.side, "<f4"), [0.5, 8.0])


@pytest.mark.parametrize("magnitude", [0.0, 1e-45, 0.1, 3.4028235e38])
@pytest.mark.parametrize("count", [1, 3, 1000, 1024])
def test_where_no_magnitude_is_large_the_large_one_is_the_small_one(magnitude, count):
    values = np.full(count, magnitude, np.float32)
    values[::2] *= -1
    parts = TWO_BIT.split(values, 15, None)
    assert set(parts.symbols.tolist()) <= {1, 2}
    np.testing.assert_array_equal(np.frombuffer(parts.side, "<f4"), np.full(2, magnitude, np.float32))
    np.testing.assert_array_equal(quantised(values, "two-bit").view(np.uint32), values.view(np.uint32))


def test_no_values_have_no_parts():
    parts = TWO_BIT.split(np.zeros(0, np.float32), 15, None)
    assert (parts.symbols.size, parts.plain, parts.side) == (0, b"", b"")
    assert quantised(np.zeros(0, np.float32), "two-bit").shape == (0,)


# ---- what it keeps ----


@settings(deadline=None, derandomize=True, max_examples=80)
@given(vectors())
def test_every_value_keeps_its_sign(values):
    np.testing.assert_array_equal(np.signbit(quantised(values, "two-bit")), np.signbit(values))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(vectors())
def test_every_block_keeps_its_sum_of_magnitudes(values):
    for block in blocks_of(values):
        before = sum(Fraction(abs(float(value))) for value in block)
        after = sum(Fraction(abs(float(value))) for value in quantised(block, "two-bit"))
        assert abs(after - before) <= ROUNDING * before + block.size * LEAST / 2


@settings(deadline=None, derandomize=True, max_examples=80)
@given(vectors(max_count=BLOCK))
def test_the_error_of_a_block_is_at_most_that_of_ternary(values):
    """Two means leave less than one; rounding them to float32 adds at most (2^-24)^2 of the energy, or of the least."""
    two_bit, ternary = (error(values, quantised(values, kind)) for kind in ("two-bit", "ternary"))
    assert two_bit <= ternary + 2.0**-46 * square(values) + values.size * (float(LEAST) / 2) ** 2


@settings(deadline=None, derandomize=True, max_examples=80)
@given(vectors(lowest_exponent=-30))
def test_it_is_a_contraction(values):
    assert error(values, quantised(values, "two-bit")) <= (1 - 1 / BLOCK) * square(values) * (1 + 1e-9)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 1024), st.integers(1, 40))
def test_it_is_a_contraction_of_the_smallest_numbers_too(seed, count, highest):
    """Rounding to multiples of 2^-149 may cost all that the small mean keeps and a quarter of what the large keeps."""
    values = (np.random.default_rng(seed).integers(-highest, highest + 1, count) * float(LEAST)).astype(np.float32)
    assert error(values, quantised(values, "two-bit")) <= (1 - 3 / 8 / BLOCK) * square(values)


def test_the_worst_of_its_contraction_is_far_from_none():
    """One giant among as many values above the mean as there can be: the shape that two means serve worst."""
    values = np.zeros(BLOCK, np.float32)
    values[: BLOCK // 2] = 2.01 / BLOCK
    values[-1] = 1.0
    kept = 1 - error(values, quantised(values, "two-bit")) / square(values)
    assert 1 / BLOCK < kept < 10 / BLOCK


def test_normal_values_lose_an_eighth_of_their_energy():
    """E(|z| - mean of its side of sqrt(2/pi))^2 by the moments of the half-normal law; ternary loses 1 - 2/pi."""
    m = math.sqrt(2 / math.pi)
    density, below = math.sqrt(2 / math.pi) * math.exp(-m * m / 2), math.erf(m / math.sqrt(2))
    kept = (m - density) ** 2 / below + density**2 / (1 - below)
    values = np.random.default_rng(1).normal(size=400 * BLOCK).astype(np.float32)
    assert error(values, quantised(values, "two-bit")) / square(values) == pytest.approx(1 - kept, rel=0.01)
    assert 1 - kept == pytest.approx(1 / 8, rel=0.01)


# ---- symmetries ----


@settings(deadline=None, derandomize=True, max_examples=40)
@given(vectors())
def test_what_was_rounded_once_stays_and_makes_the_same_message(values):
    once = quantised(values, "two-bit")
    np.testing.assert_array_equal(quantised(once, "two-bit").view(np.uint32), once.view(np.uint32))
    update, again = (
        codec.SparseUpdate(size=values.size, positions=np.arange(values.size), values=seen) for seen in (values, once)
    )
    assert codec.encode(update, values="two-bit") == codec.encode(again, values="two-bit")


@settings(deadline=None, derandomize=True, max_examples=40)
@given(vectors())
def test_the_opposite_of_values_is_seen_as_the_opposite(values):
    np.testing.assert_array_equal(quantised(-values, "two-bit"), -quantised(values, "two-bit"))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(vectors(lowest_exponent=-20), st.integers(-20, 20))
def test_a_power_of_two_times_values_is_seen_as_that_power_times(values, exponent):
    factor, seen = np.float32(2.0**exponent), quantised(values, "two-bit")
    assume(not np.any((seen != 0) & (np.abs(seen) * factor < NORMAL)))
    assume(not np.any((values != 0) & (np.abs(values) * factor < NORMAL)))
    np.testing.assert_array_equal(quantised(values * factor, "two-bit"), seen * factor)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(vectors())
def test_blocks_do_not_know_of_one_another(values):
    apart = [quantised(block, "two-bit") for block in blocks_of(values)]
    np.testing.assert_array_equal(quantised(values, "two-bit"), np.concatenate(apart))


# ---- bytes ----


def test_a_message_takes_at_most_two_bits_a_value_and_eight_bytes_a_block():
    values = np.random.default_rng(2).normal(size=20 * BLOCK).astype(np.float32)
    update = codec.SparseUpdate(size=values.size, positions=np.arange(values.size), values=values)
    payload = codec.encode(update, values="two-bit")
    assert payload[2] == 2
    assert len(payload) <= 2 * values.size / 8 + 20 * 8 + 32
    assert literal.parts_of(payload).side_information == 20 * 8


def test_messages_of_every_other_kind_are_still_of_version_1():
    update = codec.SparseUpdate(size=9, positions=np.arange(3), values=np.ones(3, np.float32))
    versions = {kind: codec.encode(update, values=kind, rng=np.random.default_rng(1))[2] for kind in KINDS}
    assert versions == dict.fromkeys(KINDS, 1) | {"two-bit": 2}
