"""Losses of PyTorch that ignore a label: it is left out of losses, accuracies and checks, in training and testing."""

import functools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import fewjoules as fj
from fewjoules.engine.models.labels import Counted
from fewjoules.engine.models.loss import mean_of
from fewjoules.errors import FewJoulesWarning, InvalidInputError
from fewjoules.integrations.flower.local import local_training

RNG = np.random.default_rng(5)
IMAGES = RNG.standard_normal((300, 3, 4, 5)).astype(np.float32)
PIXELS = np.einsum("kc,nchw->nkhw", RNG.standard_normal((4, 3)), IMAGES).argmax(1)
ROWS = RNG.standard_normal((600, 6)).astype(np.float32)
CLASSES = (ROWS @ RNG.standard_normal((6, 4))).argmax(1)
PARTS = [slice(0, 10), slice(10, 41), slice(41, 100)]
WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 3.0])
OPTIONS = {"local_steps": 3, "sparsity": 4.0, "rounds": 24, "learning_rate": 0.5, "batch_size": 8, "device": "cpu"}
BELOW = " and below the 4 outputs of the model"
LOSSES = {
    "plain": lambda ignored: nn.CrossEntropyLoss(ignore_index=ignored),
    "weighted": lambda ignored: nn.CrossEntropyLoss(WEIGHTS, ignore_index=ignored, label_smoothing=0.1),
    "by label": lambda ignored: nn.CrossEntropyLoss(ignore_index=ignored, reduction="none"),
    "likelihood": lambda ignored: nn.NLLLoss(ignore_index=ignored),
    "a function": lambda ignored: functools.partial(functional.cross_entropy, ignore_index=ignored),
}


def with_ignored(labels, ignored):
    """A third of the labels, and all labels of every seventh sample."""
    found = np.where(np.random.default_rng(1).random(labels.shape) < 1 / 3, ignored, labels)
    found[::7] = ignored
    return found


def network(images, logarithms=False):
    torch.manual_seed(0)
    scores = nn.Conv2d(3, 4, 1) if images else nn.Linear(6, 4)
    return nn.Sequential(scores, nn.LogSoftmax(1)) if logarithms else scores


def trained(inputs, labels, loss, **changes):
    model = network(inputs.ndim > 2, logarithms=isinstance(loss, nn.NLLLoss))
    clients = [(inputs[part], labels[part]) for part in PARTS]
    return fj.train(model, clients=clients, test=(inputs, labels), loss=loss, **OPTIONS | changes)


@pytest.mark.filterwarnings("ignore:clients train one by one")
@pytest.mark.parametrize("ignored", [255, -1, 0, -100])
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("images", [True, False], ids=["pixels", "samples"])
def test_what_is_trained_is_tested_as_pytorch_does_it(kind, ignored, images):
    inputs = IMAGES if images else ROWS
    labels = with_ignored(PIXELS if images else CLASSES, ignored)
    run = trained(inputs, labels, LOSSES[kind](ignored))
    with torch.no_grad():
        outputs, targets = run.model(torch.from_numpy(inputs)), torch.from_numpy(labels)
    smooth = {"weight": WEIGHTS.double(), "label_smoothing": 0.1} if kind == "weighted" else {}
    scores = nn.NLLLoss if kind == "likelihood" else nn.CrossEntropyLoss
    wanted = float(scores(ignore_index=ignored, **smooth)(outputs.double(), targets))
    counted = targets != ignored
    last = run.metrics[-1]
    assert last["test_loss"] == pytest.approx(wanted, rel=1e-6)
    right = (outputs.argmax(1) == targets)[counted].double().mean()
    assert last["test_accuracy"] == pytest.approx(float(right), rel=1e-6)
    assert right > 0.75
    losses = run.metrics["train_loss"]
    assert np.isfinite(losses).all()
    assert losses[-4:].mean() < 0.7 * losses[0]


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_whole_batch_with_ignored_samples_trains_as_one_without_them(reduction):
    labels = with_ignored(CLASSES, -1)
    options = OPTIONS | {"sparsity": 1.0, "batch_size": None, "rounds": 5}
    found = []
    for kept in (slice(None), labels != -1):
        data = ROWS[kept], labels[kept]
        loss = nn.CrossEntropyLoss(ignore_index=-1, reduction=reduction)
        run = fj.train(network(images=False), clients=[data, data], test=data, loss=loss, **options)
        found.append(run)
    for one, other in zip(*(run.model.parameters() for run in found), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
        np.testing.assert_allclose(found[0].metrics[name], found[1].metrics[name], rtol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("at_a_time", [1, 3])
def test_a_batch_in_which_no_label_counts_changes_nothing(reduction, at_a_time):
    labels = np.full(600, 255)
    labels[[5, 25]] = CLASSES[[5, 25]]  # of which no batch has one
    labels[99:] = CLASSES[99:]
    loss = nn.CrossEntropyLoss(ignore_index=255, reduction=reduction)
    run = trained(ROWS, labels, loss, clients_at_a_time=at_a_time, rounds=1, local_steps=1, batch_size=1)
    assert run.metrics["train_loss"].tolist() == run.metrics["train_accuracy"].tolist() == [0.0]
    for one, other in zip(run.model.parameters(), network(images=False).parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("memory_gib", [None, 0], ids=["in memory", "read"])
@pytest.mark.parametrize("shared", [True, False], ids=["slices", "lists"])
def test_clients_without_a_label_that_counts_are_named(shared, memory_gib, tmp_path):
    labels = with_ignored(CLASSES, 255)
    labels[10:100] = 255
    loss = nn.CrossEntropyLoss(ignore_index=255)
    np.save(tmp_path / "rows.npy", ROWS)
    rows = ROWS if memory_gib is None else np.load(tmp_path / "rows.npy", mmap_mode="r")
    starts = np.array([part.start for part in PARTS])
    slices = fj.ClientSlices(starts, np.array([part.stop for part in PARTS]) - starts)
    clients = {"clients": slices, "data": (rows, labels)}
    clients = clients if shared else {"clients": [(rows[part], labels[part]) for part in PARTS]}
    says = r"clients\[1\] and 1 more have no label that counts, only 255: training on that costs joules"
    with pytest.warns(FewJoulesWarning, match=says):
        run = fj.train(network(images=False), **clients, loss=loss, **OPTIONS | {"rounds": 2})
    assert np.isfinite(run.metrics["train_loss"]).all()


@pytest.mark.parametrize(
    ("labels", "loss", "ignored"), [(CLASSES, nn.CrossEntropyLoss(ignore_index=7), 7), (PIXELS, None, -100)]
)
@pytest.mark.parametrize("what", ["clients", "test"])
def test_labels_of_which_none_counts_are_refused_before_training(labels, loss, ignored, what):
    inputs, none = (ROWS if labels is CLASSES else IMAGES), np.full_like(labels, ignored)
    data = {name: (inputs, none if name == what else labels) for name in ("clients", "test")}
    with pytest.raises(InvalidInputError) as refusal:
        fj.train(network(inputs is IMAGES), clients=[data["clients"]], test=data["test"], loss=loss, **OPTIONS)
    assert str(refusal.value) == f"{what} must have a label that counts, got {ignored} for every label"


def test_a_test_set_that_turns_out_to_count_nothing_is_no_divergence():
    test = TensorDataset(torch.from_numpy(IMAGES), torch.full(PIXELS.shape, -100))
    with pytest.raises(InvalidInputError) as refusal:
        fj.train(network(True), clients=[(IMAGES, PIXELS)], test=test, data_memory_gib=0, **OPTIONS | {"rounds": 1})
    assert str(refusal.value) == "test must have a label that counts in the loss, got none in 300 samples"


@pytest.mark.parametrize("at_a_time", [1, 3])
def test_the_accuracy_of_other_losses_leaves_out_single_labels_of_minus_100(at_a_time):
    def loss(outputs, targets):
        return functional.cross_entropy(outputs, targets, reduction="none")

    labels = with_ignored(CLASSES, -100)
    options = {"batch_size": None, "rounds": 1, "local_steps": 1}
    found = trained(ROWS, labels, loss, clients_at_a_time=at_a_time, **options)
    first, counted = network(images=False), labels != -100
    said = [model(torch.from_numpy(ROWS)).argmax(1).numpy() == labels for model in (first, found.model)]
    accuracies = [said[0][part][counted[part]].mean() for part in PARTS]
    assert found.metrics["train_accuracy"][0] == pytest.approx(np.mean(accuracies), rel=1e-6)
    assert found.metrics["test_accuracy"][0] == pytest.approx(said[1][counted].mean(), rel=1e-6)


@pytest.mark.parametrize("images", [True, False], ids=["pixels", "samples"])
def test_samples_that_are_read_batch_by_batch_train_to_the_same_bits(images):
    inputs = IMAGES if images else ROWS
    labels = with_ignored(PIXELS if images else CLASSES, 255)
    held = trained(inputs, labels, nn.CrossEntropyLoss(ignore_index=255), rounds=3)
    clients = [TensorDataset(torch.from_numpy(inputs[part]), torch.from_numpy(labels[part])) for part in PARTS]
    model, loss = network(images), nn.CrossEntropyLoss(ignore_index=255)
    test = TensorDataset(torch.from_numpy(inputs), torch.from_numpy(labels))
    read = fj.train(model, clients=clients, test=test, loss=loss, data_memory_gib=0, **OPTIONS | {"rounds": 3})
    assert read.metrics.tobytes() == held.metrics.tobytes()
    for one, other in zip(held.model.parameters(), read.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("labels", "loss", "says"),
    [
        ((7, -1), nn.CrossEntropyLoss(ignore_index=-1), "the model must have an output for each label up to 7, got 4"),
        ((-2, -1), nn.CrossEntropyLoss(ignore_index=-1), "labels of at least 0, or -1 for samples to ignore, got -2"),
        ((-1, 255), nn.CrossEntropyLoss(ignore_index=255), "clients[0] must have labels of at least 0, got -1"),
        ((-100, 0), None, "clients[0] must have labels of at least 0, got -100"),
        ((7, 0), functional.cross_entropy, "the model must have an output for each label up to 7, got 4"),
        (
            (0, 1),
            {"one": nn.CrossEntropyLoss(), "other": nn.NLLLoss(ignore_index=3)},
            "all losses must have the same ignore_index, got -100 and 3",
        ),
    ],
)
def test_labels_that_a_loss_takes_as_classes_are_judged_without_those_that_it_ignores(labels, loss, says):
    given = CLASSES.copy()
    given[[3, 5]] = labels
    with pytest.raises(InvalidInputError) as refusal:
        trained(ROWS, given, loss)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_label_is_judged_when_it_is_read():
    labels = with_ignored(CLASSES, -1)
    says = "must have a label of at least 0{}, or -1 for samples to ignore, got {}"
    for sample, wrong, also in ((0, -2, ""), (3, -2, BELOW), (3, 9, BELOW)):
        given = labels.copy()
        given[sample] = wrong
        data = TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(given))
        run = {"clients": [data], "loss": nn.CrossEntropyLoss(ignore_index=-1), "data_memory_gib": 0}
        with pytest.raises(InvalidInputError) as refusal:
            fj.train(network(images=False), **run, **OPTIONS | {"batch_size": None})
        assert str(refusal.value) == f"clients[0][{sample}] " + says.format(also, wrong)


@pytest.mark.filterwarnings("ignore:clients train one by one")
def test_other_losses_judge_labels_themselves():
    labels = with_ignored(PIXELS, 255)
    run = trained(IMAGES, labels, lambda outputs, targets: functional.cross_entropy(outputs, targets, ignore_index=255))
    assert run.metrics["train_loss"][-1] < 0.7 * run.metrics["train_loss"][0]


def test_a_run_is_resumed_with_the_label_that_it_ignored(tmp_path):
    labels = with_ignored(CLASSES, 255)

    class Stop(fj.Callback):
        def on_round_end(self, run):
            raise LookupError

    with pytest.raises(LookupError):
        trained(ROWS, labels, nn.CrossEntropyLoss(ignore_index=255), out=tmp_path / "run", callbacks=[Stop()])
    given = {"model": network(images=False), "clients": [(ROWS[part], labels[part]) for part in PARTS]}
    given["test"] = ROWS, labels
    says = r"loss was 'CrossEntropyLoss\(ignore_index=255\)', and is 'partial' now"
    with pytest.raises(InvalidInputError, match=says):
        fj.resume(tmp_path / "run", **given, loss=functools.partial(nn.CrossEntropyLoss(ignore_index=255)))
    run = fj.resume(tmp_path / "run", **given, loss=nn.CrossEntropyLoss(ignore_index=255))
    whole = trained(ROWS, labels, nn.CrossEntropyLoss(ignore_index=255))
    assert run.metrics.tobytes() == whole.metrics.tobytes()


def test_a_node_of_a_deployment_takes_ignored_labels():
    labels = with_ignored(CLASSES, 255)
    loss = nn.CrossEntropyLoss(ignore_index=255)
    assert local_training(network(images=False), ROWS, labels, loss).size == 600


@pytest.mark.parametrize("weights", [None, torch.full((7,), 1 / 7)], ids=["equal", "weighted"])
def test_where_all_samples_count_their_mean_is_the_usual_one_to_the_bit(weights):
    values = torch.rand(7, requires_grad=True)
    usual = mean_of(values, weights)
    found = mean_of(Counted(values, torch.ones(7)), weights)
    assert torch.equal(found, usual)
    assert torch.equal(*(torch.autograd.grad(one, values)[0] for one in (found, usual)))
