"""QSGD of a stack of clients gives what its twin in the codec gives for each of them, bit for bit."""

import numpy as np
import pytest
import torch

from fewjoules.codec import compressors
from fewjoules.codec import values as val
from fewjoules.engine.simulator.cuda.qsgd import qsgd_of_clients
from fewjoules.errors import InvalidInputError
from tests.engine.updates import SIZES, VECTORS, bits_of, vectors

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
on_every_device = pytest.mark.parametrize("device", DEVICES)


def draws(seed=3):
    return np.random.default_rng(seed)


def quantised(totals, levels, device, seeds):
    """Values that the server sees, and signed levels, of each row by the draws of its seed."""
    chances = np.stack([draws(seed).random(totals.shape[1]) for seed in seeds])
    tensors = (torch.from_numpy(array).to(device) for array in (totals, chances))
    totals_there, chances_there = tensors
    return [tensor.cpu().numpy() for tensor in qsgd_of_clients(totals_there, levels, chances_there)]


@on_every_device
@pytest.mark.parametrize("kind", VECTORS)
@pytest.mark.parametrize("levels", [1, 15, 127])
def test_values_are_those_of_the_codec(device, kind, levels):
    for size in SIZES:
        update, residual = vectors(kind, size, 1), vectors(kind, size, 2)
        sent, left = compressors.qsgd(update, residual, levels, draws())
        seen, _ = quantised((update + residual)[None], levels, device, [3])
        np.testing.assert_array_equal(bits_of(seen[0]), bits_of(sent.values))
        np.testing.assert_array_equal(bits_of(update + residual - seen[0]), bits_of(left))


@on_every_device
@pytest.mark.parametrize("kind", VECTORS)
def test_levels_are_those_that_a_message_holds(device, kind):
    total = vectors(kind, 3000, 1)
    _, signed = quantised(total[None], 15, device, [3])
    symbols = val.kind_named("qsgd").split(total, 15, draws()).symbols
    np.testing.assert_array_equal(signed[0] + val.ZERO_SYMBOL, symbols)


@on_every_device
@pytest.mark.parametrize("kind", VECTORS)
def test_clients_together_give_what_each_gives_alone(device, kind):
    totals, seeds = vectors(kind, (4, 3001), 1), [3, 4, 5, 6]
    together, levels = quantised(totals, 15, device, seeds)
    for row, seed in enumerate(seeds):
        alone, own = quantised(totals[row : row + 1], 15, device, [seed])
        np.testing.assert_array_equal(bits_of(together[row]), bits_of(alone[0]))
        np.testing.assert_array_equal(levels[row], own[0])


@on_every_device
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_shows_it_and_spoils_no_other(device, bad):
    totals = vectors("normal", (2, 100))
    alone, _ = quantised(totals[1:], 15, device, [4])
    totals[0, 7] = bad
    seen, _ = quantised(totals, 15, device, [3, 4])
    assert not np.isfinite(seen[0]).all()
    np.testing.assert_array_equal(bits_of(seen[1]), bits_of(alone[0]))


@on_every_device
@pytest.mark.parametrize("levels", [0, -1, 128, 1.5])
def test_levels_that_no_message_has_are_refused(device, levels):
    ones = torch.ones((1, 10), device=device)
    with pytest.raises(InvalidInputError, match=r"levels.*from 1 to 127"):
        qsgd_of_clients(ones, levels, ones.double())
