"""The mean of many sparse updates: what the dense mean in float64 gives, without a dense vector for each."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules import codec
from fewjoules.codec.aggregate import add_updates
from fewjoules.errors import InvalidInputError


def random_update(rng, size, count):
    positions = np.sort(rng.choice(size, count, replace=False))
    return codec.SparseUpdate(size=size, positions=positions, values=rng.normal(size=count).astype(np.float32))


def dense_mean(updates, weights=None):
    dense = np.array([update.to_dense().astype(np.float64) for update in updates])
    return np.average(dense, axis=0, weights=weights)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 400), st.integers(1, 9), st.integers(0, 2**32 - 1), st.booleans())
def test_the_mean_is_the_dense_mean(size, clients, seed, weighted):
    rng = np.random.default_rng(seed)
    updates = [random_update(rng, size, int(rng.integers(0, size + 1))) for _ in range(clients)]
    weights = rng.random(clients) + 0.01 if weighted else None
    mean = codec.mean_of_updates(updates, weights=weights)
    assert mean.dtype == np.float32
    assert mean.shape == (size,)
    np.testing.assert_allclose(mean, dense_mean(updates, weights), rtol=1e-5, atol=1e-6)


def test_many_clients_of_a_long_vector_with_very_different_counts():
    rng = np.random.default_rng(1)
    updates = [random_update(rng, 300_000, count) for count in (0, 1, 10, 1000, 30_000, 300_000)] * 3
    np.testing.assert_allclose(codec.mean_of_updates(updates), dense_mean(updates), rtol=1e-5, atol=1e-6)


def test_equal_weights_are_no_weights_whatever_their_sum():
    rng = np.random.default_rng(2)
    updates = [random_update(rng, 100, 40) for _ in range(8)]
    plain = codec.mean_of_updates(updates)
    for weight in (1.0, 7.5, 1e-8, 1e8):
        np.testing.assert_allclose(codec.mean_of_updates(updates, weights=[weight] * 8), plain, rtol=1e-6, atol=1e-8)


def test_a_client_of_weight_zero_does_not_count():
    rng = np.random.default_rng(3)
    updates = [random_update(rng, 50, 20) for _ in range(3)]
    mean = codec.mean_of_updates(updates, weights=[2.0, 0.0, 1.0])
    np.testing.assert_allclose(mean, dense_mean([updates[0], updates[2]], [2.0, 1.0]), rtol=1e-6)


def test_empty_updates_count_as_zeros():
    nothing = codec.SparseUpdate(size=4, positions=np.zeros(0, np.int64), values=np.zeros(0, np.float32))
    one = codec.SparseUpdate(size=4, positions=np.array([2]), values=np.array([6.0], np.float32))
    np.testing.assert_array_equal(codec.mean_of_updates([nothing, one, nothing]), [0, 0, 2, 0])
    np.testing.assert_array_equal(codec.mean_of_updates([nothing, nothing]), np.zeros(4))


def test_positions_that_no_client_sent_are_exactly_zero():
    rng = np.random.default_rng(4)
    updates = [random_update(rng, 1000, 30) for _ in range(5)]
    silent = np.setdiff1d(np.arange(1000), np.concatenate([update.positions for update in updates]))
    np.testing.assert_array_equal(codec.mean_of_updates(updates)[silent], np.zeros(silent.size))


def test_the_mean_does_not_depend_on_how_often_it_is_computed():
    rng = np.random.default_rng(5)
    updates = [random_update(rng, 200_000, 20_000) for _ in range(20)]
    first = codec.mean_of_updates(updates)
    for _ in range(5):
        np.testing.assert_array_equal(codec.mean_of_updates(updates), first)


def test_no_dense_vector_is_built_for_each_client():
    rng = np.random.default_rng(6)
    size = 500_000
    updates = [random_update(rng, size, 50) for _ in range(100)]
    codec.mean_of_updates(updates)
    tracemalloc.start()
    codec.mean_of_updates(updates)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 8 * 4 * size  # a few dense vectors, not a hundred


def test_vectors_of_different_sizes_are_refused():
    rng = np.random.default_rng(7)
    with pytest.raises(InvalidInputError):
        codec.mean_of_updates([random_update(rng, 100, 5), random_update(rng, 101, 5)])


def test_the_mean_of_nothing_is_refused():
    with pytest.raises(InvalidInputError):
        codec.mean_of_updates([])


@pytest.mark.parametrize("weights", [[1.0], [1.0, 2.0, 3.0], [1.0, -1.0], [0.0, 0.0], [1.0, np.nan], [np.inf, 1.0]])
def test_weights_that_make_no_mean_are_refused(weights):
    rng = np.random.default_rng(8)
    with pytest.raises(InvalidInputError):
        codec.mean_of_updates([random_update(rng, 10, 5) for _ in range(2)], weights=weights)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.lists(st.integers(0, 9), max_size=3))
def test_sums_taken_up_part_by_part_are_the_mean_to_the_bit(seed, count, cuts):
    rng = np.random.default_rng(seed)
    updates = [random_update(rng, 300, int(rng.integers(0, 301))) for _ in range(count)]
    weights = rng.random(count) + 0.1
    shares = weights / weights.sum()
    sums = np.zeros(300)
    edges = [0, *sorted(min(cut, count) for cut in cuts), count]
    for first, last in itertools.pairwise(edges):
        for start in range(0, 300, 140):
            add_updates(sums[start : start + 140], updates[first:last], shares[first:last], start)
    np.testing.assert_array_equal(sums.astype(np.float32), codec.mean_of_updates(updates, weights=weights))
