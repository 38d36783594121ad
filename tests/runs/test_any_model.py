"""Models, losses, metrics and targets of all kinds: each is trained for a moment, and learns."""

import math
import re
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fewjoules as fj
from fewjoules.errors import FewJoulesWarning, InvalidInputError
from tests.engine.kinds import Adapted, Both, Words, both_of, words_of
from tests.engine.simulators import simulator_of

RNG = np.random.default_rng(0)
WORDS = [words_of(size, RNG) for size in (24, 40, 31, 24)]
TEST = words_of(33, RNG)
TESTED = both_of(200, np.random.default_rng(1))
TESTED_TWICE = both_of(400, np.random.default_rng(1))  # more than a batch of 256
BOTH = [both_of(size, RNG) for size in (24, 40, 31)]
USUAL = {"local_steps": 4, "sparsity": 2.0, "rounds": 12, "learning_rate": 0.02, "inner": "adamw", "batch_size": 8}


def trained(model, clients, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewJoulesWarning)
        return fj.train(model, clients=clients, **USUAL | given)


def seeded(made, *given, **named):
    torch.manual_seed(0)
    return made(*given, **named)


class Recurrent(nn.Module):
    def __init__(self, cell, **how):
        super().__init__()
        self.embedding, self.cell, self.scores = nn.Embedding(11, 8), cell(8, 12, batch_first=True, **how), None
        self.scores = nn.Linear(24 if how.get("bidirectional") else 12, 11)

    def forward(self, tokens):
        return self.scores(self.cell(self.embedding(tokens))[0])


class Cells(nn.Module):
    """A recurrent network that calls its cell for each place."""

    def __init__(self, cell):
        super().__init__()
        self.embedding, self.cell, self.scores = nn.Embedding(11, 12), cell(12, 12), nn.Linear(12, 11)

    def forward(self, tokens):
        state, states = None, []
        for word in self.embedding(tokens).unbind(1):
            state = self.cell(word, state)
            states.append(state[0] if isinstance(state, tuple) else state)
        return self.scores(torch.stack(states, 1))


class Dropped(Words):
    def forward(self, tokens):
        return functional.dropout(super().forward(tokens), 0.1, training=self.training)


class Normed(nn.Module):
    """A buffer that is averaged, and one of whole numbers, which counts."""

    def __init__(self):
        super().__init__()
        self.words, self.norm = Words(), nn.BatchNorm1d(11)

    def forward(self, tokens):
        return self.norm(self.words(tokens).movedim(-1, 1)).movedim(1, -1)


class Positioned(Words):
    """Positions in a buffer that is no part of the state, as in Llama, or that is one."""

    def __init__(self, persistent=False):
        super().__init__()
        self.register_buffer("positions", torch.linspace(0.9, 1.1, 6)[:, None], persistent=persistent)

    def forward(self, tokens):
        return super().forward(tokens) * self.positions


class Sometimes(Words):
    """What no vmap can run: what is computed depends on the numbers."""

    def forward(self, tokens):
        return super().forward(tokens) * (2.0 if float(self.mixing.weight.detach().sum()) > 1e9 else 1.0)


MODELS = {
    "tokens": (Words, {}),
    "adapters on frozen, tied weights": (Adapted, {"learning_rate": 0.05, "rounds": 20}),
    "LSTM": (lambda: Recurrent(nn.LSTM), {}),
    "GRU": (lambda: Recurrent(nn.GRU), {}),
    "LSTM cell": (lambda: Cells(nn.LSTMCell), {}),
    "GRU cell": (lambda: Cells(nn.GRUCell), {}),
    "two directions": (lambda: Recurrent(nn.LSTM, bidirectional=True), {}),
    "dropout": (Dropped, {}),
    "buffers": (Normed, {}),
    "buffers outside the state": (Positioned, {}),
    "mixed precision": (Words, {"precision": "bf16"}),
    "data-dependent": (Sometimes, {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_any_kind_learns(name):
    made, given = MODELS[name]
    run = trained(seeded(made), WORDS, test=TEST, **given)
    assert run.metrics["test_loss"][-1] < 0.75 * run.metrics["train_loss"][0]
    assert 0.2 < run.metrics["test_accuracy"][-1] <= 1.0
    assert 0.0 < run.metrics["train_accuracy"][-1] <= 1.0


@pytest.mark.parametrize(("made", "cell"), [(Recurrent, nn.GRU), (Cells, nn.GRUCell), (Cells, nn.LSTMCell)])
def test_what_vmap_cannot_run_is_named(made, cell):
    says = rf"one by one, which is slower: vmap cannot run cell of the model \({cell.__name__}\)"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fj.train(seeded(made, cell), clients=WORDS, **USUAL | {"rounds": 1})
    assert [re.search(says, str(one.message)) is not None for one in told] == [True]


def test_a_buffer_outside_the_state_stays_where_it_is_and_is_not_sent():
    model = seeded(Positioned)
    run, sent = (trained(one, WORDS, rounds=1) for one in (model, seeded(Positioned, persistent=True)))
    assert torch.equal(run.model.positions, model.positions)
    assert (sent.ledger["payload_bytes"] - run.ledger["payload_bytes"] >= 4 * 6).all()


def test_volumes_learn_by_convolutions_in_three_directions():
    """They cannot have their channels innermost in memory as images have."""
    rng = np.random.default_rng(2)
    volumes = [rng.standard_normal((size, 1, 3, 4, 4), dtype=np.float32) for size in (16, 24)]
    clients = [(x, (x.mean((1, 2, 3, 4)) > 0).astype(int)) for x in volumes]
    model = seeded(lambda: nn.Sequential(nn.Conv3d(1, 4, 2), nn.BatchNorm3d(4), nn.Flatten(), nn.Linear(72, 2)))
    for chunk in (None, 1):
        run = trained(model, clients, test=clients[0], clients_at_a_time=chunk)
        assert run.metrics["test_loss"][-1] < 0.5 * run.metrics["train_loss"][0]


@pytest.mark.parametrize("name", ["tokens", "LSTM", "mixed precision", "buffers"])
def test_a_stack_and_one_client_after_the_other_agree(name):
    """Clients of 8 samples have full batches only, that of 5 a smaller one, which the stack fills up."""
    made, given = MODELS[name]
    clients = [words_of(size, np.random.default_rng(size)) for size in (8, 5, 8, 20)]
    options = USUAL | {"inner": "sgd", "learning_rate": 0.1, "rounds": 2, "sparsity": [2.0] * 4} | given
    found = []
    for chunk in (4, 1):
        simulator = simulator_of(seeded(made), clients, options, chunk=chunk, threads=1)
        losses = [simulator.start_round()().train_loss for _ in range(2)]
        found.append((simulator.state.weights, simulator.state.buffers, torch.tensor(losses)))
        assert simulator.execution.stacked == (chunk > 1)
        simulator.close()
    tolerance = 3e-2 if name == "mixed precision" else 1e-4
    torch.testing.assert_close(*found, rtol=tolerance, atol=tolerance)


def test_inputs_by_name_and_by_position_are_the_same_training():
    tuples = [((x["tokens"].astype(np.int32), x["numbers"].astype(np.float64)), y) for x, y in BOTH]
    named, placed = (trained(seeded(Both), clients, test=clients[0]) for clients in (BOTH, tuples))
    assert named.metrics["train_loss"][-1] < 0.8 * named.metrics["train_loss"][0]
    np.testing.assert_array_equal(named.metrics["test_loss"], placed.metrics["test_loss"])


def test_whole_numbers_stay_so_unless_the_model_wants_floats():
    rng = np.random.default_rng(3)
    images = [(rng.integers(0, 255, (20, 6)).astype(np.uint8), rng.integers(0, 3, 20)) for _ in range(2)]
    floats = [(x.astype(np.float32), y) for x, y in images]
    kept, cast = (trained(seeded(nn.Linear, 6, 3), clients, learning_rate=1e-3) for clients in (images, floats))
    np.testing.assert_array_equal(kept.metrics["train_loss"], cast.metrics["train_loss"])


def weighted(outputs, targets):
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def of_model(model, batch):
    return weighted(model(batch[0]), batch[1])


def counted(outputs, targets):
    losses = functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")
    return losses.sum(1), (targets != -100).sum(1)


LOSSES = {
    "sums and whole-number weights": counted,
    "per token": lambda outputs, targets: functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none"),
    "of the model": of_model,
    "of the batch": weighted,
    "of half, twice": {
        "one": (weighted, 0.5),
        "other": (lambda model, batch: weighted(model(batch[0]), batch[1]), 0.5),
    },
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_all_kinds_are_the_same_training(name):
    """All clients have 8 samples, so that one number for a batch is the mean of all its tokens."""
    clients = [words_of(8, np.random.default_rng(seed)) for seed in range(4)]
    default, own = (trained(seeded(Words), clients, test=TEST, **given) for given in ({}, {"loss": LOSSES[name]}))
    np.testing.assert_allclose(own.metrics["train_loss"], default.metrics["train_loss"], rtol=1e-3)
    np.testing.assert_allclose(own.metrics["test_loss"], default.metrics["test_loss"], rtol=1e-3)


def test_a_loss_of_sums_and_whole_numbers_of_tokens_trains_as_a_stack():
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewJoulesWarning)
        fj.train(seeded(Words), clients=WORDS, loss=counted, **USUAL | {"rounds": 1})


def test_samples_without_targets_train_by_a_loss_of_the_model():
    clients = [{"tokens": x["tokens"], "numbers": x["numbers"]} for x, _ in BOTH]

    def closeness(model, batch):
        return (model(**batch) - batch["numbers"][:, :1]).square().mean(1)

    run = trained(seeded(Both), clients, test=clients[0], loss=closeness)
    assert run.metrics["test_loss"][-1] < 0.5 * run.metrics["train_loss"][0]
    assert np.isnan(run.metrics["test_accuracy"]).all()


def language_model():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=11,
        n_positions=6,
        n_embd=16,
        n_layer=1,
        n_head=2,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.3,
    )
    return seeded(transformers.GPT2LMHeadModel, config)


def test_a_transformer_of_hugging_face_learns_by_its_own_loss_and_by_ours():
    named = [({"input_ids": x, "attention_mask": np.ones_like(x)}, y) for x, y in (*WORDS[:2], TEST)]
    own = trained(
        language_model(), named[:2], test=named[2], metrics={"right": lambda outputs, targets: outputs.logits[:, 0, 0]}
    )
    assert own.metrics["test_loss"][-1] < 0.7 * own.metrics["train_loss"][0]
    with_labels = [{**x, "labels": x["input_ids"]} for x, _ in named]
    theirs = trained(
        language_model(), with_labels[:2], test=with_labels[2], loss=lambda model, batch: model(**batch).loss
    )
    assert theirs.metrics["test_loss"][-1] < 0.7 * theirs.metrics["train_loss"][0]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_only_the_adapters_of_peft_travel():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["c_fc", "c_proj"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    model = peft.get_peft_model(language_model(), config)
    adapters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    size = sum(p.numel() for p in adapters.values())
    named = [({"input_ids": x, "attention_mask": np.ones_like(x)}, y) for x, y in WORDS[:2]]
    run = trained(model, named, learning_rate=0.03, sparsity=1.0, rounds=6)
    assert 9 * size < sum(p.numel() for p in language_model().parameters())
    assert run.ledger["entries"].tolist() == [size] * 12
    assert run.ledger["payload_bytes"].max() <= 4 * size + 200
    assert run.metrics["train_loss"][-1] < 0.8 * run.metrics["train_loss"][0]
    after = dict(run.model.named_parameters())
    for name, parameter in model.named_parameters():
        assert torch.equal(after[name], parameter) == (name not in adapters), name


def right(outputs, targets):
    return (outputs.argmax(1) == targets).float()


def f1(outputs, targets):
    """Of the first class: twice its true positives over those plus all that was said or was it."""
    said, was = outputs.argmax(1) == 0, targets == 0
    return 2.0 * (said & was).sum(), said.sum() + was.sum()


METRICS = {"right": right, "f1": f1, "size": lambda model, batch: model.scores.weight.abs().sum()}


def test_metrics_are_those_of_the_whole_test_set_and_are_recorded(tmp_path):
    test = both_of(300, np.random.default_rng(9))  # more than a batch of 256
    run = trained(seeded(Both), BOTH, test=test, metrics=METRICS, evaluate_every=6, out=tmp_path / "run")
    evaluated = ~np.isnan(run.metrics["test_loss"])
    assert run.metrics["round"][evaluated].tolist() == [6, 12]
    np.testing.assert_allclose(run.metrics["test_right"][evaluated], run.metrics["test_accuracy"][evaluated])
    with torch.no_grad():
        outputs = run.model(**{name: torch.from_numpy(array) for name, array in test[0].items()})
    said, was = outputs.argmax(1).numpy() == 0, test[1] == 0
    assert run.metrics["test_f1"][-1] == pytest.approx(2 * (said & was).sum() / (said.sum() + was.sum()))
    assert run.metrics["test_size"][-1] == pytest.approx(float(run.model.scores.weight.detach().abs().sum()), rel=1e-6)
    for column in ("test_right", "test_f1", "test_size"):
        assert np.isnan(run.metrics[column][~evaluated]).all()
    kept = fj.Run.load(tmp_path / "run")
    for column in run.metrics.dtype.names:
        np.testing.assert_array_equal(kept.metrics[column], run.metrics[column])
    assert list(run.to_pandas()["test_f1"].dropna()) == list(run.metrics["test_f1"][evaluated])


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (0.5, "target accuracy"),
        ({"perplexity": 2.9}, "target loss"),
        ({"right": 0.5}, "target metric"),
        ({"wrong": "<= 0.5"}, "target metric"),
    ],
    ids=str,
)
def test_a_run_ends_at_a_target_from_the_right_side(target, reason):
    metrics = {"right": right, "wrong": lambda outputs, targets: 1.0 - right(outputs, targets)}
    run = trained(seeded(Both), BOTH, test=BOTH[1], metrics=metrics, target=target, rounds=40, evaluate_every=1)
    assert (run.stop_reason, len(run.metrics) < 40) == (reason, True)
    if reason != "target loss":
        accuracies = run.metrics["test_accuracy"]
        assert accuracies[-1] >= 0.5 > accuracies[:-1].max(initial=0.0)


def test_a_metric_that_is_nan_is_unknown_and_meets_no_target():
    unknown = {"odd": lambda outputs, targets: outputs[:, 0] * math.nan}
    with pytest.warns(
        FewJoulesWarning, match="the metric odd is NaN on the test set: it is recorded as unknown"
    ) as told:
        run = fj.train(seeded(Both), clients=BOTH, test=BOTH[0], metrics=unknown, target={"odd": 0.0}, **USUAL)
    assert sum("odd" in str(one.message) for one in told) == 1
    assert run.stop_reason == "rounds"
    assert np.isnan(run.metrics["test_odd"]).all()


def missing(x, y):
    return x, np.where(np.arange(len(y)) == 1, 17, y)


REFUSED = {
    "an unknown target": ({"target": {"f2": 0.5}, "metrics": {"f1": f1}}, "accuracy, loss, perplexity, f1 to a number"),
    "an unclear target": ({"target": {"f1": "below 3"}, "metrics": {"f1": f1}}, "such as 'f1 >= 0.8'"),
    "two targets": ({"target": 0.5, "target_loss": 0.1}, "several targets"),
    "metrics without a test set": ({"test": None, "metrics": {"f1": f1}}, "metrics need a test set, got f1"),
    "a name that is taken": ({"metrics": {"loss": f1}}, "none of accuracy, loss, perplexity, got 'loss'"),
    "a name that is no column": ({"metrics": {"a b": f1}}, "letters, digits"),
    "a metric of another shape": ({"metrics": {"f1": lambda outputs, targets: outputs}}, "f1.* must be one number"),
    "a metric that fails": (
        {"metrics": {"f1": lambda outputs, targets: 1 / 0}},
        "f1.* fails on .*: division",
    ),
    "a metric that fails on a later batch": (
        {"test": TESTED_TWICE, "metrics": {"f1": lambda outputs, targets: 1 / (len(targets) - 144)}},
        "f1.* fails on the test set: ZeroDivisionError: division by zero",
    ),
    "a metric of another shape on a later batch": (
        {"test": TESTED_TWICE, "metrics": {"f1": lambda outputs, targets: outputs[:2, 0]}},
        "f1.* must be one number, .* got shape .2,. for 256 samples",
    ),
    "metrics without names": ({"metrics": [f1]}, "metrics must be a dict of functions by name, got list"),
    "a loss without a gradient": (
        {"loss": lambda outputs, targets: right(outputs, targets)},
        "the loss must depend on the weights that are trained",
    ),
    "labels out of range": ({"clients": [missing(*BOTH[0])]}, "an output for each label up to 17, got 4 outputs"),
    "no targets": ({"clients": [(x, None) for x, _ in BOTH]}, "no targets, so train needs a loss of"),
    "no targets for the loss": (
        {"clients": [(x, None) for x, _ in BOTH], "test": None, "loss": right},
        "a loss of .outputs, targets. needs targets",
    ),
    "other shapes": (
        {"clients": [BOTH[0], ({**BOTH[1][0], "tokens": BOTH[1][0]["tokens"][:, :3]}, BOTH[1][1])]},
        r"clients\[1\] must have inputs like those of clients\[0\], .*got .*tokens: int64 of shape \(3,\)",
    ),
    "other names": ({"clients": [BOTH[0], ({"tokens": BOTH[1][0]["tokens"]}, BOTH[1][1])]}, r"clients\[1\] must have"),
    "a test set of other shapes": (
        {"test": (BOTH[0][0]["tokens"], BOTH[0][1])},
        "test inputs must be .*tokens: int64 of shape .6,.. like the clients', got int64",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_is_refused_in_a_sentence(name):
    given, says = REFUSED[name]
    clients = given.get("clients", BOTH)
    rest = {"test": BOTH[0]} | {key: value for key, value in given.items() if key != "clients"}
    with pytest.raises(InvalidInputError, match=says) as caught:
        trained(seeded(Both), clients, **rest)
    assert len(str(caught.value)) < 700
    assert "\n" not in str(caught.value)


def test_token_labels_out_of_range_are_refused_but_not_those_to_ignore():
    x, y = WORDS[0]
    with pytest.raises(InvalidInputError, match="an output for each label up to 11, got 11 outputs"):
        trained(seeded(Words), [(x, np.where(y == 3, 11, y))])
    with pytest.raises(InvalidInputError, match="labels of at least 0, or -100 for tokens to ignore, got -1"):
        trained(seeded(Words), [(x, np.where(y == 3, -1, y))])


def test_a_model_that_cannot_be_trained_is_refused():
    with pytest.raises(InvalidInputError, match="at least one parameter that requires a gradient"):
        trained(Words().requires_grad_(False), WORDS)


def stopped_after(number):
    def on_round(report):
        if report.round == number:
            raise KeyboardInterrupt

    return on_round


def test_a_run_with_metrics_of_its_own_goes_on_with_them(tmp_path):
    given = {"clients": BOTH, "test": BOTH[0], "metrics": METRICS}
    whole = trained(seeded(Both), **given, evaluate_every=2)
    with pytest.raises(KeyboardInterrupt):
        trained(
            seeded(Both),
            **given,
            evaluate_every=2,
            out=tmp_path / "run",
            checkpoint_seconds=0.0,
            on_round=stopped_after(7),
        )
    others = {"right": right}
    with pytest.raises(InvalidInputError, match="metrics"):
        fj.resume(tmp_path / "run", model=seeded(Both), **given | {"metrics": others})
    run = fj.resume(tmp_path / "run", model=seeded(Both), **given)
    for column in whole.metrics.dtype.names:
        np.testing.assert_array_equal(run.metrics[column], whole.metrics[column])


def test_a_recipe_is_tuned_for_a_metric_that_falls():
    fleet = fj.Fleet(joules_per_bit=np.full(3, 1e-7), joules_per_step=np.full(3, 2e-4))
    clients = [both_of(60, np.random.default_rng(seed)) for seed in (4, 5, 6)]
    given = {"metrics": {"wrong": lambda outputs, targets: 1.0 - right(outputs, targets)}}
    given |= {"target": {"wrong": "<= 0.3"}, "fleet": fleet, "clients": clients}
    recipe = fj.tune(seeded(Both), **given, local_steps=[1, 4], sparsity=(1.0, 50.0), budget="4000 steps")
    run = fj.train(seeded(Both), **given, test=TESTED, recipe=recipe, rounds=200)
    assert (run.stop_reason, run.metrics["test_wrong"][-1] <= 0.3) == ("target metric", True)
