"""The simulator on a GPU against the one on the processor; skipped where there is no GPU."""

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

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CLIENTS, SHAPE = 5, (1, 8, 8)


def options(**given):
    settings = {
        "local_steps": 3,
        "sparsity": np.array([1.0, 5.0, 20.0, 50.0, 100.0]),
        "rounds": 10,
        "learning_rate": 0.05,
        "batch_size": 8,
    }
    return TrainingOptions(**settings | given)


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


def after(device, rounds, chosen, **given):
    made = simulator(device, chosen, **given)
    rows = [made.start_round()().rows for _ in range(rounds)]
    made.close()
    return made.state, np.concatenate(rows)


def computed(state):
    """What clients computed in the first round: w_1 minus the mean memory, whichever entries were sent."""
    return (state.weights - state.memories.mean(0)).cpu().numpy()


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize(
    "given",
    [{}, {"momentum": 0.5}, {"batch_growth": 1.3}, {"batch_size": None}],
    ids=["plain", "momentum", "growth", "all"],
)
def test_one_round_is_the_processors(given, chunk):
    here, there = (after(device, 1, options(**given), chunk=chunk) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(computed(there[0]), computed(here[0]), rtol=1e-4, atol=2e-6)
    for column in ("round", "device", "entries", "samples", "delivered", "compute_joules"):
        np.testing.assert_array_equal(there[1][column], here[1][column])


@pytest.mark.parametrize("architecture", ["resnet20", "resnet20-gn", "softmax"])
def test_other_models_train_alike(architecture):
    chosen = options(sparsity=np.ones(CLIENTS), local_steps=1)
    shape = (3, 8, 8)
    model = build(architecture, channels=3, height=8, width=8, classes=10, seed=1)
    here, there = (after(device, 1, chosen, model=model, shape=shape)[0] for device in ("cpu", "cuda"))
    np.testing.assert_allclose(there.weights.cpu(), here.weights, rtol=1e-3, atol=2e-5)
    np.testing.assert_allclose(there.buffers.cpu(), here.buffers, rtol=1e-4, atol=1e-5)


def test_lost_uploads_and_absent_clients_are_the_processors():
    chosen = options(sparsity=np.ones(CLIENTS), failures={1: {0}, 2: {2}}, participation=0.6)
    here, there = (after(device, 4, chosen)[0] for device in ("cpu", "cuda"))
    np.testing.assert_allclose(there.weights.cpu(), here.weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(there.memories.cpu(), here.memories, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("compressor", ["top-k", "none"])
def test_messages_with_every_entry_have_the_processors_sizes(compressor):
    chosen = options(sparsity=np.ones(CLIENTS), compressor=compressor, failures={1: {1}})
    here, there = (after(device, 2, chosen) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(there[0].memories.cpu(), here[0].memories, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(there[1]["payload_bytes"], here[1]["payload_bytes"], rtol=1e-4)


def test_runs_may_share_their_graphs():
    graphs = {}
    alone = after("cuda", 2, options(seed=3, learning_rate=0.1))[0]
    after("cuda", 2, options(sparsity=np.full(CLIENTS, 9.0)), graphs=graphs)
    recorded = dict(graphs)
    shared = after("cuda", 2, options(seed=3, learning_rate=0.1), graphs=graphs)[0]
    assert graphs == recorded
    assert len(graphs) == 1
    assert torch.equal(alone.weights, shared.weights)


@pytest.mark.parametrize("compressor", ["random-k", "ternary", "qsgd", "none"])
def test_the_other_compressors_work(compressor):
    state, rows = after("cuda", 2, options(compressor=compressor))
    assert torch.isfinite(state.weights).all()
    assert np.all(rows["payload_bytes"] > 0)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_a_seed_gives_the_same_bits(precision, compiled):
    chosen = options(precision=precision)
    first, second = (after("cuda", 3, chosen, compiled=compiled) for _ in range(2))
    assert torch.equal(first[0].weights, second[0].weights)
    assert torch.equal(first[0].memories, second[0].memories)
    np.testing.assert_array_equal(first[1], second[1])


@pytest.mark.parametrize("architecture", ["lenet5", "resnet20", "resnet20-gn"])
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_seed_gives_the_same_bits_for_every_model(architecture, precision):
    model = build(architecture, channels=3, height=32, width=32, classes=10, seed=1)
    chosen = options(precision=precision)
    first, second = (after("cuda", 5, chosen, model=model, compiled=True, shape=(3, 32, 32))[0] for _ in range(2))
    assert torch.equal(first.weights, second.weights)
    assert torch.equal(first.buffers, second.buffers)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_coarser_arithmetic_stays_near(precision):
    exact, coarse = (after("cuda", 1, options(precision=name))[0] for name in ("float32", precision))
    change = np.abs(computed(exact) - computed(coarse)).max() / np.abs(computed(exact)).max()
    assert change < 0.02


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
    first, second = (after("cuda", 2, options(), model=model)[0] for _ in range(2))
    assert torch.equal(first.weights, second.weights)
