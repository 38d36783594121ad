"""A stack that would train another model than the one given is found before the first round."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fewjoules as fj
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.models.networks import build
from fewjoules.engine.simulator.stack.trial import Trial
from fewjoules.errors import FewJoulesWarning

OPTIONS = {"local_steps": 2, "sparsity": 1.0, "rounds": 2, "learning_rate": 0.1, "batch_size": 3, "device": "cpu"}


class Plain(nn.Module):
    """Two layers, the first of which is replaced in a stack."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Linear(2 * 16, 3)

    def features(self, images):
        return self.norm(self.conv(images))

    def forward(self, images):
        return self.head(torch.tanh(self.features(images)).flatten(1))


class Listed(Plain):
    """Calls its convolution by way of a list."""

    def __init__(self):
        super().__init__()
        self.layers = {"all": [self.conv]}

    def features(self, images):
        return self.norm(self.layers["all"][0](images))


class Dropped(Listed):
    """Draws random numbers too."""

    def features(self, images):
        return functional.dropout(super().features(images), 0.5, self.training)


class Bound(Plain):
    """Calls its convolution by way of a method."""

    def __init__(self):
        super().__init__()
        self.convolve = self.conv.forward

    def features(self, images):
        return self.norm(self.convolve(images))


class Asking(Plain):
    """Asks for the class of a layer."""

    def features(self, images):
        found = super().features(images)
        return 2.0 * found if isinstance(self.conv, nn.Conv2d) else found


class Cutting(Plain):
    """Asks for the class of a layer, and lets no gradient pass it then."""

    def features(self, images):
        found = self.conv(images)
        return self.norm(found.detach() if isinstance(self.conv, nn.Conv2d) else found)


class Functional(Plain):
    """Normalises by a function, which writes to the statistics."""

    def features(self, images):
        norm = self.norm
        statistics = norm.running_mean, norm.running_var
        return functional.batch_norm(self.conv(images), *statistics, norm.weight, norm.bias, self.training)


OTHERS = {
    "in a list": (Listed, "gradient of conv.", False),
    "in a list, with dropout": (Dropped, "gradient of conv.", True),
    "a method": (Bound, "gradient of conv.", False),
    "by its class": (Asking, "gradient of ", False),
    "without gradient": (Cutting, "gradient of conv.", False),
    "by a function": (Functional, "value of norm.running_mean", False),
}


def samples(count=4, *shape):
    numbers = torch.Generator().manual_seed(1)
    return torch.randn(count, *(shape or (1, 4, 4)), generator=numbers), torch.arange(count) % 3


def difference(model, batch, *, seeded=False):
    return Trial(model, cross_entropy, batch).difference(seeded=seeded)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", OTHERS)
def test_a_stack_of_another_model_is_found_and_what_differs_is_named(name, count):
    torch.manual_seed(0)
    kind, what, seeded = OTHERS[name]
    found = difference(kind(), samples(count), seeded=seeded)
    assert found is not None
    assert found.startswith(f"a stack computes another {what}")
    assert found.endswith("than the model by itself")


@pytest.mark.parametrize("kind", [Listed, Functional])
def test_clients_of_such_a_model_train_one_by_one(kind):
    torch.manual_seed(0)
    made, data = kind(), [tuple(one.numpy() for one in samples())] * 4
    with pytest.warns(FewJoulesWarning, match="clients train one by one, which is slower: a stack computes another"):
        run = fj.train(made, clients=data, clients_at_a_time=4, **OPTIONS)
    alone = fj.train(made, clients=data, clients_at_a_time=1, **OPTIONS)
    assert run.execution == alone.execution == "one by one"
    np.testing.assert_array_equal(run.metrics["train_loss"], alone.metrics["train_loss"])
    assert not torch.equal(run.model.conv.weight, made.conv.weight)


def narrow(part):
    """Layers that are as sensitive to rounding as layers can be."""
    layers = [one for _ in range(6) for one in (nn.Linear(30, 30), part(30), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 30), *layers, nn.Linear(30, 3))


class Coarse(nn.Module):
    """Computes in bfloat16."""

    def __init__(self, kind=Plain):
        super().__init__()
        self.net = kind()

    def forward(self, images):
        with torch.autocast("cpu", torch.bfloat16):
            return self.net(images)


class Zeros(Plain):
    """Has weights of zero, and one in no loss."""

    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.head.weight)
        self.idle = nn.Parameter(torch.zeros(2))


SAME = {
    "plain": (Plain, False),
    "zeros": (Zeros, False),
    "without statistics": (lambda: nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), Plain()), False),
    "batch normalisation": (lambda: narrow(nn.BatchNorm1d), False),
    "dropout": (lambda: narrow(lambda _width: nn.Dropout(0.5)), True),
}


@pytest.mark.parametrize(
    "change", [lambda x: x, lambda x: 1e-4 * x, lambda x: 1e3 + x, lambda x: 0.0 * x], ids=range(4)
)
@pytest.mark.parametrize("name", SAME)
def test_what_rounding_does_is_no_difference(name, change):
    kind, seeded = SAME[name]
    for number in range(2):
        torch.manual_seed(number)
        inputs, targets = samples()
        assert difference(kind(), (change(inputs), targets), seeded=seeded) is None


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_a_model_that_computes_in_bfloat16_is_stacked_unless_it_is_another(scale):
    torch.manual_seed(0)
    inputs, targets = samples()
    assert difference(Coarse(), (scale * inputs, targets)) is None
    assert difference(Coarse(Listed), (scale * inputs, targets)) is not None


def test_one_sample_is_enough():
    torch.manual_seed(0)
    assert difference(Plain(), samples(1)) is None
    assert difference(Listed(), samples(1)) is not None


@pytest.mark.parametrize("background", [0.0, 255.0])
def test_a_deep_network_on_images_with_large_areas_of_one_colour_is_stacked(background):
    images = torch.full((2, 1, 32, 32), background)
    images[:, :, 10:20, 14:18] = samples(2, 1, 10, 4)[0]
    made = build("resnet20", channels=1, height=32, width=32, classes=3, seed=0)
    assert difference(made, (images, torch.tensor([0, 2]))) is None


@pytest.mark.parametrize("seeded", [False, True])
def test_comparing_moves_no_stream_of_random_numbers_and_keeps_modes(seeded):
    trial = Trial(Dropped(), cross_entropy, samples())
    trial._model.net.norm.eval()
    before = torch.get_rng_state()
    trial.difference(seeded=seeded)
    assert torch.equal(torch.get_rng_state(), before)
    assert [trial._model.net.training, trial._model.net.norm.training] == [True, False]


def test_a_model_that_cannot_be_compared_stays_stacked():
    """It draws random numbers in evaluation mode too, or its numbers are not finite."""

    class Noisy(Plain):
        def forward(self, images):
            return super().forward(images + torch.randn(images.shape))

    assert difference(Noisy(), samples(), seeded=True) is None
    inputs, targets = samples()
    assert difference(Listed(), (inputs / 0.0, targets)) is None
