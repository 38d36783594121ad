"""Sizes of the messages of a chunk, some from the GPU and some from the host, for any neighbours among them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.codec.sizes import float32_sizes
from fewjoules.engine.simulator.cuda import row_sizes
from fewjoules.engine.simulator.cuda.row_sizes import RowSizer
from fewjoules.engine.simulator.cuda.sizes import sizable

SIZE = 6000
COUNTS = st.sampled_from([1, 60, 2047, 2048, 2500, 3000, 3001, SIZE])
on_every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


class Here:
    """An event that has happened."""

    def synchronize(self):
        pass


@pytest.fixture
def transfers(monkeypatch, device):
    """On the processor nothing has to be waited for."""
    if device == "cpu":
        monkeypatch.setattr(row_sizes, "to_host", lambda *tensors: ([tensor.clone() for tensor in tensors], Here()))


def messages(kept, seed):
    rng = np.random.default_rng(seed)
    positions = np.concatenate([np.sort(rng.choice(SIZE, k, replace=False)) for k in kept])
    return positions, rng.standard_normal(positions.size, dtype=np.float32)


def check(sizer, kept, seed, device):
    """Every span of neighbours gets the host's sizes: those sized by the host to the byte."""
    positions, values = messages(kept, seed)
    sizes = sizer.sizes(torch.from_numpy(positions).to(device), torch.from_numpy(values).to(device))
    expected = float32_sizes(SIZE, positions, values, kept)
    by_host = np.array([not sizable(SIZE, int(k)) for k in kept])
    for start in range(kept.size):
        for stop in range(start + 1, kept.size + 1):
            span = np.arange(start, stop)
            found = sizes(span)
            np.testing.assert_allclose(found, expected[span], rtol=1e-5, atol=2)
            np.testing.assert_array_equal(found[by_host[span]], expected[span][by_host[span]])


@on_every_device
@pytest.mark.parametrize(
    "kept",
    [[2048], [60], [2048, 3000, 2500], [1, 60, 6000], [60, 2048, 60, 2500, 6000, 3000, 1], [2048, 60, 60, 2048]],
    ids=str,
)
def test_sizes_are_those_of_the_host_for_any_neighbours(transfers, device, kept):
    kept = np.array(kept)
    sizer = RowSizer(kept, SIZE, torch.device(device))
    for seed in range(4):  # on a GPU the third call records a graph, and the fourth replays it
        check(sizer, kept, seed, device)


@settings(max_examples=20, deadline=None)
@given(st.lists(COUNTS, min_size=1, max_size=6), st.integers(0, 2**32))
def test_any_mixture_of_messages_is_sized(kept, seed):
    kept = np.array(kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_sizes, "to_host", lambda *tensors: ([tensor.clone() for tensor in tensors], Here()))
        check(RowSizer(kept, SIZE, torch.device("cpu")), kept, seed, "cpu")


@pytest.mark.parametrize(("kept", "some"), [([2048, 3000], False), ([2048, 60], True), ([60], True), ([6000], True)])
def test_the_host_is_needed_for_short_and_dense_messages_alone(kept, some):
    assert RowSizer(np.array(kept), SIZE, torch.device("cpu")).needs_host == some
