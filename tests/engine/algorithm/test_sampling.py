"""Mini-batches against a twin in whole numbers of Python, and for what a uniform draw must look like."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fewjoules.engine.algorithm.round import batch_sizes
from fewjoules.engine.algorithm.sampling import draw_batches

QUICK = settings(max_examples=40, deadline=None)
MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15

keys = st.integers(0, 2**63 - 1)
steps = st.integers(0, 10**7)


def mix(value):
    """The finaliser of SplitMix64."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def literal_batch(key, client, step, size, wanted):
    """The first ``wanted`` entries of a Fisher-Yates shuffle of 0, 1, ..., size - 1; all data stays in order."""
    order = list(range(size))
    if wanted == size:
        return order
    state = mix((mix((key + GOLDEN * (client + 1)) & MASK) + GOLDEN * (step + 1)) & MASK)
    for i in range(wanted):
        state = (state + GOLDEN) & MASK
        other = i + ((mix(state) >> 32) * (size - i) >> 32)
        order[i], order[other] = order[other], order[i]
    return order[:wanted]


def draw_one(key, client, size, step, wanted):
    numbers, _ = draw_batches(key, np.array([client]), np.array([size]), step, np.array([[wanted]]))
    return numbers[0, 0]


@st.composite
def draws(draw):
    """Key, clients, sizes, first step and batch sizes (steps, clients)."""
    clients = draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=5, unique=True))
    sizes = [draw(st.integers(1, 40)) for _ in clients]
    rows = draw(st.integers(1, 3))
    wanted = [[draw(st.integers(1, size)) for size in sizes] for _ in range(rows)]
    return draw(keys), np.array(clients), np.array(sizes), draw(steps), np.array(wanted)


def test_the_generator_is_splitmix64():
    """The first outputs for the seed 1234567, as published with the reference implementation."""
    states = [(1234567 + GOLDEN * i) & MASK for i in (1, 2, 3)]
    assert [mix(state) for state in states] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@QUICK
@given(draws())
def test_batches_are_those_of_the_literal_shuffle(given_draw):
    key, clients, sizes, first, wanted = given_draw
    numbers, weights = draw_batches(key, clients, sizes, first, wanted)
    assert numbers.shape == weights.shape == (*wanted.shape, wanted.max())
    for step, row in np.ndindex(wanted.shape):
        count = wanted[step, row]
        expected = literal_batch(key, int(clients[row]), first + step, int(sizes[row]), int(count))
        assert numbers[step, row, :count].tolist() == expected


@QUICK
@given(draws())
def test_samples_of_a_batch_are_distinct_and_the_clients_own(given_draw):
    key, clients, sizes, first, wanted = given_draw
    numbers, _ = draw_batches(key, clients, sizes, first, wanted)
    for step, row in np.ndindex(wanted.shape):
        batch = numbers[step, row, : wanted[step, row]]
        assert len(set(batch.tolist())) == wanted[step, row]
        assert numbers[step, row].min() >= 0
        assert numbers[step, row].max() < sizes[row]


@QUICK
@given(draws())
def test_weights_are_equal_within_the_batch_zero_beyond_it_and_sum_to_one(given_draw):
    key, clients, sizes, first, wanted = given_draw
    numbers, weights = draw_batches(key, clients, sizes, first, wanted)
    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights.sum(axis=2, dtype=np.float64), 1.0, rtol=1e-6)
    for step, row in np.ndindex(wanted.shape):
        count = wanted[step, row]
        assert np.all(weights[step, row, :count] == np.float32(1.0) / np.float32(count))
        assert not weights[step, row, count:].any()
        assert np.all(numbers[step, row, count:] == numbers[step, row, 0])


@QUICK
@given(draws(), st.randoms())
def test_a_draw_depends_on_key_client_and_step_alone(given_draw, random):
    """Asked for in another order, with other clients or one step at a time, a client's batch is the same."""
    key, clients, sizes, first, wanted = given_draw
    numbers, _ = draw_batches(key, clients, sizes, first, wanted)
    order = list(range(clients.size))
    random.shuffle(order)
    shuffled, _ = draw_batches(key, clients[order], sizes[order], first, wanted[:, order])
    assert np.array_equal(shuffled, numbers[:, order])
    for step, row in np.ndindex(wanted.shape):
        count = wanted[step, row]
        alone = draw_one(key, clients[row], sizes[row], first + step, count)
        assert np.array_equal(alone, numbers[step, row, :count])


@QUICK
@given(keys, st.integers(0, 100), st.integers(1, 50), steps)
def test_a_batch_as_large_as_the_data_is_all_of_it_in_order(key, client, size, step):
    assert draw_one(key, client, size, step, size).tolist() == list(range(size))


@QUICK
@given(keys, st.integers(2, 40), steps, st.data())
def test_a_smaller_batch_is_the_start_of_a_larger_one(key, size, step, data):
    """The shuffle does not look at how much of it is wanted."""
    large = data.draw(st.integers(1, size - 1))
    small = data.draw(st.integers(1, large))
    assert draw_one(key, 0, size, step, large)[:small].tolist() == draw_one(key, 0, size, step, small).tolist()


def test_other_keys_clients_and_steps_draw_other_batches():
    batches = {
        tuple(draw_one(key, client, 1000, step, 20).tolist())
        for key in range(5)
        for client in range(5)
        for step in range(5)
    }
    assert len(batches) == 125


@pytest.mark.parametrize(("size", "wanted"), [(10, 3), (7, 6), (97, 10)])
def test_every_sample_is_drawn_equally_often(size, wanted):
    """Chi-square of 20,000 draws with a fixed key; a batch has no repeats, which makes counts a little more even."""
    numbers, _ = draw_batches(12345, np.arange(20), np.full(20, size), 0, np.full((1000, 20), wanted))
    counts = np.bincount(numbers.ravel(), minlength=size)
    assert counts.size == size
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("place", [0, 1, 2])
def test_every_place_of_a_batch_is_uniform(place):
    numbers, _ = draw_batches(99, np.arange(20), np.full(20, 12), 5, np.full((1000, 20), 3))
    assert stats.chisquare(np.bincount(numbers[:, :, place].ravel(), minlength=12)).pvalue > 1e-4


def test_pairs_of_samples_come_together_equally_often():
    numbers, _ = draw_batches(4, np.arange(20), np.full(20, 6), 0, np.full((1000, 20), 2))
    pairs = np.sort(numbers.reshape(-1, 2), axis=1)
    counts = np.bincount(pairs[:, 0] * 6 + pairs[:, 1])
    assert np.count_nonzero(counts) == 15
    assert stats.chisquare(counts[counts > 0]).pvalue > 1e-4


def test_successive_steps_and_neighbouring_clients_are_independent():
    numbers, _ = draw_batches(8, np.arange(200), np.full(200, 5), 0, np.ones((200, 200), dtype=np.int64))
    first = numbers[:, :, 0]
    for before, after in ((first[:-1], first[1:]), (first[:, :-1], first[:, 1:])):
        table = np.bincount((before * 5 + after).ravel(), minlength=25)
        assert stats.chisquare(table).pvalue > 1e-4


# --- Batch sizes, line 4


@QUICK
@given(
    st.integers(0, 60),
    st.integers(1, 4),
    st.integers(1, 50),
    st.floats(1.0, 2.0),
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
)
def test_batches_grow_by_rho_a_step_up_to_the_clients_data(first, count, initial, growth, sizes):
    expected = [[min(int(growth**t * initial), size) for size in sizes] for t in range(first, first + count)]
    assert batch_sizes(first, count, initial, growth, np.array(sizes)).tolist() == expected


def test_batches_that_would_overflow_are_all_data():
    assert batch_sizes(10**7, 2, 3, 1.5, np.array([4, 9])).tolist() == [[4, 9], [4, 9]]


def test_no_batch_size_is_all_data_at_every_step():
    assert batch_sizes(5, 2, None, 1.0, np.array([4, 9])).tolist() == [[4, 9], [4, 9]]
