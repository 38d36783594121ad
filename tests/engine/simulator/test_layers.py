"""Layers for stacks of clients against PyTorch's own, and gradients of stacks against plain autograd."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import fewjoules as fj
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.cpu.single import SingleModel
from fewjoules.engine.simulator.stack.layers import PatchConv2d, StackedGroupNorm, WeightedBatchNorm, stackable
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.errors import FewJoulesWarning, InvalidInputError
from tests.reference import training as reference

QUICK = settings(max_examples=40, deadline=None)
CPU = torch.device("cpu")


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def seeded(module, seed=0):
    """The module with every floating parameter drawn anew."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(scale=0.5, size=tuple(parameter.shape))))
    return module


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=2e-4, atol=2e-5)


def outputs_and_gradients(module, inputs):
    """Outputs, and gradients of a fixed sum of them for inputs and parameters."""
    leaf = inputs.clone().requires_grad_()
    out = module(leaf)
    total = (out * normal(*out.shape, seed=9)).sum()
    return out.detach(), torch.autograd.grad(total, [leaf, *module.parameters()])


def assert_same_layer(layer, inputs):
    """Outputs and gradients of the copy are those of the layer, alone and as a stack of two clients."""
    twin = stackable(layer)
    out, gradients = outputs_and_gradients(layer, inputs)
    twin_out, twin_gradients = outputs_and_gradients(twin, inputs)
    assert_close(twin_out, out)
    for one, other in zip(twin_gradients, gradients, strict=True):
        assert_close(one, other)
    assert_same_stack(layer, twin, inputs)
    return twin


def assert_same_stack(layer, twin, inputs):
    names = [name for name, _ in layer.named_parameters()]
    stacks = {name: torch.stack([p.detach(), 0.5 * p.detach()]) for name, p in layer.named_parameters()}
    leaves = {name: tensor.requires_grad_() for name, tensor in stacks.items()}
    both = torch.stack([inputs, inputs.flip(0) + 1.0]).requires_grad_()
    out = torch.func.vmap(lambda p, x: torch.func.functional_call(twin, p, (x,)))(leaves, both)
    total = (out * normal(*out.shape, seed=9)).sum()
    got = torch.autograd.grad(total, [both, *leaves.values()])
    for client in range(2):
        own = copy.deepcopy(layer)
        with torch.no_grad():
            for name in names:
                own.get_parameter(name).copy_(leaves[name][client])
        leaf = both[client].detach().requires_grad_()
        alone = own(leaf)
        assert_close(out[client], alone)
        alone_total = (alone * normal(*out.shape, seed=9)[client]).sum()
        expected = torch.autograd.grad(alone_total, [leaf, *(own.get_parameter(name) for name in names)])
        for stacked, single in zip(got, expected, strict=True):
            assert_close(stacked[client], single)


# --- Layer by layer


@QUICK
@given(
    st.sampled_from([1, 2, 3, 17]),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 9),
    st.integers(1, 9),
    st.booleans(),
    st.integers(1, 3),
)
def test_convolutions_by_patches_are_convolutions(channels, out, kernel, stride, padding, height, width, bias, batch):
    assume(min(height, width) + 2 * padding >= kernel)
    conv = seeded(nn.Conv2d(channels, out, kernel, stride=stride, padding=padding, bias=bias))
    twin = assert_same_layer(conv, normal(batch, channels, height, width))
    assert isinstance(twin, PatchConv2d)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": (3, 2)},
        {"kernel_size": 3, "stride": (1, 2)},
        {"kernel_size": 3, "padding": (1, 0)},
        {"kernel_size": 3, "padding": "same"},
        {"kernel_size": 3, "padding": "valid"},
        {"kernel_size": 3, "dilation": 2},
        {"kernel_size": 3, "groups": 2},
        {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
    ],
    ids=str,
)
def test_convolutions_of_other_kinds_stay_what_they_are(options):
    conv = seeded(nn.Conv2d(2, 4, **options))
    twin = assert_same_layer(conv, normal(2, 2, 7, 6))
    assert type(twin) is nn.Conv2d


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_convolutions_take_images_in_any_memory_layout(memory):
    conv = seeded(nn.Conv2d(3, 2, 3, padding=1))
    images = normal(2, 3, 5, 4).contiguous(memory_format=memory)
    assert_close(stackable(conv)(images), conv(images))
    turned = normal(2, 3, 4, 5).transpose(2, 3)
    assert_close(stackable(conv)(turned), conv(turned))


@pytest.mark.parametrize("shape", [(3, 12), (3, 12, 4), (2, 12, 5, 3), (1, 12, 1, 1)], ids=str)
@pytest.mark.parametrize(("groups", "affine"), [(1, True), (2, True), (3, False), (6, True)])
def test_group_normalisation_is_pytorchs(shape, groups, affine):
    twin = assert_same_layer(seeded(nn.GroupNorm(groups, 12, affine=affine)), 1.0 + 3.0 * normal(*shape))
    assert isinstance(twin, StackedGroupNorm)


KINDS = [
    (nn.BatchNorm1d, (5, 3)),
    (nn.BatchNorm1d, (4, 3, 6)),
    (nn.BatchNorm2d, (4, 3, 5, 2)),
    (nn.BatchNorm3d, (3, 3, 2, 2, 2)),
]


@pytest.mark.parametrize(("kind", "shape"), KINDS)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_normalisation_in_training_is_pytorchs(kind, shape, affine):
    norm = seeded(kind(3, affine=affine, momentum=0.3))
    inputs = 2.0 + 3.0 * normal(*shape)
    twin = stackable(norm)
    assert isinstance(twin, WeightedBatchNorm)
    out, gradients = outputs_and_gradients(twin, inputs)
    expected_out, expected = outputs_and_gradients(norm, inputs)
    assert_close(out, expected_out)
    for one, other in zip(gradients, expected, strict=True):
        assert_close(one, other)
    assert_close(twin.updated[0], norm.running_mean)
    assert_close(twin.updated[1], norm.running_var)


@pytest.mark.parametrize(("kind", "shape"), KINDS)
def test_batch_normalisation_in_evaluation_uses_the_running_statistics(kind, shape):
    norm = seeded(kind(3))
    norm(1.0 + 2.0 * normal(*shape))
    norm.eval()
    inputs = normal(*shape, seed=3)
    assert_close(stackable(norm).eval()(inputs), norm(inputs))


@pytest.mark.parametrize(("kind", "shape"), KINDS)
def test_padded_samples_change_neither_outputs_nor_gradients_nor_statistics(kind, shape):
    norm = seeded(kind(3, momentum=0.3))
    twin = stackable(norm)
    inputs = normal(*shape)
    count = shape[0]
    expected_out, expected = outputs_and_gradients(norm, inputs)
    padded = torch.cat([inputs, 100.0 * normal(2, *shape[1:], seed=4)]).requires_grad_()
    twin.sample_weights = torch.tensor([1.0 / count] * count + [0.0] * 2)
    out = twin(padded)
    assert_close(out[:count].detach(), expected_out)
    total = (out[:count] * normal(*shape, seed=9)).sum()
    padded_gradient, *others = torch.autograd.grad(total, [padded, *twin.parameters()])
    assert_close(padded_gradient[:count], expected[0])
    assert not padded_gradient[count:].any()
    for one, other in zip(others, expected[1:], strict=True):
        assert_close(one, other)
    assert_close(twin.updated[0], norm.running_mean)
    assert_close(twin.updated[1], norm.running_var)


def test_a_copy_has_the_same_names_and_shares_no_memory_with_the_model():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.MaxPool2d(2))
    twin = stackable(model)
    parameters, originals = dict(twin.named_parameters()), dict(model.named_parameters())
    assert list(parameters) == list(originals)
    assert not {p.data_ptr() for p in parameters.values()} & {p.data_ptr() for p in originals.values()}
    assert type(model[0]) is nn.Conv2d


def test_a_layer_with_a_hook_keeps_it():
    conv = seeded(nn.Conv2d(1, 2, 3))
    conv.register_forward_hook(lambda _module, _inputs, out: 2.0 * out)
    images = normal(2, 1, 5, 5)
    assert_close(stackable(conv)(images), conv(images))


def test_a_normalisation_used_twice_updates_its_statistics_twice():
    norm = seeded(nn.BatchNorm1d(3))
    twin = stackable(norm)
    for inputs in (normal(6, 3), 5.0 + normal(6, 3, seed=2)):
        norm(inputs), twin(inputs)
    assert_close(twin.updated[0], norm.running_mean)


def test_a_layer_in_two_places_has_one_replacement():
    norm = nn.BatchNorm1d(3)
    twin = stackable(nn.Sequential(nn.Sequential(nn.Linear(3, 3), norm), nn.Sequential(norm), norm))
    assert isinstance(twin[2], WeightedBatchNorm)
    assert twin[0][1] is twin[1][0] is twin[2]


def test_a_layer_with_a_forward_of_its_own_keeps_it():
    conv = seeded(nn.Conv2d(1, 2, 3))
    conv.forward = lambda images: conv.weight.sum() * images
    images = normal(2, 1, 5, 5)
    assert_close(stackable(nn.Sequential(conv))(images), conv(images))


LAYERS = [
    nn.Conv2d(2, 4, 3, stride=2, padding=1),
    nn.BatchNorm2d(4, momentum=0.3),
    nn.GroupNorm(2, 4),
    nn.LSTM(3, 5, 2, batch_first=True),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_replacements_have_the_plain_attributes_of_what_they_replace(layer):
    twin = stackable(layer)
    assert type(twin) is not type(layer)
    public = {name: value for name, value in vars(layer).items() if not name.startswith("_")}
    assert len(public) > 3
    assert {name: getattr(twin, name) for name in public} == public


# --- Whole models: gradients of a stack, of one client and of plain autograd


class Branches(nn.Module):
    """Layers of every kind, one of them used twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.again = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.pool = nn.MaxPool2d(2)
        self.last = nn.Linear(4 * 3 * 2, 3)

    def forward(self, images):
        middle = torch.tanh(self.norm(self.first(images)))
        for _ in range(2):
            middle = middle + torch.tanh(self.again(middle))
        return self.last(self.pool(middle).flatten(1))


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.b.weight = self.a.weight

    def forward(self, inputs):
        return self.head(torch.tanh(self.b(torch.tanh(self.a(inputs)))))


class Unused(nn.Module):
    """One parameter of three is in no loss, one is frozen."""

    def __init__(self):
        super().__init__()
        self.used, self.idle, self.frozen = nn.Linear(4, 3), nn.Linear(2, 2), nn.Linear(3, 3)
        self.frozen.requires_grad_(False)

    def forward(self, inputs):
        return self.frozen(self.used(inputs))


def batch_normed():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(3 * 5 * 3, 4),
        nn.BatchNorm1d(4),
        nn.Tanh(),
        nn.Linear(4, 3),
    )


def instance_normed():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.InstanceNorm2d(2), nn.Flatten(), nn.Linear(2 * 5 * 3, 3))


def layer_normed():
    return nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 3))


MODELS = {
    "branches": (Branches, (1, 7, 5)),
    "batch norm": (batch_normed, (1, 7, 5)),
    "instance norm": (instance_normed, (1, 7, 5)),
    "layer norm": (layer_normed, (4,)),
    "tied weights": (Tied, (4,)),
    "unused and frozen weights": (Unused, (4,)),
}


def plain_gradients(module, layout, weights, inputs, targets):
    """Autograd of the mean loss of a copy of the module at these weights, and its buffers afterwards."""
    own = copy.deepcopy(module).train()
    with torch.no_grad():
        for name, view in layout.views(weights).items():
            own.get_parameter(name).copy_(view)
    loss = functional.cross_entropy(own(inputs), targets)
    names = list(layout.shapes)
    gradients = torch.autograd.grad(loss, [own.get_parameter(name) for name in names], allow_unused=True)
    filled = [
        torch.zeros(layout.shapes[name]) if gradient is None else gradient
        for name, gradient in zip(names, gradients, strict=True)
    ]
    return filled, loss.detach(), dict(own.named_buffers())


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_a_stack_of_one_client_and_of_autograd_are_the_same(name):
    """Three clients with batches of 5, 3 and 2 samples, padded to 5 in the stack."""
    build, shape = MODELS[name]
    module = seeded(build())
    client = ClientModel(module, cross_entropy, CPU)
    flats = client.initial_weights + 0.1 * normal(3, client.parameters.size, seed=5)
    buffers = client.initial_buffers.repeat(3, 1)
    inputs, targets = normal(3, 5, *shape), torch.arange(15).remainder(3).view(3, 5)
    counts = [5, 3, 2]
    shares = torch.tensor([[1.0 / count] * count + [0.0] * (5 - count) for count in counts])
    views, statistics = client.parameters.views(flats), client.buffers.views(buffers)
    stacked, losses, correct, new = client.gradients(views, statistics, inputs, targets, shares)
    for row, count in enumerate(counts):
        own = inputs[row, :count], targets[row, :count]
        expected, loss, after = plain_gradients(module, client.parameters, flats[row], *own)
        single = SingleModel(module, cross_entropy, CPU)
        single.start(flats[row], buffers[row])
        one, one_loss, one_correct = single.gradients(*own)
        one_buffers = torch.empty_like(buffers[row])
        single.finish(torch.empty_like(flats[row]), one_buffers)
        one_new = client.buffers.views(one_buffers)
        assert_close(losses[row], loss)
        assert_close(one_loss, loss)
        assert_close(correct[row], torch.tensor(one_correct))
        for in_stack, alone, plain in zip(stacked, one, expected, strict=True):
            assert_close(in_stack[row], plain)
            assert_close(alone, plain)
        for key in client.buffers.shapes:
            assert_close(new[key][row], after[key])
            assert_close(one_new[key], after[key])
    assert torch.equal(buffers, client.initial_buffers.repeat(3, 1)), "buffers are results, not arguments that change"


def test_a_parameter_that_no_loss_uses_has_gradient_zero_and_a_frozen_one_is_no_parameter():
    client = ClientModel(seeded(Unused()), cross_entropy, CPU)
    assert list(client.parameters.shapes) == ["used.weight", "used.bias", "idle.weight", "idle.bias"]


def test_a_weight_that_two_layers_share_is_sent_once():
    assert ClientModel(Tied(), cross_entropy, CPU).parameters.size == 16 + 4 + 4 + 15


def test_a_flat_vector_and_its_named_views_share_memory():
    layout = ClientModel(nn.Linear(4, 3), cross_entropy, CPU).parameters
    vector = torch.zeros(layout.size)
    layout.views(vector)["bias"][:] = 1.0
    assert vector.tolist() == [0.0] * 12 + [1.0] * 3
    assert torch.equal(layout.flatten(layout.views(vector)), vector)


def test_a_model_in_double_precision_is_refused():
    with pytest.raises(InvalidInputError, match=r"float32.*float64.*weight"):
        ClientModel(nn.Linear(2, 2).double(), cross_entropy, CPU)


# --- Training models of every kind

OPTIONS = {
    "local_steps": 2,
    "sparsity": 2.0,
    "rounds": 3,
    "learning_rate": 0.1,
    "batch_size": None,
    "device": "cpu",
    "clients_at_a_time": 2,
}
CLIENTS = reference.made_up_clients([5, 3, 4, 6], 4, 3, 1)


class Peeking(nn.Module):
    """Linear, but looks at its data in a way that no stack of clients can follow."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, inputs):
        if inputs.abs().max().item() > 1e9:
            raise AssertionError
        return self.linear(inputs)


def test_a_model_that_cannot_be_stacked_trains_one_client_at_a_time_to_the_same_weights():
    torch.manual_seed(0)
    module = Peeking()
    with pytest.warns(FewJoulesWarning, match="one by one"):
        run = fj.train(module, clients=CLIENTS, **OPTIONS)
    assert run.execution == "one by one"
    plain = fj.train(module.linear, clients=CLIENTS, **OPTIONS)
    np.testing.assert_allclose(reference.flat(run.model), reference.flat(plain.model), rtol=0, atol=5e-6)


def test_a_loss_that_is_one_number_a_batch_trains_like_one_a_sample():
    """With unequal batches padding would count, so that clients train one by one; with equal ones they need not."""
    torch.manual_seed(0)
    module = nn.Linear(4, 3)
    with pytest.warns(FewJoulesWarning, match="one number per batch"):
        run = fj.train(module, clients=CLIENTS, loss=nn.CrossEntropyLoss(), **OPTIONS)
    plain = fj.train(module, clients=CLIENTS, **OPTIONS)
    np.testing.assert_allclose(reference.flat(run.model), reference.flat(plain.model), rtol=0, atol=5e-6)
    equal = [(x[:3], y[:3]) for x, y in CLIENTS]
    runs = [fj.train(module, clients=equal, loss=loss, **OPTIONS) for loss in (nn.CrossEntropyLoss(), None)]
    np.testing.assert_allclose(*(reference.flat(run.model) for run in runs), rtol=0, atol=5e-6)


class Counting(nn.Module):
    """Counts its own training steps in a buffer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, inputs):
        if self.training:
            self.steps += 1.0
        return self.linear(inputs)


def test_buffers_that_a_model_writes_itself_are_kept_apart_for_each_client():
    module = Counting()
    with pytest.warns(FewJoulesWarning, match="one by one"):
        run = fj.train(module, clients=CLIENTS, **OPTIONS)
    assert run.model.steps.item() == 6.0
    assert module.steps.item() == 0.0


def test_running_statistics_are_the_mean_of_the_clients_after_each_round():
    """One round of one step on all data: each client's statistics are known."""
    module = nn.Sequential(nn.BatchNorm1d(4, momentum=0.25), nn.Linear(4, 3))
    run = fj.train(module, clients=CLIENTS, **OPTIONS | {"rounds": 1, "local_steps": 1})
    means = np.mean([x.mean(0) for x, _ in CLIENTS], axis=0)
    variances = np.mean([x.var(0, ddof=1) for x, _ in CLIENTS], axis=0)
    np.testing.assert_allclose(run.model[0].running_mean, 0.25 * means, atol=1e-6)
    np.testing.assert_allclose(run.model[0].running_var, 0.75 + 0.25 * variances, atol=1e-6)


@pytest.mark.filterwarnings("ignore:clients train one by one")
def test_running_statistics_may_be_plain_averages():
    """momentum = None: after one step they are those of the first batch."""
    module = nn.Sequential(nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3))
    equal = [(x[:3], y[:3]) for x, y in CLIENTS]
    run = fj.train(module, clients=equal, **OPTIONS | {"rounds": 1, "local_steps": 1})
    np.testing.assert_allclose(run.model[0].running_mean, np.mean([x.mean(0) for x, _ in equal], axis=0), atol=1e-6)


def test_lost_uploads_bring_no_running_statistics():
    module = nn.Sequential(nn.BatchNorm1d(4, momentum=0.25), nn.Linear(4, 3))
    run = fj.train(module, clients=CLIENTS, **OPTIONS | {"rounds": 1, "local_steps": 1}, failures={1: {0, 1, 3}})
    np.testing.assert_allclose(run.model[0].running_mean, 0.25 * CLIENTS[2][0].mean(0), atol=1e-6)
    none = fj.train(module, clients=CLIENTS, **OPTIONS, failure_probability=1.0)
    assert not none.model[0].running_mean.any()


def from_scratch(norm):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), norm, nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.parametrize(
    "norm",
    [nn.BatchNorm1d(5), nn.BatchNorm1d(5, track_running_stats=False)],
    ids=["with statistics", "without"],
)
def test_batch_normalisation_gives_the_same_whether_batches_of_unequal_size_are_stacked_or_not(norm):
    """A second copy that looks at its data trains one client at a time, without any padding."""

    class Alone(nn.Sequential):
        def forward(self, inputs):
            assert inputs.abs().max().item() < 1e9
            return super().forward(inputs)

    module = from_scratch(norm)
    stacked = fj.train(module, clients=CLIENTS, **OPTIONS)
    assert stacked.execution != "one by one"
    with pytest.warns(FewJoulesWarning, match="one by one"):
        alone = fj.train(Alone(*module), clients=CLIENTS, **OPTIONS)
    np.testing.assert_allclose(reference.flat(stacked.model), reference.flat(alone.model), rtol=0, atol=5e-6)


class Frozen(nn.Module):
    """Keeps layers of one class in evaluation mode, as the usual recipe has it; ``train`` returns nothing."""

    def __init__(self, layer):
        super().__init__()
        self.kind = type(layer)
        self.layers = nn.Sequential(nn.Linear(4, 5), layer, nn.Tanh(), nn.Linear(5, 3))

    def train(self, mode=True):
        super().train(mode)
        for module in self.modules():
            if isinstance(module, self.kind):
                module.eval()

    def forward(self, inputs):
        return self.layers(inputs)


def statistics_of(model):
    return {name: buffer for name, buffer in model.state_dict().items() if "running" in name}


@pytest.mark.filterwarnings("ignore:every message carries")
@pytest.mark.parametrize("layer", [nn.BatchNorm1d(5), nn.Dropout(0.5)], ids=["statistics", "dropout"])
def test_layers_that_the_models_own_train_keeps_in_evaluation_mode_stay_in_it_in_every_execution(layer):
    module = Frozen(layer)
    seeded(module)
    one, stack = (fj.train(module, clients=CLIENTS, **OPTIONS | {"clients_at_a_time": chunk}) for chunk in (1, 4))
    assert (one.execution, stack.execution) == ("one by one", "stacked, 4 clients at a time")
    np.testing.assert_allclose(reference.flat(stack.model), reference.flat(one.model), rtol=0, atol=5e-6)
    for run in (one, stack):
        assert all(
            torch.equal(*pair) for pair in zip(*(statistics_of(m).values() for m in (module, run.model)), strict=True)
        )
    awake = fj.train(module.layers, clients=CLIENTS, **OPTIONS)
    assert not np.allclose(reference.flat(awake.model), reference.flat(one.model), rtol=0, atol=1e-3)


def test_modes_set_by_hand_are_undone_in_every_execution():
    module = from_scratch(nn.BatchNorm1d(5))
    module[1].eval()
    one, stack = (fj.train(module, clients=CLIENTS, **OPTIONS | {"clients_at_a_time": chunk}) for chunk in (1, 4))
    for run in (one, stack):
        assert run.model[1].running_mean.any()
    np.testing.assert_allclose(one.model[1].running_mean, stack.model[1].running_mean, rtol=0, atol=5e-6)
