"""Top-k with error feedback in Triton gives what its twin on the processor gives, bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.codec import select
from fewjoules.errors import InvalidInputError
from tests.engine.late import Late
from tests.engine.updates import SIZES, VECTORS, bits_of, vectors

pytestmark = pytest.mark.gpu
topk = Late("fewjoules.engine.simulator.cuda.topk")


def on_gpu(array):
    return torch.from_numpy(array.copy()).cuda()


def assert_same(found, left, expected, expected_left):
    """Positions and values of all rows, one after the other, and what is left."""
    positions, values = found
    assert positions.dtype == torch.int64
    assert values.dtype == left.dtype == torch.float32
    assert {positions.device.type, values.device.type, left.device.type} == {"cuda"}
    np.testing.assert_array_equal(positions.cpu(), np.concatenate([one.positions for one in expected]))
    np.testing.assert_array_equal(bits_of(values.cpu()), bits_of(np.concatenate([one.values for one in expected])))
    np.testing.assert_array_equal(bits_of(left.cpu()), bits_of(expected_left))


def check(updates, residuals, counts):
    """Both twins on the same rows, with the residuals kept and then written in place."""
    expected = select.top_k_of_clients(updates, residuals, counts)
    given_updates, given_residuals = on_gpu(updates), on_gpu(residuals)
    left = torch.empty_like(given_residuals)
    assert_same(topk.top_k_rows(given_updates, given_residuals, counts, left), left, *expected)
    np.testing.assert_array_equal(bits_of(given_updates.cpu()), bits_of(updates))
    np.testing.assert_array_equal(bits_of(given_residuals.cpu()), bits_of(residuals))
    topk.select_rows(given_updates, given_residuals, counts, left, sent=given_updates)
    dense = np.stack([one.to_dense() for one in expected[0]])
    np.testing.assert_array_equal(bits_of(given_updates.cpu()), bits_of(dense))
    given_updates = on_gpu(updates)
    assert_same(topk.top_k_rows(given_updates, given_residuals, counts, given_residuals), given_residuals, *expected)


@pytest.mark.parametrize("kind", VECTORS)
def test_one_row_gives_what_its_twin_gives(kind):
    for size in SIZES:
        update, residual = vectors(kind, (1, size), 1), vectors(kind, (1, size), 2)
        for k in {0, 1, size // 10, size // 2, size}:
            check(update, residual, [k])


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 3000), st.sampled_from(VECTORS), st.integers(0, 2**32 - 1), st.data())
def test_any_row_gives_what_its_twin_gives(size, kind, seed, data):
    update, residual = vectors(kind, (1, size), seed), vectors(kind, (1, size), seed + 1)
    check(update, residual, [data.draw(st.integers(0, size))])


@pytest.mark.parametrize("k", [1, 1000, 200_000, 2**20 + 77])
@pytest.mark.parametrize("kind", ["normal", "ties"])
def test_a_long_row(k, kind):
    check(vectors(kind, (1, 2**20 + 77), 1), vectors(kind, (1, 2**20 + 77), 2), [k])


@pytest.mark.parametrize("stride", [64, 1000, 1024])
def test_spikes_in_step_with_a_sample_do_not_deceive_the_threshold(stride):
    update = (1 + np.random.default_rng(stride).random((1, 200_000))).astype(np.float32)
    update[:, ::stride] = 100.0
    for k in (200_000 // stride, 200, 20_000):
        check(update, np.zeros_like(update), [k])


@pytest.mark.parametrize("kind", VECTORS)
def test_rows_together_give_what_each_gives_alone(kind):
    size, counts = 3001, [0, 1, 30, 1500, 3001]
    check(vectors(kind, (5, size), 1), vectors(kind, (5, size), 2), counts)


def test_a_selection_that_is_recorded_gives_the_same_for_other_numbers():
    """From the second call with the same tensors on, a graph runs, which must look at what they hold by then."""
    size, counts = 5000, [10, 700]
    updates, residuals = (torch.zeros((2, size), device="cuda") for _ in range(2))
    expected_left = np.zeros((2, size), dtype=np.float32)
    for seed in range(4):
        new = vectors("normal", (2, size), seed)
        updates.copy_(torch.from_numpy(new))
        expected, expected_left = select.top_k_of_clients(new, expected_left, counts)
        found = topk.top_k_rows(updates, residuals, counts, residuals)
        assert_same(found, residuals, expected, expected_left)


def test_what_was_selected_outlives_the_next_selection():
    updates, residuals = on_gpu(vectors("normal", (1, 500), 1)), torch.zeros((1, 500), device="cuda")
    first = topk.top_k_rows(updates, residuals, [20], torch.empty_like(residuals))
    kept = [tensor.clone() for tensor in first]
    for _ in range(3):
        updates.neg_()
        topk.top_k_rows(updates, residuals, [20], torch.empty_like(residuals))
    assert all(torch.equal(one, other) for one, other in zip(first, kept, strict=True))


@pytest.mark.parametrize("spoil_residual", [False, True])
def test_nan_is_refused_with_its_row_and_place(spoil_residual):
    updates, residuals = torch.ones((3, 10), device="cuda"), torch.ones((3, 10), device="cuda")
    (residuals if spoil_residual else updates)[1, 4] = float("nan")
    with pytest.raises(InvalidInputError, match=r"NaN.*position 4 of row 1"):
        topk.top_k_rows(updates, residuals, [1, 1, 1], torch.empty_like(residuals))
    states = topk.select_rows(updates, residuals, [1, 1, 1], torch.empty_like(residuals))[2]
    assert topk.rows_with_nan(states) == [1]
