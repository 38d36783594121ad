"""The training engine against the literal Algorithm 1 of tests/reference/training.py.

The engine computes in float32 and the reference in float64, and both must choose the same entries. A run counts only
where no choice was nearer to a tie than twice the tolerance: if the two agree to the tolerance, their choices are then
the same. Two classes are never used, for their gradients tie exactly (one is minus the other).
"""

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import fewjoules as fj
from fewjoules.engine.algorithm.participation import shares
from fewjoules.engine.algorithm.sampling import draw_batches
from fewjoules.engine.algorithm.streams import stream_key
from tests.engine.simulators import residuals, simulator_of
from tests.reference import training as reference

TOLERANCE = 5e-6
FEATURES, CLASSES = 2, 3
QUICK = settings(max_examples=20, deadline=None)


@dataclass(frozen=True)
class Case:
    """A model, its clients and the options of a run."""

    model: object
    clients: list
    module: nn.Module
    options: dict

    def simulator(self, **how):
        return simulator_of(self.module, self.clients, self.options, **how)

    def train(self):
        return fj.train(self.module, clients=self.clients, test=self.clients[0], device="cpu", **self.options)

    def draw(self, t, m, b):
        """The engine's own sample numbers, asked for one client and one step at a time."""
        key = stream_key(self.options["seed"], "batches")
        size = np.array([len(self.clients[m][1])])
        numbers, _ = draw_batches(key, np.array([m]), size, t, np.array([[b]]))
        return numbers[0, 0]

    def trace(self, rows):
        """The reference's run; who took part and whose upload was lost is read off the rows of the ledger."""
        given = self.options
        rounds = range(1, given["rounds"] + 1)
        of_round = {number: rows[rows["round"] == number] for number in rounds}
        sizes = [float(len(targets)) for _, targets in self.clients]
        setting = reference.Setting(
            local_steps=given["local_steps"],
            rounds=given["rounds"],
            kept=[max(1, round(self.model.size / sparsity)) for sparsity in given["sparsity"]],
            learning_rate=given["learning_rate"],
            batch_size=given["batch_size"],
            batch_growth=given["batch_growth"],
            momentum=given["momentum"],
            error_feedback=given["error_feedback"],
            importance=sizes if given["weighting"] == "samples" else None,
            participants=[of_round[number]["device"].tolist() for number in rounds],
            lost={n: set(of_round[n]["device"][~of_round[n]["delivered"]].tolist()) for n in rounds},
        )
        trace = reference.run(self.model, self.clients, reference.flat(self.module), setting, self.draw)
        assume(trace.smallest_gap > 2 * TOLERANCE)
        return trace


models = st.sampled_from(
    [reference.SoftmaxRegression(FEATURES, CLASSES), reference.TwoLayers(FEATURES, hidden=3, classes=CLASSES)]
)


@st.composite
def cases(draw, **fixed):
    """Small federations with every option that changes what is computed; ``fixed`` options are not drawn."""
    model = draw(models)
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    seed = draw(st.integers(0, 2**32))
    drawn = {
        "local_steps": draw(st.integers(1, 3)),
        "rounds": draw(st.integers(1, 4)),
        "sparsity": [draw(st.sampled_from([1.0, 1.4, 2.0, 4.5, 100.0])) for _ in sizes],
        "learning_rate": draw(st.sampled_from([0.05, 0.2, 0.5])),
        "batch_size": draw(st.sampled_from([None, 1, 2, 3, 10])),
        "batch_growth": draw(st.sampled_from([1.0, 1.1, 1.5])),
        "momentum": draw(st.sampled_from([0.0, 0.5, 0.9])),
        "error_feedback": draw(st.booleans()),
        "weighting": draw(st.sampled_from(["equal", "samples"])),
        "participation": draw(st.sampled_from([1.0, 0.5])),
        "failure_probability": draw(st.sampled_from([0.0, 0.3])),
        "failures": draw(st.dictionaries(st.integers(1, 4), st.sets(st.integers(0, len(sizes) - 1)), max_size=2)),
        "seed": draw(st.integers(0, 2**40)),
    }
    clients = reference.made_up_clients(sizes, FEATURES, CLASSES, seed)
    return Case(model, clients, reference.seeded_module(model, seed), drawn | fixed)


def fixed_case(**changes):
    """One case that uses everything, for what needs no search."""
    model = reference.TwoLayers(FEATURES, hidden=3, classes=CLASSES)
    options = {
        "local_steps": 2,
        "rounds": 4,
        "sparsity": [1.0, 2.0, 4.5, 100.0],
        "learning_rate": 0.2,
        "batch_size": 2,
        "batch_growth": 1.1,
        "momentum": 0.5,
        "error_feedback": True,
        "weighting": "samples",
        "participation": 1.0,
        "failure_probability": 0.2,
        "failures": {2: {1}},
        "seed": 7,
    }
    clients = reference.made_up_clients([5, 3, 6, 4], FEATURES, CLASSES, 1)
    return Case(model, clients, reference.seeded_module(model, 1), options | changes)


@dataclass(frozen=True)
class After:
    """What is there after a round: the global weights, the residuals of all clients, and the round's ledger rows."""

    weights: np.ndarray
    residuals: np.ndarray
    rows: np.ndarray


def run_rounds(simulator):
    """What is there after each round; the simulator is closed at the end."""
    try:
        for _ in range(simulator.options.rounds):
            rows = simulator.start_round()().rows
            yield After(simulator.state.weights.numpy().copy(), residuals(simulator), rows)
    finally:
        simulator.close()


def ledger(rounds):
    return np.concatenate([after.rows for after in rounds])


def close(engine, expected):
    np.testing.assert_allclose(np.asarray(engine, dtype=np.float64), expected, rtol=0, atol=TOLERANCE)


# --- Equality with Algorithm 1


@QUICK
@given(cases())
def test_train_is_algorithm_1(case):
    run = case.train()
    close(reference.flat(run.model), case.trace(run.ledger).rounds[-1].weights)


@QUICK
@given(cases(), st.sampled_from([1, 2, 4]))
def test_weights_and_residuals_are_those_of_algorithm_1_after_every_round_however_clients_are_chunked(case, chunk):
    rounds = list(run_rounds(case.simulator(threads=1, chunk=chunk)))
    trace = case.trace(ledger(rounds))
    for after, step in zip(rounds, trace.rounds, strict=True):
        close(after.weights, step.weights)
        if case.options["error_feedback"]:
            close(after.residuals, step.memories)


@QUICK
@given(cases(batch_size=None))
def test_all_local_data_at_every_step_is_algorithm_1_whatever_the_seed(case):
    weights = [reference.flat(replace(case, options=case.options | {"seed": seed}).train().model) for seed in (0, 1)]
    run = case.train()
    close(reference.flat(run.model), case.trace(run.ledger).rounds[-1].weights)
    if case.options["participation"] == 1.0 and case.options["failure_probability"] == 0.0:
        assert np.array_equal(*weights)


@QUICK
@given(cases())
def test_clients_that_took_part_keep_a_residual_with_error_feedback_and_none_without_it(case):
    simulator = case.simulator(threads=1)
    seen = set(ledger(list(run_rounds(simulator)))["device"].tolist())
    for client in range(len(case.clients)):
        kept = simulator.backend.client_state(client)
        assert (kept is not None) == (client in seen)
        if kept is not None and case.options["error_feedback"]:
            assert kept.residual.shape == (case.model.size,)
        elif kept is not None:
            assert kept.residual is None
    assert simulator.backend.save().tensors()["numbers"].tolist() == sorted(seen)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_velocity_starts_from_rest_in_every_round(momentum):
    once = fixed_case(rounds=2, local_steps=1, momentum=momentum, batch_size=None, failure_probability=0.0, failures={})
    plain = replace(once, options=once.options | {"momentum": 0.0})
    weights = [reference.flat(case.train().model) for case in (once, plain)]
    assert np.array_equal(*weights)


def test_momentum_matters_where_a_round_has_two_steps():
    fast, plain = fixed_case(), fixed_case(momentum=0.0)
    assert not np.array_equal(reference.flat(fast.train().model), reference.flat(plain.train().model))


# --- What must not depend on how a run is computed


def test_chunks_of_one_two_and_all_clients_agree_to_rounding():
    first, *others = [list(run_rounds(fixed_case().simulator(threads=1, chunk=chunk)))[-1] for chunk in (1, 2, 3, 4)]
    for other in others:
        close(other.weights, first.weights.astype(np.float64))
        close(other.residuals, first.residuals.astype(np.float64))


@pytest.mark.parametrize("chunk", [1, 2])
def test_the_number_of_threads_does_not_change_a_bit(chunk):
    runs = [list(run_rounds(fixed_case().simulator(threads=threads, chunk=chunk))) for threads in (1, 2, 3)]
    for one, *others in zip(*runs, strict=True):
        for other in others:
            assert other.weights.tobytes() == one.weights.tobytes()
            assert other.residuals.tobytes() == one.residuals.tobytes()
            assert other.rows.tobytes() == one.rows.tobytes()


@pytest.mark.parametrize("dropout", [False, True])
def test_the_number_of_threads_does_not_change_a_bit_where_nobody_chose_a_chunk(dropout):
    case = fixed_case(rounds=20, sparsity=[3.0] * 6)
    case = replace(case, clients=[*case.clients, *case.clients[:2]])  # enough for stacks
    case = replace(case, module=dropout_net()) if dropout else case
    one, four = (case.simulator(threads=threads) for threads in (1, 4))
    finals = [list(run_rounds(simulator))[-1].weights for simulator in (one, four)]
    assert one.execution == four.execution
    assert one.execution.stacked
    assert np.array_equal(*finals)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    first, again, other = (fixed_case(seed=seed).train() for seed in (7, 7, 8))
    assert reference.flat(first.model).tobytes() == reference.flat(again.model).tobytes()
    assert first.ledger.tobytes() == again.ledger.tobytes()
    assert first.metrics.tobytes() == again.metrics.tobytes()
    assert reference.flat(first.model).tobytes() != reference.flat(other.model).tobytes()


@pytest.mark.parametrize("seed", range(3))
def test_a_change_of_one_clients_sparsity_leaves_what_all_clients_compute_in_the_first_round(seed):
    plain, sparse = fixed_case(seed=seed, rounds=1), fixed_case(seed=seed, rounds=1, sparsity=[100.0] * 4)
    losses = [case.train().metrics["train_loss"][0] for case in (plain, sparse)]
    assert losses[0] == losses[1]


def test_the_callers_model_is_not_changed():
    model = nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES)).eval()
    model[0].bias.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    run = fj.train(
        model, clients=fixed_case().clients, local_steps=2, sparsity=2.0, rounds=2, learning_rate=0.1, device="cpu"
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not model.training
    assert all(p.grad is None for p in model.parameters())
    assert run.model is not model
    assert torch.equal(run.model[0].bias, model[0].bias), "a frozen parameter stays"
    assert not torch.equal(run.model[0].weight, model[0].weight)


def dropout_net():
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))


@pytest.mark.parametrize("dropout", [False, True])
def test_global_random_state_and_thread_count_are_as_before(dropout):
    case = fixed_case()
    case = replace(case, module=dropout_net()) if dropout else case
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    case.train()
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_model_with_dropout_trains_the_same_for_a_seed_whatever_the_global_generator():
    module = dropout_net()
    finals = []
    for seed, global_seed in ((3, 0), (3, 1), (4, 0)):
        torch.manual_seed(global_seed)
        finals.append(reference.flat(replace(fixed_case(seed=seed, batch_size=None), module=module).train().model))
    assert np.array_equal(finals[0], finals[1])
    assert not np.array_equal(finals[0], finals[2])


# --- What the theory says


@QUICK
@given(cases(participation=1.0, error_feedback=True))
def test_lemma_1_holds_at_every_local_step_of_the_reference(case):
    """sum_m p_m v_m - wt = sum_m p_m e_m, where wt is SGD along the mean of all directions."""
    trace = case.trace(ledger(run_rounds(case.simulator(threads=1))))
    virtual = reference.flat(case.module)
    for step in trace.steps:
        virtual = virtual - case.options["learning_rate"] * step.shares @ step.directions
        np.testing.assert_allclose(step.shares @ step.local - virtual, step.shares @ step.memories, rtol=0, atol=1e-12)


@QUICK
@given(cases(participation=1.0, error_feedback=True), st.sampled_from([1, 2, 4]))
def test_lemma_1_holds_for_the_simulator_at_the_end_of_every_round(case, chunk):
    """The virtual iterate comes from the reference's gradients, weights and residuals from the simulator."""
    rounds = list(run_rounds(case.simulator(threads=1, chunk=chunk)))
    trace = case.trace(ledger(rounds))
    virtual = reference.flat(case.module)
    for number, step in enumerate(trace.steps, start=1):
        virtual = virtual - case.options["learning_rate"] * step.shares @ step.directions
        if number % case.options["local_steps"] == 0:
            after = rounds[number // case.options["local_steps"] - 1]
            close(after.weights.astype(np.float64) - step.shares @ after.residuals.astype(np.float64), virtual)


@QUICK
@given(models, st.integers(1, 4), st.integers(0, 1000), st.sampled_from([0.0, 0.9]))
def test_everything_sent_after_every_step_is_distributed_sgd(model, clients, seed, momentum):
    """With H = 1 a round has one step, so that momentum does nothing either."""
    data = reference.made_up_clients(range(2, 2 + clients), FEATURES, CLASSES, seed)
    module = reference.seeded_module(model, seed)
    run = fj.train(
        module,
        clients=data,
        local_steps=1,
        sparsity=1.0,
        rounds=5,
        learning_rate=0.3,
        batch_size=None,
        momentum=momentum,
        device="cpu",
    )
    rival = copy.deepcopy(module).double()
    optimiser = torch.optim.SGD(rival.parameters(), lr=0.3)
    tensors = [(torch.from_numpy(x).double(), torch.from_numpy(y)) for x, y in data]
    for _ in range(5):
        optimiser.zero_grad()
        losses = [nn.functional.cross_entropy(rival(x), y) for x, y in tensors]
        torch.stack(losses).mean().backward()
        optimiser.step()
    close(reference.flat(run.model), reference.flat(rival))


# --- Residual plus sent is what was computed: client.py has its own tests, these are of whole rounds


def splits(rounds, **compression):
    """Round by round for one client: what it sent, its new residual, and its old residual plus w - v.

    A second client without error feedback that starts each round at the same state and sends everything shows w - v.
    """
    options = {"failures": {3: {0}}, "failure_probability": 0.0, "batch_size": 3, "rounds": rounds}
    one = fixed_case(sparsity=[3.0], **options, **compression)
    one = replace(one, clients=one.clients[:1])
    dense = replace(fixed_case(sparsity=[1.0], **options | {"failures": {}}, error_feedback=False), clients=one.clients)
    sparse, open_book = one.simulator(threads=1), dense.simulator(threads=1)
    for _ in range(rounds):
        state, residual = sparse.state, residuals(sparse)[0]
        open_book.state = state
        open_book.start_round()()
        sparse.start_round()()
        sent = sparse.state.broadcast.numpy()
        assert torch.equal(sparse.state.weights, state.weights - sparse.state.broadcast)
        yield sent, residuals(sparse)[0], residual + open_book.state.broadcast.numpy()
    sparse.close()
    open_book.close()


def test_sent_plus_new_residual_is_old_residual_plus_the_local_change_to_the_bit():
    for number, (sent, residual, computed) in enumerate(splits(5), start=1):
        assert np.array_equal(sent + residual, computed)
        assert np.count_nonzero(sent) == (0 if number == 3 else round(sent.size / 3.0))


@pytest.mark.parametrize(
    "compression",
    [
        {"compressor": "random-k"},
        {"compressor": "ternary"},
        {"compressor": "qsgd"},
        {"compressor": "none"},
        {"values": "float16"},
        {"values": "int8"},
        {"compressor": "random-k", "values": "qsgd"},
    ],
    ids=str,
)
def test_what_other_compressors_leave_out_or_round_away_is_in_the_residual(compression):
    for number, (sent, residual, computed) in enumerate(splits(5, **compression), start=1):
        close(sent + residual, computed.astype(np.float64))
        assert sent.any() == (number != 3)
        if compression.get("compressor") != "none":
            assert residual.any()


@QUICK
@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=6), st.data())
def test_shares_of_the_participants_are_in_proportion_and_sum_to_one(importance, data):
    here = sorted(data.draw(st.sets(st.integers(0, len(importance) - 1), min_size=1)))
    parts = shares(np.array(importance), np.array(here))
    np.testing.assert_allclose(parts, [importance[m] / sum(importance[n] for n in here) for m in here])


def test_when_every_upload_is_lost_the_model_stays_and_nothing_is_forgotten():
    case = fixed_case(failure_probability=1.0, rounds=3)
    rounds = list(run_rounds(case.simulator(threads=1)))
    start = reference.flat(case.module).astype(np.float32)
    assert all(np.array_equal(after.weights, start) for after in rounds)
    assert not ledger(rounds)["delivered"].any()
    assert all(np.abs(after.residuals).sum(axis=1).min() > 0 for after in rounds)


# --- Who takes part


@QUICK
@given(st.integers(1, 6), st.sampled_from([0.01, 0.3, 0.5, 0.75, 1.0]), st.integers(0, 100))
def test_each_round_has_the_same_number_of_participants_and_all_of_them_get_their_turn(clients, fraction, seed):
    data = reference.made_up_clients([2] * clients, FEATURES, CLASSES, seed)
    module = reference.seeded_module(reference.SoftmaxRegression(FEATURES, CLASSES), seed)
    run = fj.train(
        module,
        clients=data,
        test=data[0],
        local_steps=1,
        sparsity=1.0,
        rounds=40,
        learning_rate=0.1,
        participation=fraction,
        evaluate_every=40,
        seed=seed,
        device="cpu",
    )
    counts = np.bincount(run.ledger["round"])[1:]
    assert np.all(counts == max(1, round(fraction * clients)))
    turns = np.bincount(run.ledger["device"], minlength=clients)
    mean = 40 * counts[0] / clients
    assert np.all(np.abs(turns - mean) <= 6 * np.sqrt(mean) + 1)
    for number in range(1, 41):
        assert len(set(run.ledger["device"][run.ledger["round"] == number])) == counts[0]


def test_failures_come_as_often_as_they_are_said_to_and_do_not_shift_the_participants():
    calm, rough = (fixed_case(rounds=60, participation=0.5, failure_probability=p, failures={}) for p in (0.0, 0.3))
    calm_ledger, rough_ledger = calm.train().ledger, rough.train().ledger
    assert np.array_equal(calm_ledger["device"], rough_ledger["device"])
    assert calm_ledger["delivered"].all()
    lost = np.count_nonzero(~rough_ledger["delivered"])
    assert abs(lost - 36) < 5 * np.sqrt(120 * 0.3 * 0.7)


def test_a_client_that_was_not_there_keeps_its_residual():
    simulator = fixed_case(participation=0.5, rounds=6).simulator(threads=1)
    before = residuals(simulator)
    for after in run_rounds(simulator):
        away = np.setdiff1d(np.arange(4), after.rows["device"])
        assert away.size == 2
        assert np.array_equal(after.residuals[away], before[away])
        before = after.residuals
