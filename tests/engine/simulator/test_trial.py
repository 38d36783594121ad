"""Which models train as a stack: those whose samples do not mix, and which do not write to their buffers."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fewjoules as fj
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.stack.trial import TRIAL_SAMPLES, Trial
from fewjoules.errors import FewJoulesWarning
from tests.reference import training as reference

OPTIONS = {
    "local_steps": 3,
    "sparsity": 1.0,
    "rounds": 2,
    "learning_rate": 0.3,
    "batch_size": None,
    "device": "cpu",
    "clients_at_a_time": 3,
}
UNEQUAL = reference.made_up_clients([5, 3, 6], 4, 3, 1)
EQUAL = [(x[:3], y[:3]) for x, y in UNEQUAL]
MIXED = "the loss of a sample depends on the rest of its batch, and clients have batches of different sizes"


class Module(nn.Module):
    """A linear layer, as a start."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, inputs):
        return self.linear(inputs)


class Centred(Module):
    """Subtracts the mean of the batch."""

    def forward(self, inputs):
        return super().forward(inputs - inputs.mean(0))


class Slightly(Module):
    """A mixture that the loss does not show at first: its weight starts at zero."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, inputs):
        scores = super().forward(inputs)
        return scores + self.weight * 0.1 * scores.mean(0)


class Dropped(Centred):
    """Draws random numbers too."""

    def forward(self, inputs):
        return super().forward(functional.dropout(inputs, 0.5, self.training))


class Counted(Module):
    """Does not look at the other samples, but counts them."""

    def forward(self, inputs):
        return super().forward(inputs) / len(inputs)


def divided(outputs, targets):
    """Losses of samples that are divided by their number once more."""
    return cross_entropy(outputs, targets) / len(targets)


MIXTURES = [Centred, Slightly, Dropped, Counted]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def trial_of(model, loss=cross_entropy, scale=1.0):
    inputs = scale * torch.randn(TRIAL_SAMPLES, 4)
    return Trial(model, loss, (inputs, torch.tensor([0, 2, 1, 1])))


@pytest.mark.parametrize("model", MIXTURES)
def test_models_that_mix_samples_train_one_by_one_where_batches_differ(model):
    made = model()
    with pytest.warns(FewJoulesWarning, match=f"one by one, which is slower: {MIXED}"):
        run = fj.train(made, clients=UNEQUAL, **OPTIONS)
    alone = fj.train(made, clients=UNEQUAL, **OPTIONS | {"clients_at_a_time": 1})
    assert run.execution == "one by one"
    assert run.metrics["train_loss"].tolist() == alone.metrics["train_loss"].tolist()


@pytest.mark.parametrize("model", MIXTURES)
def test_models_that_mix_samples_are_stacked_where_batches_are_equal(model):
    assert fj.train(model(), clients=EQUAL, **OPTIONS).execution == "stacked, 3 clients at a time"


def test_a_loss_that_depends_on_the_number_of_samples_mixes_them():
    assert trial_of(Module(), divided).mixes_samples(seeded=False)
    assert not trial_of(Module()).mixes_samples(seeded=False)


def deep():
    """Many normalised layers, whose gradients of two samples are as ill-conditioned as gradients can be."""
    layers = [part for _ in range(6) for part in (nn.Linear(30, 30), nn.BatchNorm1d(30), nn.ReLU())]
    return nn.Sequential(nn.Linear(4, 30), *layers, nn.Linear(30, 3))


STACKED = {
    "linear": (Module, False),
    "batch normalisation": (deep, False),
    "without statistics": (lambda: nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), Module()), False),
    "normalised by sample": (lambda: nn.Sequential(Module(), nn.LayerNorm(3), nn.GroupNorm(3, 3)), False),
    "dropout": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 9), nn.BatchNorm1d(9), nn.Linear(9, 3)), True),
}


@pytest.mark.parametrize("scale", [3e-4, 1.0])
@pytest.mark.parametrize("name", STACKED)
def test_models_whose_samples_do_not_mix_stay_stacked(name, scale):
    made, seeded = STACKED[name]
    for number in range(3):
        torch.manual_seed(number)
        trial = trial_of(made(), scale=scale)
        assert trial.problem([]) is None
        assert not trial.mixes_samples(seeded=seeded)


class Writing(Module):
    """Keeps a running mean of its inputs, in place or in a new tensor."""

    def __init__(self, dtype, in_place):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4, dtype=dtype))
        self.in_place = in_place

    def forward(self, inputs):
        if self.training:
            new = 0.5 * self.mean + 0.5 * inputs.detach().mean(0).to(self.mean.dtype)
            if self.in_place:
                self.mean.copy_(new)
            else:
                self.mean = new
        return super().forward(inputs - self.mean.float())


@pytest.mark.parametrize("chunk", [1, 3])
def test_a_buffer_is_averaged_whether_it_is_written_or_replaced(chunk):
    runs = []
    for in_place in (True, False):
        torch.manual_seed(0)
        made, options = Writing(torch.float32, in_place), OPTIONS | {"clients_at_a_time": chunk}
        with pytest.warns(FewJoulesWarning, match="one by one, which is slower: the model writes to its buffers"):
            runs.append(fj.train(made, clients=EQUAL, **options))
    first, second = (run.model.state_dict() for run in runs)
    assert first["mean"].abs().max() > 0.1
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name])


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_buffer_of_another_type_that_a_model_writes_to_is_named_once(dtype, in_place):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = fj.train(Writing(dtype, in_place), clients=EQUAL, test=EQUAL[0], **OPTIONS)
    says = "the model writes to mean, which stays at its first values: only buffers of float32 are sent and averaged"
    assert [str(one.message) for one in told].count(says) == 1
    assert not run.model.mean.any()


def test_buffers_that_only_count_or_are_not_written_to_are_not_warned_about():
    made = nn.Sequential(nn.BatchNorm1d(4), Module())
    made.register_buffer("fixed", torch.ones(3, dtype=torch.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewJoulesWarning)
        run = fj.train(made, clients=UNEQUAL, **OPTIONS)
    assert np.isfinite(run.metrics["train_loss"]).all()


class Placed(nn.Module):
    """A linear layer after constants are added; ``sent``: they are in the model's state."""

    def __init__(self, sent, size=4):
        super().__init__()
        self.register_buffer("places", torch.ones(size, 4), persistent=sent)
        self.scores = nn.Linear(4, 3)

    def forward(self, inputs):
        return self.scores(inputs + self.places[0])


def test_constants_in_every_message_are_named():
    with pytest.warns(FewJoulesWarning) as told:
        run = fj.train(Placed(sent=True), clients=EQUAL, **OPTIONS)
    assert [str(one.message) for one in told] == [
        "every message carries 16 numbers that the model's first step does not change, those of places, "
        "beside entries of 15 weights: a buffer registered with persistent=False is not sent"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewJoulesWarning)
        other = fj.train(Placed(sent=False), clients=EQUAL, **OPTIONS)
    saved = run.ledger["payload_bytes"] - other.ledger["payload_bytes"]
    assert set(saved) == {4 * 16 + 4}  # and how many there are


class Asking(nn.Module):
    """Asks its layers for their sizes, and an LSTM to lay out its weights."""

    def __init__(self):
        super().__init__()
        self.words, self.cells, self.scores = nn.Embedding(10, 6), nn.LSTM(6, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, tokens):
        self.cells.flatten_parameters()
        start = torch.zeros(self.cells.num_layers, len(tokens), self.cells.hidden_size)
        return self.scores(self.cells(self.words(tokens), (start, start))[0][:, -1])


def test_a_model_that_asks_its_layers_for_their_sizes_is_stacked():
    trial = Trial(Asking(), cross_entropy, (torch.arange(10).view(2, 5), torch.tensor([0, 2])))
    assert trial.problem([]) is None


def test_what_a_stack_lacks_is_told_in_the_names_of_the_users_model():
    class Odd(Asking):
        def forward(self, tokens):
            assert self.cells.all_weights
            return super().forward(tokens)

    trial = Trial(Odd(), cross_entropy, (torch.arange(10).view(2, 5), torch.tensor([0, 2])))
    told = "vmap cannot run cells of the model (LSTM): its version for a stack has no attribute 'all_weights'"
    assert trial.problem([]) == told
