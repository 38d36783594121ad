"""Top-k with error feedback: exactly k, ties to the lowest position, and nothing lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.codec.select import top_k_of_clients, top_k_with_feedback
from fewjoules.errors import InvalidInputError
from tests.codec.strategies import bit_patterns, seeded
from tests.reference import codec as literal

EDGE_SIZES = [0, 1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 8192, 12_289]


def bits_of(values):
    return np.asarray(values, np.float32).view(np.uint32)


def fast_twin(update, residual, k):
    """The sketch of STYLE.md, for vectors too long for the literal twin."""
    total = update + residual
    kept = np.sort(np.argsort(-np.abs(total), kind="stable")[:k])
    left = total.copy()
    left[kept] = 0.0
    return kept, total[kept], left


def check(update, residual, k, twin=literal.top_k_with_feedback):
    before = update.copy(), residual.copy()
    sent, left = top_k_with_feedback(update, residual, k)
    positions, values, expected_left = twin(update, residual, k)
    assert sent.size == update.size
    assert sent.count == k
    np.testing.assert_array_equal(sent.positions, np.array(positions, np.int64))
    np.testing.assert_array_equal(bits_of(sent.values), bits_of(values))
    assert left.dtype == np.float32
    np.testing.assert_array_equal(left, np.array(expected_left, np.float32))
    np.testing.assert_array_equal(bits_of(update), bits_of(before[0]))
    np.testing.assert_array_equal(bits_of(residual), bits_of(before[1]))


@st.composite
def vectors(draw, size):
    rng = seeded(draw)
    which = draw(st.sampled_from(["normal", "ties", "zeros", "equal", "octaves", "bits", "sorted", "few"]))
    if which == "normal":
        return rng.normal(size=size).astype(np.float32)
    if which == "ties":
        return rng.integers(-3, 4, size).astype(np.float32)
    if which == "zeros":
        return np.where(rng.random(size) < 0.5, 0.0, -0.0).astype(np.float32)
    if which == "equal":
        return np.where(rng.random(size) < 0.5, 1.5, -1.5).astype(np.float32)
    if which == "octaves":
        return np.ldexp(rng.normal(size=size), rng.integers(-140, 120, size)).astype(np.float32)
    if which == "bits":
        patterns = bit_patterns(rng, size)
        return np.where(np.isinf(patterns), np.float32(3e38), patterns)
    if which == "sorted":
        return np.linspace(-1.0, 2.0, size, dtype=np.float32)
    vector = np.zeros(size, np.float32)
    vector[rng.integers(0, size, min(size, 5)) if size else slice(0)] = 7.0
    return vector


@st.composite
def selections(draw):
    size = draw(st.sampled_from(EDGE_SIZES) | st.integers(1, 700))
    update = draw(vectors(size))
    residual = draw(vectors(size) | st.just(np.zeros(size, np.float32)))
    k = draw(st.sampled_from([0, min(1, size), size // 2, max(0, size - 1), size]) | st.integers(0, size))
    return update / 2, residual / 2, k  # halves: their sum is finite


@settings(deadline=None, derandomize=True, max_examples=60)
@given(selections())
def test_the_literal_twin_sends_the_same(selection):
    check(*selection)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(selections())
def test_nothing_is_lost(selection):
    update, residual, k = selection
    sent, left = top_k_with_feedback(update, residual, k)
    np.testing.assert_array_equal(sent.to_dense() + left, update + residual)
    assert (left[sent.positions] == 0).all()


@settings(deadline=None, derandomize=True, max_examples=60)
@given(selections())
def test_the_residual_may_be_written_in_place(selection):
    update, residual, k = selection
    sent, left = top_k_with_feedback(update, residual, k)
    memory = residual.copy()
    sent_in_place, same = top_k_with_feedback(update, memory, k, out=memory)
    assert same is memory
    assert sent_in_place == sent
    np.testing.assert_array_equal(bits_of(memory), bits_of(left))


def test_the_residual_may_be_written_to_another_vector():
    update, residual, out = np.array([[1, 5, 2], [0, 0, 0], [9, 9, 9]], np.float32)
    sent, left = top_k_with_feedback(update, residual, 1, out=out)
    assert left is out
    np.testing.assert_array_equal(out, [1, 0, 2])
    np.testing.assert_array_equal(sent.positions, [1])


@pytest.mark.parametrize("size", EDGE_SIZES)
@pytest.mark.parametrize("part", [0.0, 0.001, 0.01, 0.3, 0.5, 0.99, 1.0])
def test_sizes_around_the_chunks_of_the_selection(size, part):
    rng = np.random.default_rng(size)
    check(rng.normal(size=size).astype(np.float32), rng.normal(size=size).astype(np.float32), int(part * size))


@pytest.mark.parametrize("k", [0, 1, 100, 10_000, 600_000, 2**20 + 77])
def test_a_long_vector(k):
    rng = np.random.default_rng(k)
    size = 2**20 + 77
    update = (rng.normal(size=size) * np.repeat([1e-3, 1.0, 30.0], -(-size // 3))[:size]).astype(np.float32)
    check(update, rng.normal(size=size).astype(np.float32), k, fast_twin)


@pytest.mark.parametrize("k", [1, 1000, 50_000])
def test_a_long_vector_of_ties(k):
    rng = np.random.default_rng(k)
    update = rng.integers(-2, 3, 300_001).astype(np.float32)
    check(update, np.zeros_like(update), k, fast_twin)


@pytest.mark.parametrize("stride", [64, 256, 1000, 1024, 4096])
@pytest.mark.parametrize("offset", [0, 1, 63])
def test_spikes_in_step_with_a_sample_do_not_deceive_the_threshold(stride, offset):
    """A sample that meets only the spikes, or none of them, guesses a threshold that is far off."""
    size = 200_000
    rng = np.random.default_rng(stride)
    for spike, calm in ((100.0, 1.0), (1e-6, 1.0)):
        update = (calm * (1 + rng.random(size))).astype(np.float32)
        update[offset::stride] = spike
        for k in (size // stride, size // 1000, size // 10):
            check(update, np.zeros_like(update), k, fast_twin)


@pytest.mark.parametrize("where", [slice(0, 2000), slice(-2000, None)])
def test_all_that_is_large_may_lie_at_one_end(where):
    update = np.random.default_rng(1).normal(size=300_000).astype(np.float32)
    update[where] *= 1e6
    for k in (1, 1999, 2000, 2001, 30_000):
        check(update, np.zeros_like(update), k, fast_twin)


def test_magnitudes_that_differ_in_their_last_bit_are_told_apart():
    bits = 0x3F800000 + np.random.default_rng(2).permutation(100_000).astype(np.uint32)
    check(bits.view(np.float32), np.zeros(100_000, np.float32), 777, fast_twin)


def test_denormal_magnitudes_are_told_apart():
    bits = np.random.default_rng(3).permutation(50_000).astype(np.uint32)
    check(bits.view(np.float32), np.zeros(50_000, np.float32), 123, fast_twin)


def test_the_sum_is_selected_not_the_update():
    sent, left = top_k_with_feedback(np.array([3, 1], np.float32), np.array([-3, 1], np.float32), 1)
    np.testing.assert_array_equal(sent.positions, [1])
    np.testing.assert_array_equal(left, [0, 0])


@pytest.mark.parametrize("size", [5, 100, 5000, 300_000])
@pytest.mark.parametrize("where", ["update", "residual"])
def test_nan_is_refused_by_its_position(size, where):
    inputs = {"update": np.ones(size, np.float32), "residual": np.ones(size, np.float32)}
    inputs[where][size - 2] = np.nan
    with pytest.raises(InvalidInputError, match=str(size - 2)):
        top_k_with_feedback(inputs["update"], inputs["residual"], 2)


def test_nan_from_opposite_infinities_is_refused():
    with pytest.raises(InvalidInputError):
        top_k_with_feedback(np.array([1, np.inf], np.float32), np.array([1, -np.inf], np.float32), 1)


def test_a_refused_vector_leaves_the_residual_alone_unless_it_was_to_be_overwritten():
    memory = np.ones(100, np.float32)
    update = np.full(100, 2.0, np.float32)
    update[50] = np.nan
    with pytest.raises(InvalidInputError):
        top_k_with_feedback(update, memory, 3)
    with pytest.raises(InvalidInputError):
        top_k_with_feedback(update, memory, 3, out=np.empty_like(memory))
    np.testing.assert_array_equal(memory, np.ones(100))


ONES = np.ones(10, np.float32)


@pytest.mark.parametrize(
    ("update", "residual", "k"),
    [
        (ONES, ONES, -1),
        (ONES, ONES, 11),
        (ONES, ONES[:9], 1),
        (ONES.astype(np.float64), ONES, 1),
        (ONES, ONES.astype(np.float64), 1),
        (ONES.reshape(2, 5), ONES.reshape(2, 5), 1),
        (ONES, ONES, 1.5),
    ],
)
def test_bad_arguments_are_refused(update, residual, k):
    with pytest.raises(InvalidInputError):
        top_k_with_feedback(update, residual, k)


@pytest.mark.parametrize("out", [np.ones(9, np.float32), np.ones(10), np.ones(20, np.float32)[::2]])
def test_an_unfit_out_is_refused_or_filled(out):
    try:
        _, left = top_k_with_feedback(ONES, ONES, 3, out=out)
    except InvalidInputError:
        return
    np.testing.assert_array_equal(out, [0, 0, 0, 2, 2, 2, 2, 2, 2, 2])
    assert left is out


def test_strided_vectors_are_refused_or_selected_like_their_copies():
    pair = np.random.default_rng(4).normal(size=(2, 2000)).astype(np.float32)
    try:
        sent, left = top_k_with_feedback(pair[0, ::2], pair[1, ::2], 50)
    except InvalidInputError:
        return
    expected, expected_left = top_k_with_feedback(pair[0, ::2].copy(), pair[1, ::2].copy(), 50)
    assert sent == expected
    np.testing.assert_array_equal(left, expected_left)


# ---- many clients ----


@settings(deadline=None, derandomize=True, max_examples=25)
@given(st.sampled_from(EDGE_SIZES[1:]), st.integers(0, 7), st.data())
def test_clients_together_send_what_each_sends_alone(size, clients, data):
    updates = np.array([data.draw(vectors(size)) / 2 for _ in range(clients)], np.float32).reshape(clients, size)
    residuals = np.array([data.draw(vectors(size)) / 2 for _ in range(clients)], np.float32).reshape(clients, size)
    counts = [data.draw(st.integers(0, size)) for _ in range(clients)]
    sent, left = top_k_of_clients(updates, residuals, counts)
    assert len(sent) == clients
    assert left.shape == (clients, size)
    for client, k in enumerate(counts):
        alone, alone_left = top_k_with_feedback(updates[client], residuals[client], k)
        assert sent[client] == alone
        np.testing.assert_array_equal(bits_of(left[client]), bits_of(alone_left))


def test_residuals_of_clients_may_be_written_in_place():
    rng = np.random.default_rng(6)
    updates, residuals = rng.normal(size=(2, 5, 1000)).astype(np.float32)
    sent, left = top_k_of_clients(updates, residuals, [0, 1, 10, 500, 1000])
    memory = residuals.copy()
    again, same = top_k_of_clients(updates, memory, [0, 1, 10, 500, 1000], out=memory)
    assert same is memory
    assert again == sent
    np.testing.assert_array_equal(memory, left)


@pytest.mark.parametrize("counts", [[1, 2], [1, 2, 3, 4], [1, 2, 11], [1, -1, 2]])
def test_bad_counts_of_clients_are_refused(counts):
    with pytest.raises(InvalidInputError):
        top_k_of_clients(np.ones((3, 10), np.float32), np.ones((3, 10), np.float32), counts)


def test_nan_of_one_client_is_refused():
    updates = np.ones((3, 100), np.float32)
    updates[1, 42] = np.nan
    with pytest.raises(InvalidInputError, match="42"):
        top_k_of_clients(updates, np.zeros_like(updates), [1, 1, 1])
