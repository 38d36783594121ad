"""Every sample goes to exactly one client, and no client is left without."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fewjoules.datasets import partition
from fewjoules.errors import InvalidInputError

LABELS = hnp.arrays(np.int64, st.integers(1, 120), elements=st.integers(0, 6))
CLIENTS = st.integers(1, 40)
SEEDS = st.integers(0, 2**32 - 1)
CONCENTRATIONS = st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 30.0, 1e9])
BALANCED = np.repeat(np.arange(10), 500)


def rng(seed=0):
    return np.random.default_rng(seed)


def assert_partition(parts, samples, clients):
    assert len(parts) == clients
    assert all(part.dtype == np.int64 and part.size > 0 and np.all(np.diff(part) > 0) for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(samples))


def spread(parts):
    sizes = [part.size for part in parts]
    return max(sizes) - min(sizes)


def largest_shares(parts, labels):
    """The share of each client's most frequent label."""
    return np.array([np.bincount(labels[part]).max() / part.size for part in parts])


@given(LABELS, CLIENTS, SEEDS)
def test_iid_deals_every_sample_in_equal_sizes(labels, clients, seed):
    assume(clients <= labels.size)
    parts = partition.iid(labels, clients, rng(seed))
    assert_partition(parts, labels.size, clients)
    assert spread(parts) <= 1


@given(LABELS, CLIENTS, CONCENTRATIONS, SEEDS)
def test_dirichlet_deals_every_sample_in_equal_sizes(labels, clients, concentration, seed):
    assume(clients <= labels.size)
    parts = partition.dirichlet(labels, clients, concentration, rng(seed))
    assert_partition(parts, labels.size, clients)
    assert spread(parts) <= 1


@given(LABELS, CLIENTS, st.integers(1, 4), SEEDS)
def test_shards_deal_every_sample_and_few_labels(labels, clients, shards_per_client, seed):
    assume(clients * shards_per_client <= labels.size)
    parts = partition.shards(labels, clients, shards_per_client, rng(seed))
    assert_partition(parts, labels.size, clients)
    assert spread(parts) <= shards_per_client


@given(LABELS, CLIENTS, SEEDS)
def test_writers_are_never_split(writer_ids, clients, seed):
    counts = np.unique(writer_ids, return_counts=True)[1]
    assume(clients <= counts.size)
    parts = partition.writers(writer_ids, clients, rng(seed))
    assert_partition(parts, writer_ids.size, clients)
    assert sum(np.unique(writer_ids[part]).size for part in parts) == counts.size
    assert spread(parts) <= counts.max()  # the last writer given to the fullest client came when it had the fewest


def test_a_large_concentration_is_near_the_mix_of_all_labels():
    parts = partition.dirichlet(BALANCED, 10, 1e6, rng())
    assert largest_shares(parts, BALANCED).max() < 0.12


def test_a_large_concentration_keeps_the_mix_of_uneven_labels():
    labels = np.repeat([0, 1], [4000, 1000])
    shares = [np.mean(labels[part] == 0) for part in partition.dirichlet(labels, 10, 1e6, rng())]
    np.testing.assert_allclose(shares, 0.8, atol=0.02)


def test_a_small_concentration_is_near_a_single_label():
    parts = partition.dirichlet(BALANCED, 50, 1e-3, rng())
    assert np.median(largest_shares(parts, BALANCED)) == 1.0
    assert largest_shares(parts, BALANCED).mean() > 0.95


@pytest.mark.parametrize("concentration", [1e-6, 1e-5, 1e-3, 0.05, 0.1])
@pytest.mark.parametrize("labels", [BALANCED, np.append(np.zeros(4000, dtype=np.int64), np.arange(1, 10))])
def test_proportions_too_small_for_a_float_still_deal_every_sample(labels, concentration):
    assert_partition(partition.dirichlet(labels, 400, concentration, rng()), labels.size, 400)


def test_more_concentration_means_more_even_labels():
    concentrations = [0.01, 0.1, 1.0, 10.0, 100.0]
    means = [largest_shares(partition.dirichlet(BALANCED, 50, c, rng()), BALANCED).mean() for c in concentrations]
    assert means == sorted(means, reverse=True)


def test_what_is_left_over_does_not_always_go_to_the_last_client():
    labels = BALANCED[::10]
    shares = [largest_shares(partition.dirichlet(labels, 10, 100.0, rng(seed)), labels) for seed in range(40)]
    assert np.ptp(np.mean(shares, axis=0)) < 0.03


def test_two_shards_of_balanced_labels_hold_at_most_two_labels():
    parts = partition.shards(BALANCED, 10, 2, rng())
    assert max(np.unique(BALANCED[part]).size for part in parts) <= 2
    assert {part.size for part in parts} == {500}


def test_writers_of_equal_length_are_dealt_evenly():
    assert spread(partition.writers(np.repeat(np.arange(40), 7), 8, rng())) == 0


def test_long_and_short_writers_even_out():
    ids = np.repeat(np.arange(539), rng(1).integers(19, 132, 539))
    parts = partition.writers(ids, 12, rng())
    assert spread(parts) < 131


DEALERS = {
    "iid": lambda clients, seed: partition.iid(BALANCED, clients, rng(seed)),
    "dirichlet": lambda clients, seed: partition.dirichlet(BALANCED, clients, 0.5, rng(seed)),
    "shards": lambda clients, seed: partition.shards(BALANCED, clients, 2, rng(seed)),
    "writers": lambda clients, seed: partition.writers(BALANCED, clients, rng(seed)),
}


@pytest.mark.parametrize("deal", DEALERS.values(), ids=DEALERS)
def test_the_generator_decides(deal):
    first, again, other = deal(5, 0), deal(5, 0), deal(5, 1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


REFUSED = {
    "iid": (lambda: partition.iid(np.zeros(3, dtype=np.int64), 4, rng()), r"samples as clients \(4\), got 3"),
    "dirichlet": (lambda: partition.dirichlet(np.zeros(3, dtype=np.int64), 4, 1.0, rng()), r"clients \(4\), got 3"),
    "shards": (lambda: partition.shards(np.zeros(3, dtype=np.int64), 2, 2, rng()), r"samples as shards \(4\), got 3"),
    "writers": (lambda: partition.writers(np.array([5, 5, 9]), 3, rng()), r"writers as clients \(3\), got 2"),
    "no client": (lambda: partition.iid(BALANCED, 0, rng()), "the number of clients must be a whole number from 1"),
    "half a shard": (lambda: partition.shards(BALANCED, 2, 0, rng()), "shards_per_client must be"),
    "concentration 0": (lambda: partition.dirichlet(BALANCED, 2, 0.0, rng()), "concentration must be .* got 0.0"),
    "concentration nan": (lambda: partition.dirichlet(BALANCED, 2, float("nan"), rng()), "concentration must be"),
    "floats": (lambda: partition.iid(np.zeros(9), 2, rng()), "labels must be .* integers, got float64"),
    "matrix": (
        lambda: partition.writers(np.zeros((3, 3), dtype=int), 2, rng()),
        r"writer_ids must be .* shape \(3, 3\)",
    ),
}


@pytest.mark.parametrize(("deal", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_dealt_is_refused_with_numbers(deal, message):
    with pytest.raises(InvalidInputError, match=message):
        deal()
