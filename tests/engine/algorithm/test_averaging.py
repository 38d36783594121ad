"""The mean of recent models: what it is, and that training, messages and joules do not depend on it."""

import math
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fewjoules as fj
from fewjoules.engine.algorithm.server import _towards, mean_buffers
from fewjoules.runs.checkpoint import exported_tensors
from fewjoules.runs.files import CHECKPOINT
from tests.reference.training import TwoLayers

ROUNDS = 6
FLEET = fj.Fleet(joules_per_bit=[1e-7] * 3, joules_per_step=0.01)


class Normalised(nn.Module):
    """A small network whose state has buffers."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


def samples(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((count, 2), dtype=np.float32), rng.integers(0, 3, count)


def train(network=None, rounds=ROUNDS, **options):
    torch.manual_seed(0)
    model = TwoLayers(2, hidden=3, classes=3).module() if network is None else network()
    given = {"local_steps": 2, "sparsity": [1.0, 2.0, 4.0], "learning_rate": 0.3, "batch_size": 3, "fleet": FLEET}
    clients = [samples(count, seed) for seed, count in enumerate((5, 4, 7))]
    return fj.train(model, clients=clients, test=samples(20, 9), rounds=rounds, **given | options)


def state_of(run):
    """Every float in the state of the model, in float64."""
    tensors = run.model.state_dict().values()
    return torch.cat([one.flatten().double() for one in tensors if one.is_floating_point()]).numpy()


@pytest.mark.parametrize("network", [None, Normalised], ids=["plain", "buffers"])
@pytest.mark.parametrize("eta", [0, 1, 3, 19])
def test_the_mean_weighs_models_by_binomial_coefficients(network, eta):
    """The closed form of [SHAMIR13]: C(t + eta - 1, eta) for the model after round t, eta = 1 / averaging - 1."""
    models = [state_of(train(network, rounds=1 + t)) for t in range(ROUNDS)]
    weighed = sum(comb(t + eta, eta) * model for t, model in enumerate(models))
    expected = weighed / comb(ROUNDS + eta, eta + 1)
    found = state_of(train(network, averaging=1.0 / (1 + eta)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    assert np.abs(found - models[-1]).max() > 1e-4


def test_training_does_not_depend_on_the_mean():
    plain, averaged = train(), train(averaging=0.3)
    assert plain.ledger.tobytes() == averaged.ledger.tobytes()
    np.testing.assert_array_equal(plain.metrics["train_loss"], averaged.metrics["train_loss"])


def test_the_model_that_is_evaluated_is_the_one_handed_out():
    run = train(averaging=0.3)
    inputs, targets = samples(20, 9)
    with torch.no_grad():
        loss = nn.functional.cross_entropy(run.model(torch.from_numpy(inputs)), torch.from_numpy(targets))
    assert run.metrics["test_loss"][-1] == pytest.approx(float(loss), rel=1e-5)
    assert run.metrics["test_loss"][-1] != train().metrics["test_loss"][-1]


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "all", True])
def test_a_part_of_the_rounds_is_between_none_and_all(value):
    with pytest.raises(fj.errors.InvalidInputError, match="averaging"):
        train(averaging=value)


class PowerCut(fj.Callback):
    """Ends a run by an error after a round."""

    def __init__(self, rounds):
        self.rounds = rounds

    def on_round_end(self, run):
        if run.round == self.rounds:
            raise InterruptedError


def test_a_resumed_run_keeps_its_mean(tmp_path):
    whole = train(Normalised, averaging=0.2)
    with pytest.raises(InterruptedError):
        train(Normalised, averaging=0.2, out=tmp_path / "run", callbacks=[PowerCut(3)])
    half = state_of(train(Normalised, rounds=3, averaging=0.2))
    _, exported = exported_tensors(tmp_path / "run" / CHECKPOINT)
    floats = [
        exported[name].flatten().double() for name, one in Normalised().state_dict().items() if one.is_floating_point()
    ]
    np.testing.assert_array_equal(torch.cat(floats).numpy(), half)
    clients = [samples(count, seed) for seed, count in enumerate((5, 4, 7))]
    resumed = fj.resume(tmp_path / "run", model=Normalised(), clients=clients, test=samples(20, 9), fleet=FLEET)
    np.testing.assert_array_equal(state_of(resumed), state_of(whole))


def test_the_guard_returns_to_the_mean_of_then():
    """A step size that explodes in round 25: the run goes on from round 10, and so does its mean."""
    steep = {"learning_rate": 0.1, "schedule": "step", "decay_rounds": (24,), "decay_factor": 1e4, "averaging": 0.5}
    with pytest.warns(fj.errors.FewJoulesWarning, match="the guard returns to the model after round 10"):
        back = train(rounds=25, **steep)
    np.testing.assert_array_equal(state_of(back), state_of(train(rounds=10, **steep)))


def test_rounds_that_were_undone_do_not_count_in_the_mean():
    """After a return to the start in round 6 the mean of all is that of the models of the rounds that follow."""
    steep = {"learning_rate": lambda number: 1e4 if number == 6 else 0.1, "averaging": 1.0}
    models = []
    for rounds in range(7, 11):
        with pytest.warns(fj.errors.FewJoulesWarning, match="the guard returns to the model after round 0"):
            models.append(state_of(train(rounds=rounds, **steep | {"averaging": 0.0})))
    with pytest.warns(fj.errors.FewJoulesWarning, match="the guard returns"):
        found = state_of(train(rounds=10, **steep))
    np.testing.assert_allclose(found, np.mean(models, axis=0), rtol=0, atol=2e-6)
    assert np.abs(models[0] - models[-1]).max() > 1e-4


class Masked(nn.Module):
    """A network with infinite entries in a buffer, as causal masks have them."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.register_buffer("mask", torch.tensor([0.0, 0.0, -torch.inf]))

    def forward(self, x):
        return self.linear(x) + torch.exp(self.mask)


@pytest.mark.filterwarnings("ignore:every message carries")
def test_infinite_entries_of_buffers_stay_though_uploads_are_lost():
    run = train(Masked, averaging=0.3, failures={2: {1}, 4: {0, 2}})
    assert run.returns == ()
    assert run.model.mask.tolist() == [0.0, 0.0, -np.inf]
    assert np.isfinite(run.metrics["test_loss"][-1])


def test_what_a_lost_upload_held_does_not_reach_the_buffers():
    stacked = torch.tensor([[1.0, -torch.inf, 2.0], [torch.nan] * 3, [4.0, -torch.inf, torch.inf]])
    arrived = np.array([True, False, True])
    found = mean_buffers(stacked, torch.zeros(3), arrived, np.array([0.5, 0.25, 0.25]))
    assert found.tolist() == [2.0, -np.inf, np.inf]


@pytest.mark.parametrize("network", [None, Normalised], ids=["plain", "buffers"])
def test_the_mean_rounds_as_ieee_754_says_on_every_processor(network):
    """Beside it: one operation of float32 at a time, in NumPy."""
    models = [state_of(train(network, rounds=1 + t)).astype(np.float32) for t in range(ROUNDS)]
    mean = models[0]
    for before, model in enumerate(models[1:], start=1):
        mean = mean + np.float32(1.0 / (1.0 + 0.3 * before)) * (model - mean)
    assert state_of(train(network, averaging=0.3)).astype(np.float32).tolist() == mean.tolist()


numbers = st.floats(width=32, allow_nan=True, allow_infinity=True)


@settings(deadline=None, max_examples=300)
@given(numbers, st.lists(numbers, min_size=1, max_size=6), st.floats(0.01, 1.0))
def test_an_entry_that_was_infinite_or_nan_is_in_the_mean_again_once_it_is_finite(first, later, averaging):
    mean = torch.tensor([first])
    for models, entry in enumerate(later, start=1):
        now = torch.tensor([entry])
        before, mean = mean, _towards(mean, now, 1.0 / (1.0 + averaging * models))
        if math.isfinite(entry):
            low, high = sorted([entry, float(before)]) if math.isfinite(before) else (entry, entry)
            assert low - 1e-6 * abs(low) <= float(mean) <= high + 1e-6 * abs(high)
        else:
            assert mean.view(torch.int32).equal(now.view(torch.int32))
