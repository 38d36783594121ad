"""Compressors with error feedback: what each keeps, how far it is from its input, and that nothing is lost.

Statistical tests use fixed seeds, so they never flicker. Their stated error rate is the probability that a correct
implementation would fail under fresh seeds: below one in 100,000 for each test.
"""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules import codec
from fewjoules.codec import compressors
from fewjoules.codec.values import quantised
from fewjoules.errors import InvalidInputError
from tests.codec.strategies import KINDS, seeded
from tests.reference import codec as literal

VALUES_IN_A_BLOCK = 1024


def generator(seed=3):
    return np.random.default_rng(seed)


def normal(size, seed=1, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=size)).astype(np.float32)


def square(vector):
    return float(np.square(vector.astype(np.float64)).sum())


def compress(name, update, residual, k, rng):
    """One call for all; `k` is also the number of levels, within its limits."""
    if name == "none":
        return compressors.none(update, residual)
    if name == "qsgd":
        return compressors.qsgd(update, residual, min(max(k, 1), 127), rng)
    if name.startswith("random_k"):
        return compressors.random_k(update, residual, k, rng, unbiased=name.endswith("unbiased"))
    return getattr(compressors, name)(update, residual, k)


NAMES = ["none", "top_k", "random_k", "random_k unbiased", "ternary", "qsgd"]


@st.composite
def inputs(draw):
    size = draw(st.sampled_from([1, 2, 1023, 1024, 1025]) | st.integers(1, 3000))
    rng = seeded(draw)
    scale = 10.0 ** draw(st.integers(-20, 10))
    update, residual = (scale * rng.normal(size=(2, size))).astype(np.float32)
    update[rng.random(size) < 0.2] = 0.0
    if draw(st.booleans()):
        residual[:] = 0.0
    return update, residual, draw(st.sampled_from([0, 1, size]) | st.integers(0, size))


# ---- all of them ----


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, derandomize=True, max_examples=30)
@given(inputs())
def test_what_is_sent_and_what_is_left_add_to_the_total(name, drawn):
    update, residual, k = drawn
    before = update.copy(), residual.copy()
    sent, left = compress(name, update, residual, k, generator())
    total = (update + residual).astype(np.float64)
    dense = sent.to_dense().astype(np.float64)
    assert left.dtype == np.float32
    assert left.shape == update.shape
    assert (np.abs(dense + left - total) <= 2.0**-23 * (np.abs(dense) + np.abs(total)) + 1e-45).all()
    np.testing.assert_array_equal(update, before[0])
    np.testing.assert_array_equal(residual, before[1])


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_result(name):
    update, residual = normal(5000, 1), normal(5000, 2)
    first, left = compress(name, update, residual, 50, generator())
    again, left_again = compress(name, update, residual, 50, generator())
    assert first == again
    np.testing.assert_array_equal(left, left_again)


@pytest.mark.parametrize("name", NAMES)
def test_zeros_stay_zeros(name):
    zeros = np.zeros(2000, np.float32)
    sent, left = compress(name, zeros, zeros, 10, generator())
    np.testing.assert_array_equal(sent.to_dense(), zeros)
    np.testing.assert_array_equal(left, zeros)


@pytest.mark.parametrize("name", ["none", "top_k", "random_k", "ternary", "qsgd"])
def test_with_feedback_everything_is_sent_in_the_end(name):
    """All that was sent and the residual add to all updates, and the residual of a contraction stays bounded."""
    rng, norms = generator(9), []
    residual, sent_sum, update_sum = np.zeros(500, np.float32), np.zeros(500), np.zeros(500)
    for step in range(200):
        update = normal(500, seed=step)
        sent, residual = compress(name, update, residual, 50, rng)
        sent_sum += sent.to_dense()
        update_sum += update
        norms.append(math.sqrt(square(residual)))
        np.testing.assert_allclose(sent_sum + residual, update_sum, atol=1e-3)
    assert max(norms[100:]) <= 1.3 * max(norms[:100])


# ---- none, top-k ----


def test_none_sends_everything():
    update, residual = normal(100, 1), normal(100, 2)
    sent, left = compressors.none(update, residual)
    np.testing.assert_array_equal(sent.positions, np.arange(100))
    np.testing.assert_array_equal(sent.values, update + residual)
    np.testing.assert_array_equal(left, np.zeros(100))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(inputs())
def test_top_k_contracts(drawn):
    update, residual, k = drawn
    total = update + residual
    sent, left = compressors.top_k(update, residual, k)
    assert sent.count == k
    assert square(left) <= (1 - k / total.size) * square(total) * (1 + 1e-6)
    np.testing.assert_array_equal(sent.to_dense() + left, total)


def test_top_k_is_the_literal_top_k():
    update, residual = normal(300, 1), normal(300, 2)
    sent, left = compressors.top_k(update, residual, 30)
    positions, values, expected = literal.top_k_with_feedback(update, residual, 30)
    np.testing.assert_array_equal(sent.positions, positions)
    np.testing.assert_array_equal(sent.values, values)
    np.testing.assert_array_equal(left, expected)


# ---- random-k ----


@pytest.mark.parametrize("k", [0, 1, 50, 499, 500])
@pytest.mark.parametrize("unbiased", [False, True])
def test_random_k_sends_exactly_k(k, unbiased):
    sent, left = compressors.random_k(normal(500), np.zeros(500, np.float32), k, generator(), unbiased=unbiased)
    assert sent.count == k
    factor = 500 / k if unbiased and k else 1.0
    np.testing.assert_allclose(sent.values, factor * normal(500)[sent.positions], rtol=1e-6)
    rest = np.setdiff1d(np.arange(500), sent.positions)
    np.testing.assert_array_equal(left[rest], normal(500)[rest])


def test_random_k_keeps_each_position_equally_often():
    """z < 6 for each of 200 positions: error rate 200 * 2e-9; all pairs of neighbours too, which runs would break."""
    size, k, rounds = 200, 40, 4000
    rng, zeros = generator(), np.zeros(size, np.float32)
    kept = np.array([compressors.random_k(zeros, zeros, k, rng)[0].positions for _ in range(rounds)])
    share = k / size
    deviation = math.sqrt(rounds * share * (1 - share))
    assert np.abs(np.bincount(kept.ravel(), minlength=size) - rounds * share).max() < 6 * deviation
    together = share * (k - 1) / (size - 1)
    neighbours = sum(int((np.diff(row) == 1).sum()) for row in kept)
    expected = rounds * (size - 1) * together
    assert abs(neighbours - expected) < 6 * math.sqrt(expected)


@pytest.mark.parametrize("k", [20, 500, 1500])
def test_random_k_contracts_on_average(k):
    """E|x - C(x)|^2 = (1 - k/d)|x|^2 exactly; z < 6 of the mean of 400 rounds."""
    update, zeros, rng = normal(2000), np.zeros(2000, np.float32), generator()
    errors = np.array([square(compressors.random_k(update, zeros, k, rng)[1]) for _ in range(400)])
    expected = (1 - k / 2000) * square(update)
    assert abs(errors.mean() - expected) < 6 * errors.std() / math.sqrt(400)


def test_unbiased_random_k_has_the_right_mean():
    """z < 6 for each of 500 entries: a count of about 500 is close to normal, error rate 500 * 2e-9 times a few."""
    update, zeros, rng, rounds = normal(500), np.zeros(500, np.float32), generator(), 2000
    mean = np.zeros(500)
    for _ in range(rounds):
        mean += compressors.random_k(update, zeros, 125, rng, unbiased=True)[0].to_dense() / rounds
    deviation = np.abs(update) * math.sqrt((500 / 125 - 1) / rounds)
    assert (np.abs(mean - update) < 6 * deviation).all()


# ---- ternary ----


@settings(deadline=None, derandomize=True, max_examples=40)
@given(inputs())
def test_ternary_keeps_the_signs_and_the_mean_of_the_top_k(drawn):
    update, residual, k = drawn
    top, _ = compressors.top_k(update, residual, k)
    sent, left = compressors.ternary(update, residual, k)
    np.testing.assert_array_equal(sent.positions, top.positions)
    if k:
        magnitudes = np.abs(top.values.astype(np.float64))
        np.testing.assert_allclose(np.abs(sent.values), magnitudes.mean(), rtol=1e-6)
        signed = top.values != 0
        np.testing.assert_array_equal(np.signbit(sent.values[signed]), np.signbit(top.values[signed]))
        expected = square(update + residual) - magnitudes.sum() ** 2 / k
        assert square(left) == pytest.approx(expected, rel=1e-4, abs=1e-5 * square(update + residual))


def test_ternary_costs_a_sign_each():
    sent, _ = compressors.ternary(normal(20_000), np.zeros(20_000, np.float32), 20_000)
    assert len(codec.encode(sent, values="ternary")) <= 20_000 / 8 * 1.01 + 32
    assert codec.decode(codec.encode(sent, values="ternary")) == sent


# ---- qsgd ----


@pytest.mark.parametrize("levels", [1, 2, 15, 127])
def test_the_variance_of_qsgd_is_the_bound_of_its_paper(levels):
    """[QSGD, lemma 3.1]: min(n / s^2, sqrt(n) / s) for blocks of n."""
    assert compressors.qsgd_variance(levels) == pytest.approx(min(1024 / levels**2, 32 / levels))


def hoeffding(rounds, rate):
    """How far the mean of `rounds` numbers of [0, 1] leaves its expectation with probability below `rate`."""
    return math.sqrt(math.log(2 / rate) / (2 * rounds))


@pytest.mark.parametrize("levels", [1, 4, 15, 127])
def test_stochastic_rounding_is_unbiased(levels):
    """Each entry by Hoeffding at 1e-9 (2500 entries: 3e-6); their sums along 20 directions within 5.5 deviations."""
    values, rounds, rng = normal(2500), 300, generator()
    values[7] *= 30
    mean = np.zeros(values.size)
    for _ in range(rounds):
        mean += quantised(values, "qsgd", levels=levels, rng=rng).astype(np.float64) / rounds
    expected, variances = (np.array(moment) for moment in literal.qsgd_moments(values, levels))
    for start in range(0, values.size, VALUES_IN_A_BLOCK):
        block = slice(start, start + VALUES_IN_A_BLOCK)
        step = np.linalg.norm(values[block].astype(np.float64)) / levels
        assert np.abs(mean[block] - expected[block]).max() <= step * (hoeffding(rounds, 1e-9) + 1e-6)
    for seed in range(20):
        direction = np.random.default_rng(seed).choice([-1.0, 1.0], values.size)
        deviation = math.sqrt(variances.sum() / rounds)
        assert abs(direction @ (mean - expected)) <= 5.5 * deviation + 1e-4


@pytest.mark.parametrize("levels", [4, 15, 64])
def test_stochastic_rounding_has_the_variance_of_its_definition(levels):
    """The squared error of 200 rounds against the literal variance: far more than z = 6 of slack at one percent."""
    values, rng = normal(3000), generator()
    errors = [square(quantised(values, "qsgd", levels=levels, rng=rng) - values) for _ in range(200)]
    assert np.mean(errors) == pytest.approx(sum(literal.qsgd_moments(values, levels)[1]), rel=0.02)


@pytest.mark.parametrize("levels", [1, 4, 15, 127])
@pytest.mark.parametrize("size", [100, 1024, 3000])
def test_qsgd_contracts_on_average(size, levels):
    """E|x - C(x)|^2 <= (1 - 1/(1 + omega))|x|^2; the mean of 300 rounds may be z = 5 above its expectation."""
    update, zeros, rng = normal(size), np.zeros(size, np.float32), generator()
    errors = np.array([square(compressors.qsgd(update, zeros, levels, rng)[1]) for _ in range(300)])
    omega = compressors.qsgd_variance(levels)
    assert errors.mean() <= (1 - 1 / (1 + omega)) * square(update) + 5 * errors.std() / math.sqrt(300)


def test_qsgd_is_unbiased_up_to_its_known_factor():
    """C = Q / (1 + omega): the mean along the input is the input over 1 + omega; z < 6."""
    update, zeros, rng, rounds = normal(3 * 1024), np.zeros(3 * 1024, np.float32), generator(), 300
    sent = [compressors.qsgd(update, zeros, 15, rng)[0].to_dense().astype(np.float64) for _ in range(rounds)]
    slopes = np.array([dense @ update for dense in sent]) / square(update)
    expected = 1 / (1 + compressors.qsgd_variance(15))
    assert abs(slopes.mean() - expected) < 6 * slopes.std() / math.sqrt(rounds)


# ---- lossy values and the error memory ----


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_of_lossy_values_goes_into_the_residual(kind):
    update, residual = normal(5000, 1), normal(5000, 2)
    sent, left = compressors.top_k(update, residual, 1500)
    before = sent.values.copy(), left.copy()
    coarse, memory = compressors.with_values(sent, left, kind, levels=15, rng=generator())
    np.testing.assert_array_equal(coarse.positions, sent.positions)
    np.testing.assert_array_equal(coarse.values, quantised(sent.values, kind, levels=15, rng=generator()))
    np.testing.assert_allclose(coarse.to_dense() + memory, update + residual, atol=2e-6)
    np.testing.assert_array_equal(sent.values, before[0])
    np.testing.assert_array_equal(left, before[1])


@pytest.mark.parametrize("kind", KINDS)
def test_what_with_values_sends_is_what_the_receiver_decodes(kind):
    sent, left = compressors.top_k(normal(5000, 1), normal(5000, 2), 1500)
    coarse, _ = compressors.with_values(sent, left, kind, levels=15, rng=generator())
    received = codec.decode(codec.encode(sent, values=kind, levels=15, rng=generator()))
    assert received == coarse


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int8", "ternary", "two-bit"])
def test_coarse_values_survive_a_second_rounding(kind):
    """What was rounded once is on the grid of its kind: a ledger that encodes it again sends the same values."""
    values = normal(3000)
    once = quantised(values, kind)
    np.testing.assert_allclose(quantised(once, kind), once, rtol=1e-6)


# ---- bad arguments ----

ONES = np.ones(10, np.float32)
calls_with_k = [
    compressors.top_k,
    compressors.ternary,
    lambda u, r, k: compressors.random_k(u, r, k, generator()),
    lambda u, r, k: compressors.random_k(u, r, k, generator(), unbiased=True),
]


@pytest.mark.parametrize("call", calls_with_k)
@pytest.mark.parametrize("k", [-1, 11, 2.5])
def test_a_k_out_of_range_is_refused(call, k):
    with pytest.raises(InvalidInputError):
        call(ONES, ONES, k)


@pytest.mark.parametrize("levels", [0, -1, 128])
def test_levels_out_of_range_are_refused(levels):
    with pytest.raises(InvalidInputError):
        compressors.qsgd(ONES, ONES, levels, generator())
    with pytest.raises(InvalidInputError):
        quantised(ONES, "qsgd", levels=levels, rng=generator())


every_call = [
    compressors.none,
    *[functools.partial(lambda call, u, r: call(u, r, 2), call) for call in calls_with_k],
    lambda u, r: compressors.qsgd(u, r, 15, generator()),
]


@pytest.mark.parametrize("call", every_call, ids=["none", "top_k", "ternary", "random_k", "unbiased", "qsgd"])
@pytest.mark.parametrize(
    ("update", "residual"),
    [(ONES, ONES[:9]), (ONES, ONES[:1]), (ONES.astype(np.float64), ONES), (ONES.reshape(2, 5), ONES.reshape(2, 5))],
    ids=["lengths", "broadcast", "float64", "matrix"],
)
def test_vectors_that_do_not_fit_are_refused(call, update, residual):
    with pytest.raises(InvalidInputError):
        call(update, residual)


@pytest.mark.parametrize("call", [every_call[1], every_call[2], every_call[-1]])
def test_nan_is_refused_where_it_would_spoil_other_entries(call):
    bad = ONES.copy()
    bad[4] = np.nan
    with pytest.raises(InvalidInputError):
        call(bad, ONES)
    with pytest.raises(InvalidInputError):
        call(ONES, bad)


@pytest.mark.parametrize("call", [compressors.ternary, lambda u, r, k: compressors.qsgd(u, r, k, generator())])
def test_infinity_is_refused_where_it_would_leave_nan_behind(call):
    bad = ONES.copy()
    bad[4] = np.inf
    with pytest.raises(InvalidInputError):
        call(bad, ONES, 3)


def test_unknown_kinds_and_missing_generators_are_refused():
    sent, left = compressors.top_k(ONES, ONES, 3)
    with pytest.raises(InvalidInputError):
        compressors.with_values(sent, left, "float12")
    with pytest.raises(InvalidInputError):
        compressors.with_values(sent, left, "qsgd")
    with pytest.raises(InvalidInputError):
        compressors.with_values(sent, left[:9], "float16")
    with pytest.raises(InvalidInputError):
        quantised(ONES, "qsgd")


def test_lossy_values_beyond_float16_are_refused():
    with pytest.raises(InvalidInputError):
        quantised(np.array([1.0, 1e6], np.float32), "float16")


def test_an_infinite_value_is_sent_without_a_warning_of_numpy():
    """A run that diverges is told so in a sentence of its own; pytest makes errors of warnings."""
    sent = codec.SparseUpdate(size=4, positions=np.array([1, 2]), values=np.array([np.inf, 1.0], dtype=np.float32))
    coarse, left = compressors.with_values(sent, np.zeros(4, dtype=np.float32), "float16")
    assert coarse.values.tolist() == [np.inf, 1.0]
    np.testing.assert_array_equal(left, [0.0, np.nan, 0.0, 0.0])
