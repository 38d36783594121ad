"""The simulator on a GPU against the one on the processor."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.models.networks import build
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.physics.fleet import Fleet
from tests.engine.simulators import residuals

pytestmark = pytest.mark.gpu
CLIENTS, SHAPE = 5, (1, 8, 8)


def options(**given):
    settings = {
        "local_steps": 3,
        "sparsity": np.array([1.0, 5.0, 20.0, 50.0, 100.0]),
        "rounds": 10,
        "learning_rate": 0.05,
        "batch_size": 8,
    }
    return TrainingOptions.of(**settings | given)


def simulator(device, chosen, model=None, chunk=None, compiled=False, shape=SHAPE, graphs=None):
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.standard_normal((100, *shape), dtype=np.float32)).to(device)
    targets = torch.from_numpy(rng.integers(0, 10, 100)).to(device)
    parts = np.split(np.arange(100), [10, 30, 60, 80])
    model = model or build("cnn", channels=shape[0], height=shape[1], width=shape[2], classes=10, seed=1)
    fleet = Fleet(
        joules_per_bit=1e-7, joules_per_step=np.full(CLIENTS, 0.01), seconds_per_bit=1e-6, seconds_per_step=0.1
    )
    federation = Federation(Samples(inputs, targets), parts)
    return Simulator(
        model, federation, chosen, loss=cross_entropy, fleet=fleet, chunk=chunk, compiled=compiled, graphs=graphs
    )


@dataclass(frozen=True)
class After:
    """What is there after some rounds, on the host: weights, buffers, residuals of all clients, and all ledger rows."""

    weights: np.ndarray
    buffers: np.ndarray
    residuals: np.ndarray
    rows: np.ndarray

    @property
    def computed(self):
        """What clients computed in the first round: w_1 minus the mean residual, whichever entries were sent."""
        return self.weights - self.residuals.mean(axis=0)


def after(device, rounds, chosen, **given):
    made = simulator(device, chosen, **given)
    rows = [made.start_round()().rows for _ in range(rounds)]
    made.close()
    weights, buffers = (tensor.cpu().numpy() for tensor in (made.state.weights, made.state.buffers))
    return After(weights, buffers, residuals(made), np.concatenate(rows))


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize(
    "given",
    [{}, {"momentum": 0.5}, {"batch_growth": 1.3}, {"batch_size": None}],
    ids=["plain", "momentum", "growth", "all"],
)
def test_one_round_is_the_processors(given, chunk):
    here, there = (after(device, 1, options(**given), chunk=chunk) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(there.computed, here.computed, rtol=1e-4, atol=2e-6)
    for column in ("round", "device", "entries", "samples", "delivered", "compute_joules"):
        np.testing.assert_array_equal(there.rows[column], here.rows[column])


@pytest.mark.parametrize("architecture", ["resnet20", "resnet20-gn", "softmax"])
def test_other_models_train_alike(architecture):
    chosen = options(sparsity=np.ones(CLIENTS), local_steps=1)
    shape = (3, 8, 8)
    model = build(architecture, channels=3, height=8, width=8, classes=10, seed=1)
    here, there = (after(device, 1, chosen, model=model, shape=shape) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(there.weights, here.weights, rtol=1e-3, atol=2e-5)
    np.testing.assert_allclose(there.buffers, here.buffers, rtol=1e-4, atol=1e-5)


def test_lost_uploads_and_absent_clients_are_the_processors():
    chosen = options(sparsity=np.ones(CLIENTS), failures={1: {0}, 2: {2}}, participation=0.6)
    here, there = (after(device, 4, chosen) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(there.weights, here.weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(there.residuals, here.residuals, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("compressor", ["top-k", "none"])
def test_messages_with_every_entry_have_the_processors_sizes(compressor):
    chosen = options(sparsity=np.ones(CLIENTS), compressor=compressor, failures={1: {1}})
    here, there = (after(device, 2, chosen) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(there.residuals, here.residuals, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(there.rows["payload_bytes"], here.rows["payload_bytes"], rtol=1e-4)


def test_runs_may_share_their_graphs():
    graphs = {}
    alone = after("cuda", 2, options(seed=3, learning_rate=0.1))
    after("cuda", 2, options(sparsity=np.full(CLIENTS, 9.0)), graphs=graphs)
    recorded = dict(graphs)
    shared = after("cuda", 2, options(seed=3, learning_rate=0.1), graphs=graphs)
    assert graphs == recorded
    assert len(graphs) == 1
    assert np.array_equal(alone.weights, shared.weights)


@pytest.mark.parametrize("compressor", ["random-k", "ternary", "qsgd", "none"])
def test_the_other_compressors_work(compressor):
    there = after("cuda", 2, options(compressor=compressor))
    assert np.isfinite(there.weights).all()
    assert np.all(there.rows["payload_bytes"] > 0)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_a_seed_gives_the_same_bits(precision, compiled):
    chosen = options(precision=precision)
    first, second = (after("cuda", 3, chosen, compiled=compiled) for _ in range(2))
    assert np.array_equal(first.weights, second.weights)
    assert np.array_equal(first.residuals, second.residuals)
    np.testing.assert_array_equal(first.rows, second.rows)


@pytest.mark.parametrize("architecture", ["lenet5", "resnet20", "resnet20-gn"])
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_seed_gives_the_same_bits_for_every_model(architecture, precision):
    model = build(architecture, channels=3, height=32, width=32, classes=10, seed=1)
    chosen = options(precision=precision)
    first, second = (after("cuda", 5, chosen, model=model, compiled=True, shape=(3, 32, 32)) for _ in range(2))
    assert np.array_equal(first.weights, second.weights)
    assert np.array_equal(first.buffers, second.buffers)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_coarser_arithmetic_stays_near(precision):
    exact, coarse = (after("cuda", 1, options(precision=name)).computed for name in ("float32", precision))
    assert np.abs(exact - coarse).max() / np.abs(exact).max() < 0.02


class Dropping(nn.Module):
    """Draws random numbers and cannot be vectorised because it looks at values."""

    def __init__(self, looks: bool) -> None:
        super().__init__()
        self.linear, self.drop, self.looks = nn.Linear(64, 10), nn.Dropout(0.5), looks

    def forward(self, images):
        if self.looks and images.sum().item() > 1e9:
            return self.linear(images.flatten(1))
        return self.linear(self.drop(images.flatten(1)))


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.filterwarnings("ignore::fewjoules.errors.FewJoulesWarning")
def test_models_that_draw_numbers_or_resist_vmap_repeat(looks):
    model = Dropping(looks)
    first, second = (after("cuda", 2, options(), model=model) for _ in range(2))
    assert np.array_equal(first.weights, second.weights)
