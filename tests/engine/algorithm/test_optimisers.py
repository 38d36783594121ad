"""Every option of the optimiser against the general reference, and that against PyTorch's own optimisers.

The reference is tests/reference/optimisers.py. A run counts only where float32 can be expected to follow float64: see
``Task.safe_trace``.
"""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import fewjoules as fj
from fewjoules.codec import values
from tests.engine.algorithm.harness import (
    TOLERANCE,
    client_state,
    close,
    make_task,
    models,
    rounds_of,
    weights_of,
)
from tests.reference import optimisers, training

QUICK = settings(max_examples=10, deadline=None)
KINDS = [kind for kind in values.KINDS if kind != "ternary"]  # which has a compressor of its own

ADAMW = {"inner": "adamw", "weight_decay": 0.1}
INNER = [
    {"inner": "momentum"},
    {"inner": "momentum", "momentum": 0.5, "momentum_state": "reset"},
    {"inner": "momentum", "momentum": 0.5, "momentum_state": "kept"},
    {"inner": "momentum", "momentum_state": "cleared"},
    ADAMW | {"momentum_state": "reset"},
    ADAMW | {"momentum_state": "kept"},
    ADAMW | {"momentum_state": "kept", "momentum": 0.5, "adam_beta2": 0.9, "adam_epsilon": 1e-3},
    {"weight_decay": 0.1},
    {"inner": "momentum", "momentum_state": "kept", "weight_decay": 0.1},
    {"gradient_clip": 0.3},
    ADAMW | {"momentum_state": "kept", "gradient_clip": 0.3},
]
RATES = [
    {"schedule": "cosine"},
    {"schedule": "step", "decay_rounds": (1, 2), "decay_factor": 0.5},
    {"warmup_rounds": 3},
    {"schedule": "cosine", "warmup_rounds": 2},
]
OUTER = [
    {"outer_rate": 0.5},
    {"outer": "momentum"},
    {"outer": "momentum", "outer_momentum": 0.5, "outer_rate": 0.7},
    {"outer": "nesterov"},
    {"outer": "nesterov", "outer_momentum": 0.5, "outer_rate": 0.7},
    {"outer": "adam", "outer_rate": 0.03},
    {"outer": "adam", "outer_momentum": 0.5, "outer_rate": 0.03, "outer_beta2": 0.9, "outer_epsilon": 1e-2},
]
RESIDUALS = [{"residual_decay": 0.5}, {"residual_decay": 0.0}, {"error_feedback": False}]
COMPRESSORS = [
    {"compressor": "random-k"},
    {"compressor": "ternary"},
    {"compressor": "qsgd"},
    {"compressor": "none"},
    {"compressor": "chunked-top-k"},
]
VALUES = [{"values": kind} for kind in KINDS if kind != "float32"]
COMPRESSIONS = [
    *COMPRESSORS,
    *(
        {"compressor": compressor, "values": kind}
        for compressor in ("top-k", "random-k", "chunked-top-k", "none")
        for kind in KINDS
    ),
]
LINEAR = [{"outer_rate": 0.7}, *(one for one in OUTER if one.get("outer") in ("momentum", "nesterov"))]


@st.composite
def federations(draw, most_clients=4, **fixed):
    """Small federations with everything that is not of the optimiser; ``fixed`` options are not drawn."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=most_clients))
    adamw = fixed.get("inner") == "adamw"
    drawn = {
        "local_steps": draw(st.integers(2 if adamw else 1, 3)),  # a first step of AdamW has ties: all entries are alike
        "rounds": draw(st.integers(2, 4)),
        "sparsity": [draw(st.sampled_from([1.0, 1.4, 2.0, 4.5, 100.0])) for _ in sizes],
        "learning_rate": draw(st.sampled_from([0.02, 0.1] if adamw else [0.05, 0.2, 0.5])),
        "batch_size": draw(st.sampled_from([None, 1, 2, 3, 10])),
        "batch_growth": draw(st.sampled_from([1.0, 1.1, 1.5])),
        "weighting": draw(st.sampled_from(["equal", "samples"])),
        "participation": draw(st.sampled_from([1.0, 0.5])),
        "failure_probability": draw(st.sampled_from([0.0, 0.3])),
        "failures": draw(st.dictionaries(st.integers(1, 4), st.sets(st.integers(0, len(sizes) - 1)), max_size=2)),
        "seed": draw(st.integers(0, 2**40)),
    }
    return make_task(draw(models), sizes, draw(st.integers(0, 2**32)), **drawn | fixed)


@st.composite
def recipes(draw):
    """Federations with every option of the optimiser at once."""
    inner = draw(st.sampled_from([{}, *INNER]))
    chosen = [{}, *RATES], [{}, *OUTER], [{}, *RESIDUALS], [{}, *COMPRESSORS]
    rest = [draw(st.sampled_from(options)) for options in chosen]
    options = dict(item for part in (inner, *rest) for item in part.items())
    return draw(federations(**options))


def fixed_task(clients=4, **changes):
    """One federation for what needs no search."""
    options = {
        "local_steps": 2,
        "rounds": 4,
        "sparsity": [1.0, 2.0, 4.5, 100.0][:clients],
        "learning_rate": 0.2,
        "batch_size": None,
        "seed": 7,
    }
    model = training.TwoLayers(2, hidden=3, classes=3)
    return make_task(model, [5, 3, 6, 4][:clients], 1, **options | changes)


def one_client(**changes):
    """A client alone that sends everything."""
    return fixed_task(clients=1, compressor="none", sparsity=[1.0], **changes)


# --- The reference is Algorithm 1, and PyTorch where PyTorch has the same


@QUICK
@given(federations(), st.booleans())
def test_the_reference_without_options_is_algorithm_1(task, error_feedback):
    given = task.options
    setting = training.Setting(
        local_steps=given["local_steps"],
        rounds=given["rounds"],
        kept=[max(1, round(task.model.size / sparsity)) for sparsity in given["sparsity"]],
        learning_rate=given["learning_rate"],
        batch_size=given["batch_size"],
        batch_growth=given["batch_growth"],
        error_feedback=error_feedback,
        importance=task.sizes if given["weighting"] == "samples" else None,
        lost=given["failures"],
    )
    literal = training.run(task.model, task.clients, task.start, setting, task.draw)
    extended = optimisers.run(
        task.model,
        task.clients,
        task.start,
        optimisers.Setting(
            **{name: given[name] for name in ("local_steps", "rounds", "sparsity", "learning_rate", "batch_size")},
            batch_growth=given["batch_growth"],
            error_feedback=error_feedback,
            importance=setting.importance,
            lost=given["failures"],
        ),
        task.draw,
    )
    assume(literal.smallest_gap > 1e-9)
    for theirs, ours in zip(literal.rounds, extended.rounds, strict=True):
        close(ours.weights, theirs.weights, 1e-12)
        close(ours.residuals, theirs.memories, 1e-12)


TORCH = [
    ({"inner": "sgd", "weight_decay": 0.1}, lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1)),
    (
        {"inner": "momentum", "momentum": 0.8, "weight_decay": 0.1},
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, weight_decay=0.1),
    ),
    (
        ADAMW | {"momentum": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-4},
        lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1),
    ),
    (ADAMW, lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1)),
]
against_torch = pytest.mark.parametrize(("options", "optimiser"), TORCH, ids=[str(options) for options, _ in TORCH])


def torch_weights(task, optimiser, clip=None):
    """Weights of the only client after each round of PyTorch's optimiser in float64; its state is kept or reset."""
    module = copy.deepcopy(task.module).double()
    inputs, targets = (torch.from_numpy(array) for array in task.clients[0])
    chosen = optimiser(module.parameters())
    for _ in range(task.options["rounds"]):
        if task.options["momentum_state"] == "reset":
            chosen = optimiser(module.parameters())
        for _ in range(task.options["local_steps"]):
            chosen.zero_grad()
            nn.functional.cross_entropy(module(inputs.double()), targets).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(module.parameters(), clip)
            chosen.step()
        yield training.flat(module)


@against_torch
@pytest.mark.parametrize("state", ["reset", "kept"])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_local_steps_of_the_reference_are_those_of_pytorch(options, optimiser, state, clip):
    task = one_client(**options, momentum_state=state, gradient_clip=clip, learning_rate=0.05, local_steps=3)
    for done, weights in zip(task.trace().rounds, torch_weights(task, optimiser, clip), strict=True):
        close(done.weights, weights, 1e-12)


@against_torch
@pytest.mark.parametrize("state", ["reset", "kept"])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_local_steps_of_the_engine_are_those_of_pytorch(options, optimiser, state, clip):
    task = one_client(**options, momentum_state=state, gradient_clip=clip, learning_rate=0.05, local_steps=3)
    simulator = task.simulator()
    for (_, _), weights in zip(rounds_of(simulator), torch_weights(task, optimiser, clip), strict=True):
        close(weights_of(simulator), weights)


def torch_server(task):
    """Weights after each round where PyTorch's SGD takes the outer step along the mean of all changes."""
    setting, options = task.setting(), task.options
    weights = nn.Parameter(torch.from_numpy(task.start))
    server = torch.optim.SGD(
        [weights],
        lr=options["outer_rate"],
        momentum=options["outer_momentum"],
        nesterov=options["outer"] == "nesterov",
    )
    size = task.model.size
    for number in range(1, options["rounds"] + 1):
        states = [optimisers.ClientState(np.zeros(size), np.zeros(size), np.zeros(size)) for _ in task.clients]
        now = weights.detach().numpy().copy()
        changes = [
            optimisers.local_change(task.model, data, now, states[m], setting, number, m)
            for m, data in enumerate(task.clients)
        ]
        weights.grad = torch.from_numpy(np.mean(changes, axis=0))
        server.step()
        yield weights.detach().numpy().copy()


outer_of_torch = pytest.mark.parametrize("outer", ["momentum", "nesterov"])


@outer_of_torch
def test_the_outer_step_of_the_reference_is_that_of_pytorch(outer):
    task = fixed_task(outer=outer, outer_momentum=0.8, outer_rate=0.7, compressor="none", rounds=5)
    for done, weights in zip(task.trace().rounds, torch_server(task), strict=True):
        close(done.weights, weights, 1e-12)


@outer_of_torch
def test_the_outer_step_of_the_engine_is_that_of_pytorch(outer):
    task = fixed_task(outer=outer, outer_momentum=0.8, outer_rate=0.7, compressor="none", rounds=5)
    simulator = task.simulator()
    for (_, _), weights in zip(rounds_of(simulator), torch_server(task), strict=True):
        close(weights_of(simulator), weights)


def test_the_outer_step_of_adam_is_that_of_fedadam():
    """[REDDI21, Algorithm 2] by hand: m = 0.1 g, s = 0.99 epsilon^2 + 0.01 g^2 after the first round, and so on."""
    setting = fixed_task(outer="adam", outer_rate=0.5).setting()
    server = optimisers.ServerState(np.zeros(1), np.zeros(1), np.full(1, 1e-6))
    optimisers.server_step(server, np.array([2.0]), setting)
    first = -0.5 * 0.2 / (math.sqrt(0.99e-6 + 0.04) + 1e-3)
    close(server.weights, [first], 1e-15)
    optimisers.server_step(server, np.array([-1.0]), setting)
    second = -0.5 * 0.08 / (math.sqrt(0.99 * (0.99e-6 + 0.04) + 0.01) + 1e-3)
    close(server.weights, [first + second], 1e-15)


def test_step_sizes_follow_warm_up_and_schedule():
    def rates(**options):
        setting = fixed_task(local_steps=2, rounds=4, learning_rate=1.0, **options).setting()
        return [optimisers.rate_of(setting, step // 2 + 1, step) for step in range(8)]

    assert rates(warmup_rounds=4) == [0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0, 1.0]
    assert rates(schedule="step", decay_rounds=(1, 3), decay_factor=0.5) == [1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]
    close(rates(schedule="cosine"), [0.5 * (1.0 + math.cos(math.pi * step / 8)) for step in range(8)], 1e-15)
    both = np.array(rates(schedule="cosine")) * rates(warmup_rounds=4)
    close(rates(schedule="cosine", warmup_rounds=4), both, 1e-15)


# --- The engine is the reference


def follows(task, chunk):
    """Hold weights and clients of the engine to the reference after every round."""
    simulator = task.simulator(chunk=chunk)
    seen, rows = [], []
    for _, new in rounds_of(simulator):
        rows.append(new)
        here = sorted(set(np.concatenate(rows)["device"].tolist()))
        seen.append((weights_of(simulator), {client: client_state(simulator, client) for client in here}))
    trace = task.safe_trace(np.concatenate(rows))
    keeps_momentum = task.options.get("momentum_state", "reset") != "reset"
    for (weights, clients), done in zip(seen, trace.rounds, strict=True):
        close(weights, done.weights)
        for client, kept in clients.items():
            close(kept["residual"], done.residuals[client])
            if keeps_momentum and task.options["inner"] != "sgd":
                close(kept["velocity"], done.velocities[client])
            if keeps_momentum and task.options["inner"] == "adamw":
                close(kept["squares"], done.squares[client])
                assert kept["steps"] == done.steps[client]


@pytest.mark.parametrize("options", [*INNER, *RATES, *OUTER, *RESIDUALS, *COMPRESSORS], ids=str)
@QUICK
@given(data=st.data(), chunk=st.sampled_from([1, 2, 4]))
def test_each_option_by_itself_is_that_of_the_reference_after_every_round(options, data, chunk):
    follows(data.draw(federations(**options)), chunk)


@pytest.mark.parametrize("options", VALUES, ids=str)
@QUICK
@given(data=st.data(), chunk=st.sampled_from([1, 2]))
def test_each_kind_of_values_is_that_of_the_reference_after_every_round(options, data, chunk):
    follows(data.draw(federations(most_clients=2, rounds=2, **options)), chunk)


@settings(max_examples=60, deadline=None)
@given(recipes(), st.sampled_from([1, 2, 4]))
def test_all_options_together_are_those_of_the_reference_after_every_round(task, chunk):
    follows(task, chunk)


@settings(max_examples=30, deadline=None)
@given(recipes())
def test_train_with_all_options_ends_where_the_reference_ends(task):
    run = task.train(test=task.clients[0])
    close(training.flat(run.model), task.safe_trace(run.ledger).rounds[-1].weights)


@pytest.mark.parametrize("options", [*INNER, *RATES[2:], *OUTER, *RESIDUALS[:2]], ids=str)
def test_an_option_changes_where_training_ends(options):
    changed, plain = fixed_task(**options), fixed_task()
    assert not np.allclose(training.flat(changed.train().model), training.flat(plain.train().model), atol=TOLERANCE)


def test_the_defaults_are_plain_algorithm_1():
    spelled = {
        "inner": "sgd",
        "weight_decay": 0.0,
        "gradient_clip": None,
        "residual_decay": 1.0,
        "outer": "none",
        "outer_rate": 1.0,
        "warmup_rounds": 0,
    }
    weights = [training.flat(task.train().model) for task in (fixed_task(), fixed_task(**spelled))]
    assert np.array_equal(*weights)


@pytest.mark.parametrize(
    ("short", "spelled"),
    [
        ({"inner": "momentum"}, {"momentum": 0.9, "momentum_state": "reset"}),
        (
            ADAMW | {"momentum_state": "kept"},
            {"momentum": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8},
        ),
        ({"outer": "nesterov"}, {"outer_momentum": 0.9, "outer_rate": 1.0}),
        ({"outer": "adam"}, {"outer_momentum": 0.9, "outer_rate": 1.0, "outer_beta2": 0.99, "outer_epsilon": 1e-3}),
    ],
    ids=str,
)
def test_constants_that_are_not_given_are_these(short, spelled):
    weights = [training.flat(fixed_task(**options).train().model) for options in (short, short | spelled)]
    assert np.array_equal(*weights)


# --- What a client keeps


@QUICK
@given(st.data(), st.sampled_from(COMPRESSORS))
def test_the_reference_clears_velocities_exactly_where_it_sent(data, compression):
    task = data.draw(federations(inner="momentum", momentum_state="cleared", batch_size=None, **compression))
    setting = task.but(participation=1.0).setting()
    for done in optimisers.run(task.model, task.clients, task.start, setting).rounds:
        assert not done.velocities[done.chosen].any()
        assert done.velocities[~done.chosen].all()


def test_the_engine_clears_velocities_exactly_where_it_sent_even_if_the_upload_was_lost():
    task = fixed_task(
        clients=1,
        sparsity=[3.0],
        rounds=5,
        inner="momentum",
        momentum_state="cleared",
        failures={3: {0}},
    )
    trace = optimisers.run(
        task.model, task.clients, task.start, optimisers.Setting(**vars(task.setting()) | {"lost": {3: {0}}})
    )
    assert trace.smallest_gap > 2 * TOLERANCE
    simulator = task.simulator()
    before = weights_of(simulator)
    for number, _ in rounds_of(simulator):
        after, velocity = weights_of(simulator), client_state(simulator, 0)["velocity"]
        chosen = trace.rounds[number - 1].chosen[0]
        assert np.array_equal(before != after, chosen & (number != 3))
        assert np.array_equal(velocity == 0.0, chosen)
        before = after


@QUICK
@given(recipes())
def test_clients_of_the_reference_that_are_away_keep_everything(task):
    M, rounds = len(task.clients), task.options["rounds"]
    setting = vars(task.setting()) | {"participants": [[number % M] for number in range(rounds)]}
    trace = optimisers.run(task.model, task.clients, task.start, optimisers.Setting(**setting), task.draw)
    for number, (before, after) in enumerate(zip(trace.rounds, trace.rounds[1:], strict=False), start=1):
        for m in set(range(M)) - {number % M}:
            for name in ("residuals", "velocities", "squares"):
                assert np.array_equal(getattr(after, name)[m], getattr(before, name)[m])
            assert after.steps[m] == before.steps[m]


@pytest.mark.parametrize(("inner", "state"), [("momentum", "kept"), ("momentum", "cleared"), ("adamw", "kept")])
def test_clients_of_the_engine_that_are_away_keep_everything(inner, state):
    task = fixed_task(inner=inner, momentum_state=state, participation=0.5, rounds=8, failure_probability=0.2)
    simulator = task.simulator()
    before = {}
    for _, rows in rounds_of(simulator):
        here = rows["device"].tolist()
        for client in set(before) - set(here):
            after = client_state(simulator, client)
            assert all(np.array_equal(after[name], before[client][name]) for name in after)
        before |= {client: client_state(simulator, client) for client in here}
    assert len(before) == 4


# --- Nothing is lost


@QUICK
@given(st.data(), st.sampled_from(COMPRESSIONS), st.sampled_from([1.0, 0.5]))
def test_what_the_reference_sends_and_keeps_is_what_it_kept_and_computed(data, compression, decay):
    task = data.draw(federations(residual_decay=decay, batch_size=None, participation=1.0, **compression))
    setting = optimisers.Setting(**vars(task.setting()) | {"lost": task.options["failures"]})
    before = np.zeros((len(task.clients), task.model.size))
    for number, done in enumerate(optimisers.run(task.model, task.clients, task.start, setting).rounds, start=1):
        close(done.sent + done.residuals, decay * before + done.changes, 1e-12)
        assert not done.sent[~done.chosen].any()
        lost = sorted(setting.lost.get(number, ()))
        assert not done.sent[lost].any()
        before = done.residuals


@pytest.mark.parametrize("decay", [1.0, 0.5])
@pytest.mark.parametrize("compression", COMPRESSIONS, ids=str)
def test_what_the_engine_sends_and_keeps_is_what_it_kept_and_computed(compression, decay):
    task = fixed_task(clients=1, sparsity=[3.0], rounds=5, residual_decay=decay, failures={3: {0}}, **compression)
    simulator, setting = task.simulator(), task.setting()
    weights, residual = weights_of(simulator), np.zeros(task.model.size)
    for number, _ in rounds_of(simulator):
        nothing = optimisers.ClientState(*np.zeros((3, task.model.size)))
        change = optimisers.local_change(task.model, task.clients[0], weights, nothing, setting, number, 0)
        sent, kept = weights - weights_of(simulator), client_state(simulator, 0)["residual"]
        close(sent + kept, decay * residual + change)
        assert sent.any() == (number != 3)
        weights, residual = weights_of(simulator), kept.astype(np.float64)


# --- Lemma 1 with momentum on the server: tests/reference/optimisers.py states and proves it


def virtual_weights(task, trace):
    """wt after each round: the outer optimiser fed with the mean changes that nothing compressed."""
    means = [done.shares @ done.changes for done in trace.rounds]
    return task.start - np.cumsum(optimisers.outer_steps(task.setting(), means), axis=0)


@QUICK
@given(
    st.data(),
    st.sampled_from(LINEAR),
    st.sampled_from(COMPRESSIONS),
    st.sampled_from([{}, ADAMW]),
    st.sampled_from([1.0, 0.5]),
)
def test_lemma_1_holds_for_the_reference_after_every_round(data, outer, compression, inner, decay):
    options = {"residual_decay": decay, "batch_size": None, "participation": 1.0, **outer, **compression, **inner}
    task = data.draw(federations(**options))
    setting = optimisers.Setting(**vars(task.setting()) | {"lost": task.options["failures"]})
    trace = optimisers.run(task.model, task.clients, task.start, setting)
    lags = optimisers.lag(setting, [done.shares @ done.residuals for done in trace.rounds])
    for done, virtual, lag in zip(trace.rounds, virtual_weights(task, trace), lags, strict=True):
        close(done.weights - virtual, lag, 1e-12)


def test_lemma_1_is_a_filter_of_the_mean_residuals():
    residuals = np.random.default_rng(0).standard_normal((5, 3))
    filtered = np.zeros(3)
    settings_of = {
        outer: fixed_task(outer=outer, outer_momentum=0.8, outer_rate=0.7).setting()
        for outer in ("none", "momentum", "nesterov")
    }
    lags = {outer: optimisers.lag(setting, residuals) for outer, setting in settings_of.items()}
    for number, mean in enumerate(residuals):
        filtered = 0.8 * filtered + mean
        close(lags["none"][number], 0.7 * mean, 1e-12)
        close(lags["momentum"][number], 0.7 * filtered, 1e-12)
        close(lags["nesterov"][number], 0.7 * (mean + 0.8 * filtered), 1e-12)


@pytest.mark.parametrize("outer", LINEAR, ids=str)
@QUICK
@given(data=st.data(), decay=st.sampled_from([1.0, 0.5]), chunk=st.sampled_from([1, 2, 4]))
def test_lemma_1_holds_for_the_engine_after_every_round(outer, data, decay, chunk):
    """Weights and residuals are the engine's, the mean changes the reference's."""
    task = data.draw(federations(residual_decay=decay, participation=1.0, **outer))
    simulator = task.simulator(chunk=chunk)
    weights, residuals, rows = [], [], []
    for _, new in rounds_of(simulator):
        rows.append(new)
        weights.append(weights_of(simulator))
        residuals.append(np.array([client_state(simulator, m)["residual"] for m in range(len(task.clients))]))
    trace = task.safe_trace(np.concatenate(rows))
    lags = optimisers.lag(task.setting(), [trace.rounds[0].shares @ rows for rows in residuals])
    close(np.array(weights) - lags, virtual_weights(task, trace))


# --- What is refused


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inner", "adam"),
        ("momentum_state", "forgotten"),
        ("outer", "sgd"),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("outer_momentum", 1.0),
        ("adam_beta2", 1.0),
        ("outer_beta2", 1.0),
        ("adam_epsilon", -1e-8),
        ("outer_epsilon", -1e-3),
        ("weight_decay", -0.1),
        ("gradient_clip", 0.0),
        ("gradient_clip", math.nan),
        ("residual_decay", -0.1),
        ("residual_decay", 1.1),
        ("outer_rate", 0.0),
        ("outer_rate", math.inf),
        ("warmup_rounds", -1),
        ("warmup_rounds", 1.5),
    ],
    ids=str,
)
def test_an_option_out_of_its_range_is_refused_by_name(name, value):
    using = {"inner": "adamw", "momentum_state": "kept", "outer": "adam"}
    with pytest.raises(fj.InvalidInputError, match=name):
        fixed_task(**using | {name: value}).train()
