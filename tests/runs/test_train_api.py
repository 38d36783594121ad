"""``fewjoules.train`` from outside: what it takes, what it gives back and what it refuses.

A refusal is one sentence that names the thing, what is allowed and what was received.
"""

import json
import math
import re
import threading
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import nn

import fewjoules as fj
from fewjoules.engine.algorithm.declared import Choice
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.errors import DivergedError, InvalidInputError
from tests.reference import training as reference

CLIENTS = reference.made_up_clients([5, 3, 4], 4, 3, 1)
GOOD = {"local_steps": 2, "sparsity": 2.0, "rounds": 3, "learning_rate": 0.1, "batch_size": 2, "device": "cpu"}


def linear():
    return reference.seeded_module(reference.SoftmaxRegression(4, 3), 1)


def train(model=None, clients=None, **changes):
    options = {"test": CLIENTS[0]} | GOOD | changes
    return fj.train(linear() if model is None else model, clients=CLIENTS if clients is None else clients, **options)


def assert_refused(says, model=None, clients=None, **changes):
    with pytest.raises(InvalidInputError) as caught:
        train(model, clients, **changes)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 700, "a sentence that a person can read"
    for part in says:
        assert part in message, f"{part!r} is missing from {message!r}"


def test_the_run_that_every_case_spoils_is_good():
    run = train()
    assert run.stop_reason == "rounds"
    assert run.metrics.size == 3


# --- What it refuses: options

# Name, what the message must say of the range, and values that must be refused and quoted.
NUMBERS = [
    ("local_steps", "from 1", [0, -2, 1.5, math.nan, "two", True]),
    ("rounds", "from 1", [0, -1, 2.5, math.inf, "many", True]),
    ("learning_rate", "above 0", [0.0, -0.1, math.nan, math.inf, "fast", True, None]),
    ("momentum", "at least 0", [-0.1, 1.0, 1.5, math.nan, "some", True]),
    ("batch_size", "from 1", [0, -3, 1.5, "all", True]),
    ("batch_growth", "at least 1", [0.99, 0.0, -1.0, math.nan, math.inf, "twice"]),
    ("decay_factor", "above 0", [0.0, -1.0, math.nan, "half"]),
    ("warmup_rounds", "from 0", [-1, 1.5, "few", True, None]),
    ("adam_beta2", "at least 0", [-0.1, 1.0, 1.5, math.nan, "some"]),
    ("adam_epsilon", "above 0 and at most 1e+19", [0.0, 1e200, -1.0, math.nan, "small"]),
    ("weight_decay", "at least 0", [-0.1, math.inf, math.nan, "some", None]),
    ("gradient_clip", "above 0", [0.0, -1.0, math.nan, "tight"]),
    ("outer_momentum", "at least 0", [-0.1, 1.0, 1.5, math.nan, "some", None]),
    ("outer_rate", "above 0", [0.0, -1.0, 1e39, math.nan, "fast", None]),
    ("outer_beta2", "at least 0", [-0.1, 1.0, math.nan, "some"]),
    ("outer_epsilon", "above 0 and at most 1e+19", [0.0, 1e200, -1.0, math.nan, "small"]),
    ("residual_decay", "at least 0 and at most 1", [-0.1, 1.1, math.nan, "slow"]),
    ("participation", "above 0 and at most 1", [0.0, -0.5, 1.1, math.nan, "half", True]),
    ("failure_probability", "at least 0 and at most 1", [-0.1, 1.1, math.nan, "often"]),
    ("coherence_blocks", "from 2", [1, 0, 2.5, "many"]),
    ("seed", "from 0", [-1, 0.5, 2**63, "random", None]),
    ("levels", "from 1", [0, -1, 2.5, 10**9]),
    ("evaluate_every", "from 1", [0, -1, 1.5, "often"]),
    ("target_accuracy", "at least 0 and at most 1", [-0.1, 1.1, math.nan, "high"]),
    ("target_loss", "above 0", [0.0, -0.1, math.nan, math.inf, "low"]),
    ("target_perplexity", "above 1", [1.0, 0.5, math.nan, math.inf, "low"]),
    ("guard", "true or false", [0, 1, "on"]),
    ("energy_budget_joules", "above 0", [0.0, -1.0, math.nan, math.inf, "little"]),
    ("time_budget_seconds", "above 0", [0.0, -1.0, math.nan, math.inf, "little"]),
]
CHOICES = {
    one.name: ", ".join(one.metadata["check"].names)
    for one in fields(TrainingOptions)
    if isinstance(one.metadata["check"], Choice)
}
OPTIONAL = {one.name for one in fields(TrainingOptions) if one.metadata["optional"]}


@pytest.mark.parametrize(
    ("name", "allowed", "value"),
    [(name, allowed, value) for name, allowed, values in NUMBERS for value in values],
    ids=str,
)
def test_a_number_out_of_range_or_of_the_wrong_type_is_refused_and_quoted(name, allowed, value):
    assert_refused([name, allowed, repr(value)], **{name: value})


@pytest.mark.parametrize("value", ["nonsense", 3, ["equal"]], ids=str)
@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_that_does_not_exist_is_refused_with_those_that_do(name, value):
    assert_refused([name, CHOICES[name], repr(value)], **{name: value})


@pytest.mark.parametrize("name", sorted(set(CHOICES) - OPTIONAL))
def test_a_choice_must_be_made_where_nothing_stands_for_it(name):
    assert_refused([name, CHOICES[name], "None"], **{name: None})


@pytest.mark.parametrize("value", ["nonsense", 3, None, ["equal"]], ids=str)
def test_a_device_that_does_not_exist_is_refused_with_those_that_do(value):
    assert_refused(["device", "auto, cpu, cuda or a GPU by its number", repr(value)], device=value)


def test_these_are_the_options_with_choices():
    names = "preset schedule inner momentum_state outer kept_values compressor values weighting sampling"
    assert list(CHOICES) == [*names.split(), "downlink", "downlink_values", "channel", "precision"]
    assert CHOICES["schedule"] == "constant, cosine, step"
    assert {"top-k", "random-k", "ternary", "qsgd", "none"} <= set(CHOICES["compressor"].split(", "))
    assert {"float32", "float16", "bfloat16", "int8", "qsgd", "ternary"} <= set(CHOICES["values"].split(", "))
    assert CHOICES["precision"] == "float32, tf32, bf16"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (0.5, ["at least 1", "0.5"]),
        ([2.0, 0.0, 2.0], ["sparsity[1]", "at least 1", "0.0"]),
        ([2.0, math.nan, 2.0], ["sparsity[1]", "nan"]),
        (math.inf, ["finite", "inf"]),
        ([2.0, 3.0], ["one number", "3 clients", "got 2"]),
        ([2.0] * 4, ["one number", "3 clients", "got 4"]),
        ([], ["3 clients", "got 0"]),
        ([[2.0, 2.0, 2.0]], ["(1, 3)"]),
        ("sparse", ["'sparse'"]),
    ],
    ids=str,
)
def test_a_sparsity_below_1_or_not_one_a_client_is_refused(value, says):
    assert_refused(["sparsity", *says], sparsity=value)


@pytest.mark.parametrize(
    ("failures", "says"),
    [
        ({0: {1}}, ["round", "from 1", "0"]),
        ({1: {3}}, ["round 1", "from 0 to 2", "3"]),
        ({2: {-1}}, ["round 2", "from 0 to 2", "-1"]),
        ({1.5: {0}}, ["round", "1.5"]),
        ({1: {"first"}}, ["round 1", "'first'"]),
    ],
    ids=str,
)
def test_failures_of_rounds_or_clients_that_do_not_exist_are_refused(failures, says):
    assert_refused(["failures", *says], failures=failures)


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "step"},
        {"decay_rounds": (2,)},
        {"schedule": "cosine", "decay_rounds": (2,)},
        {"schedule": "step", "decay_rounds": (0,)},
        {"schedule": "step", "decay_rounds": (1.5,)},
    ],
    ids=str,
)
def test_decay_rounds_and_the_step_schedule_go_together(options):
    assert_refused(["decay_rounds"], **options)


def test_ternary_values_need_the_ternary_compressor():
    assert_refused(["values", "ternary", "compressor", "'top-k'"], values="ternary")


def test_an_option_that_does_not_exist_is_refused_with_those_that_do():
    assert_refused(["'learning_rat'", "momentum", "participation"], learning_rat=0.1)


@pytest.mark.parametrize("name", ["local_steps", "sparsity", "rounds"])
def test_an_option_that_is_needed_is_named(name):
    assert_refused([name], **{name: None})


def test_tf32_needs_a_gpu():
    assert_refused(["precision", "tf32", "GPU"], precision="tf32")


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert_refused(["device", "cuda", "GPU"], device="cuda")


@pytest.mark.parametrize("name", ["energy_budget_joules", "time_budget_seconds"])
def test_a_budget_needs_a_fleet(name):
    assert_refused([name, "fleet"], **{name: 1.0})


def made_plan(devices=3):
    fleet = fj.Fleet(joules_per_bit=np.full(devices, 1e-7), joules_per_step=1e-3)
    problem = fj.ControlProblem(
        fleet=fleet,
        rounds=fj.PaperRounds(alpha=1e-4, beta=2.0),
        parameters=15,
        value_bits=32,
        sparsity=(1.0, 5.0),
        local_steps=range(1, 4),
    )
    return fj.solve(problem)


def test_either_a_plan_or_local_steps_and_sparsity_are_needed():
    assert_refused(["plan", "local_steps", "sparsity"], plan=made_plan())
    assert_refused(["plan", "local_steps", "sparsity"], local_steps=None, sparsity=None)


def test_a_plan_for_other_devices_is_refused():
    assert_refused(["sparsity", "3 clients", "got 2"], plan=made_plan(2), local_steps=None, sparsity=None)


@pytest.mark.parametrize("devices", [2, 4])
def test_a_fleet_of_another_size_is_refused(devices):
    fleet = fj.Fleet(joules_per_bit=np.ones(devices), joules_per_step=1.0)
    assert_refused(["fleet", "3 clients", f"got {devices}"], fleet=fleet)


# --- What it refuses: data and models

X, Y = CLIENTS[0]


def spoiled(array, value):
    copy = np.array(array, dtype=np.float64)
    copy.flat[3] = value
    return copy


DATA = {
    "no clients": ([], ["clients", "at least one"]),
    "no samples": ([(X[:0], Y[:0])], ["clients[0]", "at least one", "(0, 4)"]),
    "more inputs than targets": ([(X, Y), (X, Y[:2])], ["clients[1]", "(5, 4)", "(2,)"]),
    "a number as inputs": ([(3.0, Y)], ["clients[0]", "()"]),
    "only inputs": ([(X,)], ["clients[0]", "pair"]),
    "three arrays": ([(X, Y, Y)], ["clients[0]", "pair"]),
    "text": ([(np.array(["a", "b"]), Y[:2])], ["clients[0]", "arrays of numbers", "numpy.str_"]),
    "a negative label": ([(X, Y), (X, Y - 2)], ["clients[1]", "at least 0", "-"]),
    "a label beyond the outputs": ([(X, Y), (X, Y + 7)], ["label", str(int(Y.max()) + 7), "3 outputs"]),
    "a NaN input": ([(X, Y), (spoiled(X, math.nan), Y)], ["clients[1]", "finite", "NaN"]),
    "an infinite input": ([(spoiled(X, -math.inf), Y)], ["clients[0]", "finite", "infinity"]),
    "inputs beyond float32": ([(spoiled(X, 1e300), Y)], ["clients[0]", "finite"]),
    "inputs of another shape": ([(X, Y), (X[:, :3], Y)], ["clients[1]", "(4,)", "(3,)"]),
    "targets of another kind": ([(X, Y), (X, Y.astype(float))], ["clients[1]", "float32"]),
    "inputs that the model cannot take": ([(X[:, :3], Y)], ["model", "(3,)"]),
    "float labels": ([(X, Y.astype(float))], ["targets are numbers", "needs a loss"]),
    "labels in columns": ([(X, Y[:, None])], ["loss", "(2, 1)"]),
}


@pytest.mark.parametrize("title", DATA)
def test_data_that_cannot_be_trained_on_is_refused_and_named(title):
    clients, says = DATA[title]
    assert_refused(says, clients=clients)


@pytest.mark.parametrize(
    ("test", "says"),
    [
        ((X, Y[:2]), ["test", "(5, 4)", "(2,)"]),
        ((X[:0], Y[:0]), ["test", "at least one"]),
        ((spoiled(X, math.nan), Y), ["test", "finite"]),
        ((X, Y - 2), ["test", "at least 0"]),
        ((X,), ["test", "pair"]),
    ],
)
def test_a_test_set_is_checked_like_a_client(test, says):
    assert_refused(says, test=test)


@pytest.mark.parametrize(
    ("test", "says"), [((X, Y + 7), ["label", "3 outputs"]), ((X[:, :3], Y), ["test", "(3,)"])], ids=["labels", "shape"]
)
def test_a_test_set_that_the_model_cannot_take_is_refused_before_training(test, says):
    assert_refused(says, test=test)


class Pooled(nn.Module):
    """One output for a whole batch."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, inputs):
        return self.linear(inputs).mean(0)


class FrozenLazy(nn.Module):
    """A lazy module none of whose parameters is trained."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.LazyLinear(4), linear()
        for parameter in self.first.parameters():
            parameter.requires_grad = False

    def forward(self, inputs):
        return self.last(self.first(inputs))


def test_models_and_losses_that_do_not_fit_are_refused():
    assert_refused(["model", "one output per sample", "(3,)"], Pooled())
    assert_refused(["model", "must be float32", "bfloat16 for weight"], nn.Linear(4, 3, dtype=torch.bfloat16))
    assert_refused(["model", "gradient"], linear().requires_grad_(False))
    assert_refused(["model", "gradient"], nn.Identity())
    for lazy in (nn.LazyLinear(3), FrozenLazy(), nn.Sequential(linear(), nn.LazyBatchNorm1d(affine=False))):
        assert_refused(["model", "lazy", "one batch"], lazy)
    assert_refused(["loss", "(2, 3)"], loss=lambda outputs, targets: outputs - targets)
    assert_refused(["loss", "one number", "(2, 3)"], loss=lambda outputs, targets: outputs)


class Locked(nn.Linear):
    """Keeps something that cannot be copied."""

    def __init__(self):
        super().__init__(4, 3)
        self.lock = threading.Lock()


@pytest.mark.filterwarnings(
    "ignore:.*weight_norm:FutureWarning", "ignore:.*torch.jit:DeprecationWarning", "ignore:.*batching rule"
)
def test_models_that_cannot_be_copied_or_were_compiled_are_refused():
    old = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3)))
    for model in (old, nn.Sequential(*old, nn.Linear(3, 3).requires_grad_(False))):
        assert_refused(["'weight' of the module '0'", "torch.nn.utils.parametrizations.weight_norm"], model)
    assert_refused(["the model must be one that copy.deepcopy can copy", "TypeError: cannot pickle"], Locked())
    for compiled in (torch.jit.script(nn.Linear(4, 3)), torch.jit.trace(nn.Linear(4, 3), torch.zeros(2, 4))):
        assert_refused(["ordinary modules", "a module compiled by torch.jit"], compiled)
    assert_refused(["the module '1' compiled by torch.jit"], nn.Sequential(linear(), torch.jit.script(nn.ReLU())))
    assert train(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)))).stop_reason == "rounds"


def test_functions_that_fail_are_refused_with_the_round_or_time():
    says = [
        "learning_rate(3) must be a number, or one for each of 2 local steps",
        "ZeroDivisionError: float division by zero",
    ]
    assert_refused(says, learning_rate=lambda number: 0.1 / (number - 3))
    says = ["availability(0) must return true or false for each of 3 devices", "KeyError: 0.0"]
    assert_refused(says, availability=lambda time: {}[time])


@pytest.mark.filterwarnings("ignore::fewjoules.errors.FewJoulesWarning")
def test_a_model_that_cannot_take_a_single_sample_is_refused_where_a_client_has_one():
    cumulative = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=None))
    assert train(cumulative).metrics.size == 3
    one = reference.made_up_clients([5, 1], 4, 3, 1)
    assert_refused(["model", "more than 1 value per channel"], cumulative, one)


@pytest.mark.parametrize("options", [{}, {"inner": "adamw", "gradient_clip": 0.1}], ids=str)
@pytest.mark.parametrize("clients", [1, 3])
def test_a_parameter_that_is_one_number_is_trained(clients, options):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.scale = linear(), nn.Parameter(torch.tensor(1.0))

        def forward(self, inputs):
            return self.scale * self.linear(inputs)

    run = train(Scaled(), CLIENTS[:clients], sparsity=1.0, **options)
    assert run.model.scale.shape == ()
    assert run.model.scale.item() != 1.0


def test_a_target_that_is_not_finite_is_refused():
    values = np.array([[1.0], [math.nan], [2.0]])
    squares = {"loss": lambda outputs, targets: ((outputs - targets) ** 2).mean(1)}
    assert_refused(["clients[0]", "finite", "targets"], nn.Linear(4, 1), [(X[:3], values)], test=None, **squares)


WRONG_TYPES = {
    "no list of clients": {"clients": 5},
    "a model that is none": {"model": "resnet"},
    "a fleet that is none": {"fleet": 3},
    "a plan that is none": {"plan": 3, "local_steps": None, "sparsity": None},
    "failures of a number": {"failures": {1: 0}},
    "failures that are a list": {"failures": [1]},
    "decay rounds that are a number": {"schedule": "step", "decay_rounds": 3},
    "error feedback that is a word": {"error_feedback": "no"},
    "a target without a test set": {"target_accuracy": 0.5, "test": None},
    "a target loss without a test set": {"target_loss": 0.5, "test": None},
    "two targets": {"target_accuracy": 0.5, "target_loss": 0.5},
    "a loss and a perplexity": {"target_loss": 0.5, "target_perplexity": 2.0},
}


def test_what_is_no_function_is_refused_before_training():
    evaluated = []
    assert_refused(["on_round must be a function", "got 5"], on_round=5, metrics={"seen": evaluated.append})
    assert evaluated == []


@pytest.mark.parametrize("title", WRONG_TYPES)
def test_things_of_the_wrong_type_are_refused(title):
    assert_refused([], **WRONG_TYPES[title])


# --- Runs that diverge


def deep():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def test_a_loss_that_is_not_finite_names_round_and_client():
    with pytest.raises(DivergedError) as caught:
        train(deep(), learning_rate=1e30, rounds=10, guard=False)
    assert re.search(r"client [012]\b.*round [1-9]", str(caught.value))
    assert "\n" not in str(caught.value)


def test_the_client_that_diverges_is_the_one_that_is_named():
    """Only the last client's loss can leave float32."""
    huge = [CLIENTS[0], CLIENTS[1], (np.full((3, 4), 3e38, dtype=np.float32), np.array([0, 1, 2]))]
    with pytest.raises(DivergedError, match=r"client 2\b.*round 1\b"):
        train(clients=huge, test=None, guard=False)


def steep(outputs, targets):
    """Finite, with gradients that one step turns into infinite weights."""
    return 1e10 * nn.functional.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize(
    "compressor",
    ["ternary", "qsgd", "top-k", "random-k", "none"],
)
def test_an_update_that_is_not_finite_names_round_and_client(compressor):
    with pytest.raises(DivergedError, match=r"client 0\b.*round 1\b"):
        train(learning_rate=1e35, rounds=1, local_steps=1, test=None, loss=steep, compressor=compressor, guard=False)


def test_nothing_is_left_behind_by_a_run_that_diverged():
    model, threads, state = deep(), torch.get_num_threads(), torch.random.get_rng_state()
    before = reference.flat(model)
    with pytest.raises(DivergedError):
        train(model, learning_rate=1e30, rounds=10, guard=False)
    assert np.array_equal(reference.flat(model), before)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)


# --- What it gives back


def test_the_trained_model_is_in_evaluation_mode_and_ready_to_use():
    run = train(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).train())
    assert not run.model.training
    assert run.model(torch.from_numpy(X)).shape == (5, 3)
    assert all(p.requires_grad and p.grad is None for p in run.model.parameters())


def test_the_last_evaluation_is_that_of_the_trained_model():
    run = train(rounds=4)
    outputs = run.model(torch.from_numpy(X))
    labels = torch.from_numpy(Y)
    loss = nn.functional.cross_entropy(outputs, labels).item()
    assert run.metrics["test_loss"][-1] == pytest.approx(loss, rel=1e-5)
    assert run.metrics["test_accuracy"][-1] == (outputs.argmax(1) == labels).double().mean().item()


def test_the_train_loss_is_the_mean_over_the_batches_of_the_round():
    model = linear()
    run = train(model, batch_size=None, local_steps=1, rounds=1)
    tensors = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in CLIENTS]
    losses = [nn.functional.cross_entropy(model(x), y).item() for x, y in tensors]
    right = [(model(x).argmax(1) == y).float().mean().item() for x, y in tensors]
    assert run.metrics["train_loss"][0] == pytest.approx(np.mean(losses), rel=1e-5)
    assert run.metrics["train_accuracy"][0] == pytest.approx(np.mean(right), rel=1e-5)


@pytest.mark.parametrize(("every", "rounds", "seen"), [(2, 5, [2, 4, 5]), (1, 3, [1, 2, 3]), (100, 3, [3])])
def test_the_test_set_is_looked_at_every_so_many_rounds_and_after_the_last(every, rounds, seen):
    metrics = train(evaluate_every=every, rounds=rounds).metrics
    assert metrics["round"][np.isfinite(metrics["test_accuracy"])].tolist() == seen
    assert np.array_equal(np.isnan(metrics["test_loss"]), np.isnan(metrics["test_accuracy"]))


def test_a_run_stops_at_the_first_evaluation_that_meets_the_target():
    free = train(evaluate_every=1, rounds=40, learning_rate=0.5)
    target = float(free.metrics["test_accuracy"].max())
    run = train(evaluate_every=1, rounds=40, learning_rate=0.5, target_accuracy=target)
    first = int(np.argmax(free.metrics["test_accuracy"] >= target))
    assert run.stop_reason == "target accuracy"
    assert run.metrics["round"].tolist() == list(range(1, first + 2))


@pytest.mark.parametrize("name", ["loss", "perplexity"])
def test_a_run_stops_at_the_first_evaluation_that_meets_a_target_loss(name):
    free = train(evaluate_every=1, rounds=40, learning_rate=0.5)
    losses = free.metrics["test_loss"]
    limit = float(np.median(losses))
    target = limit if name == "loss" else math.exp(limit) * (1.0 + 1e-12)
    run = train(evaluate_every=1, rounds=40, learning_rate=0.5, **{f"target_{name}": target})
    assert run.stop_reason == "target loss"
    assert run.metrics["round"].tolist() == list(range(1, int(np.argmax(losses <= limit)) + 2))


def test_a_regression_can_be_trained_to_a_loss():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(50, 3)).astype(np.float32)
    data = inputs, (inputs @ np.array([[1.0], [-2.0], [0.5]])).astype(np.float32)
    given = {"local_steps": 5, "sparsity": 1.0, "rounds": 100, "learning_rate": 0.1, "evaluate_every": 1}
    run = fj.train(nn.Linear(3, 1), clients=[data], test=data, loss=nn.functional.mse_loss, target_loss=0.01, **given)
    assert run.stop_reason == "target loss"
    assert run.metrics["test_loss"][-1] <= 0.01 < run.metrics["test_loss"][-2]


def test_two_targets_are_refused_by_name():
    with pytest.raises(
        InvalidInputError, match=r"target_accuracy and target_loss are several targets.* at most one, got"
    ):
        train(target_accuracy=0.5, target_loss=0.3)


@pytest.mark.parametrize("evaluate_every", [1, 2, 100])
def test_every_round_is_reported_in_order_as_it_ends(evaluate_every):
    reports = []
    run = train(rounds=5, evaluate_every=evaluate_every, on_round=reports.append)
    assert [report.round for report in reports] == [1, 2, 3, 4, 5]
    assert [report.train_loss for report in reports] == run.metrics["train_loss"].tolist()
    assert [report.totals.payload_bytes for report in reports] == run.metrics["total_payload_bytes"].tolist()


def test_how_often_the_test_set_is_looked_at_changes_nothing_else():
    often, never = train(evaluate_every=1, rounds=6), train(evaluate_every=100, rounds=6)
    assert often.ledger.tobytes() == never.ledger.tobytes()
    assert np.array_equal(reference.flat(often.model), reference.flat(never.model))


# --- What its options mean


def test_a_cosine_schedule_falls_from_the_learning_rate_towards_zero():
    metrics = train(schedule="cosine", rounds=4, local_steps=2).metrics
    last_steps = np.array([1, 3, 5, 7])
    np.testing.assert_allclose(metrics["learning_rate"], 0.1 * 0.5 * (1 + np.cos(np.pi * last_steps / 8)))


def test_a_step_schedule_decays_after_each_of_its_rounds():
    metrics = train(schedule="step", decay_rounds=(1, 3), decay_factor=0.5, rounds=5).metrics
    np.testing.assert_allclose(metrics["learning_rate"], [0.1, 0.05, 0.05, 0.025, 0.025])


@pytest.mark.parametrize("schedule", [{"schedule": "cosine"}, {"schedule": "step", "decay_rounds": (1,)}])
def test_a_schedule_is_what_steps_are_taken_with(schedule):
    """One client that sends everything: the second round's change is the gradient times the second rate."""
    alone = {"clients": CLIENTS[:1], "batch_size": None, "local_steps": 1, "sparsity": 1.0, "test": CLIENTS[0]}
    model = linear()
    run = train(model, rounds=2, **alone, **schedule)
    weights, softmax = reference.flat(model), reference.SoftmaxRegression(4, 3)
    for rate in run.metrics["learning_rate"]:
        weights = weights - rate * softmax.gradient(weights, *CLIENTS[0])
    np.testing.assert_allclose(reference.flat(run.model), weights, atol=1e-6)


def test_one_sparsity_for_all_is_the_same_as_one_for_each():
    one, each = train(sparsity=3), train(sparsity=[3.0, 3.0, 3.0])
    assert one.ledger.tobytes() == each.ledger.tobytes()


@pytest.mark.parametrize(("sparsity", "entries"), [(1.0, 15), (2.0, 8), (6.0, 2), (14.0, 1), (1e9, 1)])
def test_k_is_parameters_over_sparsity_rounded_and_at_least_one(sparsity, entries):
    assert np.all(train(sparsity=sparsity).ledger["entries"] == entries)


def test_a_plan_brings_local_steps_sparsity_and_rounds():
    plan = made_plan()
    run = train(plan=plan, local_steps=None, sparsity=None, rounds=None, evaluate_every=1000)
    assert run.metrics.size == max(1, math.ceil(plan.rounds))
    assert np.all(run.ledger["local_steps"] == plan.local_steps)
    kept = np.maximum(1, np.rint(15 / plan.sparsity))
    assert np.array_equal(run.ledger["entries"][:3], kept)
    assert train(plan=plan, local_steps=None, sparsity=None, rounds=2).metrics.size == 2


class Column(Sequence):
    """A column of a Hugging Face data set with the format "torch": its items are tensors."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __len__(self):
        return len(self.tensor)

    def __getitem__(self, key):
        return list(self.tensor[key]) if isinstance(key, slice) else self.tensor[key]


def test_tensors_of_several_shapes_in_a_list_are_refused():
    ragged = ([torch.zeros(4), torch.zeros(5)], [0, 1])
    assert_refused(["clients[0] must hold arrays of numbers with samples of one shape"], clients=[ragged])


def test_numbers_of_numpy_are_options_like_those_of_python(tmp_path):
    given = {"rounds": np.int32(4), "local_steps": np.int64(2), "learning_rate": np.float32(0.5)}
    given |= {"decay_rounds": (np.int64(2),), "schedule": "step", "failures": {np.int64(1): {np.int32(0)}}}
    plain = {"rounds": 4, "local_steps": 2, "learning_rate": 0.5, "decay_rounds": [2], "failures": {1: [0]}}
    train(**given, out=tmp_path / "numpy", checkpoint_seconds=np.float32(1.0))
    train(**plain, schedule="step", out=tmp_path / "plain")
    one, other = (fj.Run.load(tmp_path / name, linear()) for name in ("numpy", "plain"))
    assert np.array_equal(reference.flat(one.model), reference.flat(other.model))
    settings = [json.loads((tmp_path / name / "settings.json").read_text())["options"] for name in ("numpy", "plain")]
    assert settings[0] == settings[1]


def test_arrays_tensors_and_lists_of_any_number_type_are_taken():
    expected = reference.flat(train().model)
    kinds = [
        [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in CLIENTS],
        [(x.astype(np.float64), y.astype(np.int32)) for x, y in CLIENTS],
        [(x.tolist(), y.tolist()) for x, y in CLIENTS],
        [[x, y.astype(np.uint8)] for x, y in CLIENTS],
        [(list(torch.from_numpy(x)), list(torch.from_numpy(y))) for x, y in CLIENTS],
        [(Column(torch.from_numpy(x)), Column(torch.from_numpy(y))) for x, y in CLIENTS],
    ]
    for clients in kinds:
        assert np.array_equal(reference.flat(train(clients=clients).model), expected)


def test_a_model_may_be_trained_to_targets_that_are_numbers():
    """Least squares by full gradients, whose optimum is known."""
    x = np.random.default_rng(0).normal(size=(8, 2))
    y = x @ np.array([[1.5], [-2.0]]) + 0.5
    torch.manual_seed(0)
    run = fj.train(
        nn.Linear(2, 1),
        clients=[(x[:4], y[:4]), (x[4:], y[4:])],
        test=(x, y),
        loss=lambda outputs, targets: ((outputs - targets) ** 2).mean(1),
        local_steps=1,
        sparsity=2.0,
        rounds=300,
        learning_rate=0.2,
        batch_size=None,
        evaluate_every=300,
        device="cpu",
    )
    np.testing.assert_allclose(reference.flat(run.model), [1.5, -2.0, 0.5], atol=1e-3)
    assert np.isnan(run.metrics["train_accuracy"]).all()
    assert np.isnan(run.metrics["test_accuracy"]).all()
    assert run.metrics["test_loss"][-1] < 1e-5


@pytest.mark.parametrize("compressor", ["top-k", "random-k", "ternary", "qsgd", "none"])
@pytest.mark.parametrize("error_feedback", [True, False])
def test_every_compressor_learns_and_repeats_itself(compressor, error_feedback):
    options = {"compressor": compressor, "error_feedback": error_feedback, "rounds": 30, "learning_rate": 0.3}
    first, again = train(**options), train(**options)
    assert np.array_equal(reference.flat(first.model), reference.flat(again.model))
    assert first.metrics["train_loss"][-5:].mean() < 0.9 * first.metrics["train_loss"][0]


def test_the_whole_surface_is_exported():
    assert fj.train.__module__ == "fewjoules.runs.train"
    assert {"train", "Run"} <= set(fj.__all__)


def test_a_model_that_overflows_in_the_last_round_is_a_divergence():
    rng = np.random.default_rng(0)
    data = rng.standard_normal((20, 4), dtype=np.float32), rng.integers(0, 3, 20)
    with pytest.raises(fj.DivergedError, match="the test loss after round 1 is NaN"):
        fj.train(
            nn.Linear(4, 3),
            clients=[data],
            test=data,
            local_steps=1,
            guard=False,
            sparsity=1.0,
            rounds=1,
            learning_rate=1e30,
            outer_rate=3e38,
            device="cpu",
        )


def regression(**given):
    rng = np.random.default_rng(0)
    data = rng.standard_normal((20, 4), dtype=np.float32), rng.standard_normal((20, 1), dtype=np.float32)
    settings = {"local_steps": 1, "sparsity": 1.0, "rounds": 2, "learning_rate": 0.1, "device": "cpu"}
    return fj.train(nn.Linear(4, 1), clients=[data], test=data, **settings | given)


def test_targets_that_are_numbers_need_a_loss():
    with pytest.raises(InvalidInputError, match="the targets are numbers, not labels, so train needs a loss"):
        regression()
    assert regression(loss=nn.functional.mse_loss).metrics["train_loss"][-1] > 0.0


def test_a_target_accuracy_is_refused_where_accuracy_is_never_known():
    with pytest.raises(InvalidInputError, match="target_accuracy needs a model with one score per class"):
        regression(loss=nn.functional.mse_loss, target_accuracy=0.9)


def planned_for(parameters):
    rounds = fj.PowerLawRounds(tau=20.0, c=0.0043, a=0.5, q=0.6)
    problem = fj.ControlProblem(
        fleet=fj.Fleet(joules_per_bit=[1e-7] * 3, joules_per_step=1e-3),
        rounds=rounds,
        parameters=parameters,
        sparsity=(1.0, 5.0),
        local_steps=[2],
    )
    return fj.solve(problem)


def test_a_plan_for_a_model_of_another_size_is_refused():
    own = {"local_steps": None, "sparsity": None}
    assert train(plan=planned_for(15), **own).metrics.size == 3
    assert_refused(["plan", "11,000,000 parameters", "a model of 15"], plan=planned_for(11_000_000), **own)


def test_a_sparsity_beyond_every_model_is_refused():
    assert_refused(["sparsity", "at most 1e+12", "1e+308"], sparsity=1e308)
