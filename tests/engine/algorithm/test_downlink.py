"""The compressed downlink: nothing is lost at the server, and clients hold its weights to the bit, wherever they were.

Server states come from ``server_step`` itself, fed with made-up mean updates; clients take up the real payloads.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import fewjoules as fj
from fewjoules.codec.values import KINDS
from fewjoules.engine.algorithm.downlink import (
    Downlink,
    broadcast_of,
    largest_on_device,
    sparse_of,
    taken_up,
)
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import RoundResult, plan_round
from fewjoules.engine.algorithm.server import server_step
from fewjoules.engine.algorithm.state import NO_MODEL, ServerState
from fewjoules.errors import CorruptPayloadError, DivergedError, InvalidInputError
from tests.engine.updates import SIZES, VECTORS, bits_of, vectors
from tests.reference import downlink as reference

SPARSITIES = (1.0, 3.0, 20.0)
OUTER = ("none", "momentum", "nesterov", "adam")
EXACT = ("float32", "float16", "bfloat16")  # kinds whose rounding of small whole numbers leaves whole numbers
ROUGH = sorted(set(KINDS) - set(EXACT))
CLIENTS = 4

sizes = st.integers(1, 60)
kinds = st.sampled_from(sorted(KINDS))
sparsities = st.sampled_from(SPARSITIES)
absences = st.lists(st.sets(st.integers(0, CLIENTS - 1), min_size=1), min_size=1, max_size=8)


def options_of(sparsity=1.0, values="float32", **given):
    usual = {"local_steps": 1, "sparsity": np.ones(CLIENTS), "rounds": 20, "learning_rate": 0.1, "seed": 3}
    return TrainingOptions.of(**usual, downlink_sparsity=sparsity, downlink_values=values, **given)


def initial(weights, options):
    start = torch.from_numpy(np.array(weights, dtype=np.float32))
    keeps = options.compresses_downlink
    return ServerState.initial(start, torch.zeros(0), CLIENTS, keeps_residual=keeps, notes_changes=True)


def after(state, options, update, here=range(CLIENTS)):
    """The state after a round in which the clients ``here`` took part and this was the mean of their updates."""
    everyone = np.ones(CLIENTS, dtype=np.int64)
    plan = plan_round(options, everyone, everyone, state.accepted, state.round + 1)
    plan = replace(plan, participants=np.array(sorted(here)))
    everything = np.ones(len(plan.participants), dtype=bool)
    mean = torch.from_numpy(np.array(update, dtype=np.float32))
    return server_step(state, plan, RoundResult(mean, state.buffers, everything, lambda: None))


def sparse_steps(size, seed, rounds, share=0.3):
    """Updates of many magnitudes, with many zeros of both signs: clients that were away lack only a part."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        step = np.ldexp(rng.normal(size=size), rng.integers(-30, 8, size)).astype(np.float32)
        yield np.where(rng.random(size) < share, step, rng.choice([0.0, -0.0], size).astype(np.float32))


# --- The server's step


@settings(max_examples=80, deadline=None)
@given(sizes, st.integers(0, 2**32), sparsities, kinds, st.sampled_from(OUTER))
def test_a_compressed_step_is_that_of_the_slow_reference_to_the_bit(size, seed, sparsity, values, outer):
    options = options_of(sparsity, values, outer=outer, outer_rate=0.7)
    exact = options_of(outer=outer, outer_rate=0.7)
    weights = vectors("normal", size, seed)
    state, twin = initial(weights, options), initial(weights, exact)
    residual = np.zeros(size, dtype=np.float32)
    for number, update in enumerate(sparse_steps(size, seed, 4), start=1):
        twin = after(twin, exact, update)  # tells the step before it is compressed
        state = after(state, options, update)
        sent, residual = reference.compressed(twin.broadcast.numpy(), residual, options, number)
        if not options.compresses_downlink:
            residual = residual[:0]
        weights = weights - sent
        np.testing.assert_array_equal(bits_of(state.weights.numpy()), bits_of(weights))
        np.testing.assert_array_equal(bits_of(state.residual.numpy()), bits_of(residual))
        residual = residual if residual.size else np.zeros(size, dtype=np.float32)


whole_numbers = arrays.arrays(np.int64, st.tuples(st.integers(1, 6), sizes), elements=st.integers(-9, 9))


@settings(max_examples=80, deadline=None)
@given(whole_numbers, st.sampled_from(SPARSITIES[1:]), st.sampled_from(EXACT))
def test_broadcasts_and_residual_are_the_sum_of_all_steps(steps, sparsity, values):
    options = options_of(sparsity, values)
    state = initial(np.zeros(steps.shape[1]), options)
    for step in steps:
        state = after(state, options, step)
    np.testing.assert_array_equal(state.residual.numpy() - state.weights.numpy(), steps.sum(axis=0))


@settings(max_examples=80, deadline=None)
@given(whole_numbers, sparsities, st.sampled_from(ROUGH))
def test_values_that_are_rounded_lose_nothing_but_the_last_digits(steps, sparsity, values):
    """A residual is rounded once, to half of its last digit, and so is a weight."""
    assume(not (values == "qsgd" and sparsity == 1.0 and steps.shape[1] > 20))  # no contraction: residuals grow
    options = options_of(sparsity, values)
    state, bound = initial(np.zeros(steps.shape[1]), options), 0.0
    for step in steps:
        state = after(state, options, step)
        bound += 2.0**-23 * float(state.residual.abs().max() + state.weights.abs().max() + 9.0)
    difference = state.residual.double().numpy() - state.weights.double().numpy() - steps.sum(axis=0)
    assert np.abs(difference).max() <= bound


def test_without_compression_the_broadcast_is_the_exact_step_and_nothing_is_kept():
    options = options_of(outer="nesterov", outer_rate=0.7)
    before = initial(vectors("normal", 50), options)
    state = after(before, options, vectors("normal", 50, 1))
    assert torch.equal(state.weights, before.weights - state.broadcast)
    assert torch.count_nonzero(state.broadcast) == 50
    assert state.residual.numel() == 0


def test_the_state_before_a_step_is_not_changed():
    options = options_of(3.0, "ternary")
    state = after(initial(vectors("normal", 30), options), options, vectors("normal", 30, 1))
    before = [tensor.clone() for tensor in (state.weights, state.residual, state.changed, state.broadcast)]
    after(state, options, vectors("normal", 30, 2))
    for tensor, kept in zip((state.weights, state.residual, state.changed, state.broadcast), before, strict=True):
        assert torch.equal(tensor, kept)


@pytest.mark.parametrize(("values", "bad"), [("float32", math.nan), ("ternary", math.inf), ("int8", math.nan)])
def test_a_step_that_cannot_be_sent_names_its_round(values, bad):
    with pytest.raises(DivergedError, match="the broadcast of round 7 cannot be sent"):
        broadcast_of(torch.tensor([1.0, bad, 2.0]), torch.zeros(3), options_of(2.0, values), 7)


# --- The choice on a GPU


@pytest.mark.parametrize("kind", VECTORS)
@pytest.mark.parametrize("size", SIZES)
def test_the_choice_by_whole_vectors_is_the_processors(kind, size):
    carried = vectors(kind, size, size)
    for k in {1, max(1, size // 7), max(1, size - 1)}:
        chosen = largest_on_device(torch.from_numpy(carried), k)
        sent, _ = fj.codec.compressors.top_k(carried, np.zeros_like(carried), k)
        np.testing.assert_array_equal(bits_of(chosen.numpy()), bits_of(sent.to_dense()))


@pytest.mark.gpu
@pytest.mark.parametrize("values", sorted(KINDS))
@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("kind", VECTORS)
@pytest.mark.parametrize("size", [1, 65, 4097, 1_000_003])
def test_a_broadcast_on_a_gpu_has_the_processors_bits(size, kind, sparsity, values):
    options = options_of(sparsity, values)
    largest = 30_000.0 if values == "float16" else np.inf  # two of which float16 can hold
    step, residual = (torch.from_numpy(np.clip(vectors(kind, size, seed), -largest, largest)) for seed in (1, 2))
    residual = residual if options.compresses_downlink else torch.zeros(0)
    here = broadcast_of(step, residual, options, 5)
    there = broadcast_of(step.cuda(), residual.cuda(), options, 5)
    for name in ("chosen", "sent", "residual"):
        assert getattr(there, name).is_cuda
        np.testing.assert_array_equal(bits_of(getattr(there, name).cpu().numpy()), bits_of(getattr(here, name).numpy()))


@pytest.mark.gpu
def test_rounds_on_a_gpu_note_the_same_changes_and_send_the_same_messages():
    options = options_of(20.0, "ternary", outer="none")
    here = initial(vectors("normal", 10_000), options)
    there = replace(
        here, **{name: getattr(here, name).cuda() for name in ("weights", "broadcast", "residual", "changed")}
    )
    for update in sparse_steps(10_000, 1, 5):
        plan = plan_round(options, np.ones(CLIENTS), np.ones(CLIENTS, np.int64), here.accepted, here.round + 1)
        result = RoundResult(torch.from_numpy(update), here.buffers, np.ones(CLIENTS, bool), lambda: None)
        here = server_step(here, plan, result)
        there = server_step(there, plan, replace(result, mean_update=result.mean_update.cuda()))
    assert torch.equal(there.changed.cpu(), here.changed)
    for held in range(NO_MODEL, 5):
        assert Downlink(there, options).message(held).payload == Downlink(here, options).message(held).payload


# --- What a client receives


@settings(max_examples=120, deadline=None)
@given(sizes, st.integers(0, 2**32), sparsities, kinds, st.sampled_from(OUTER), absences)
def test_a_client_that_was_away_for_any_rounds_holds_the_servers_weights_to_the_bit(
    size, seed, sparsity, values, outer, present
):
    options = options_of(sparsity, values, outer=outer)
    state = initial(np.where(np.arange(size) % 3, vectors("normal", size, seed), np.float32(-0.0)), options)
    held, weights = [NO_MODEL] * CLIENTS, [None] * CLIENTS
    for here, update in zip(present, sparse_steps(size, seed, len(present), 0.1), strict=True):
        downlink = Downlink(state, options)
        assert state.held_rounds(np.arange(CLIENTS)).tolist() == held
        for client in here:
            message = downlink.message(held[client])
            base = None if message.base == NO_MODEL else weights[client]
            weights[client] = taken_up(base, message.payload, assigns=message.assigns)
            np.testing.assert_array_equal(bits_of(weights[client]), bits_of(state.weights.numpy()))
            assert message.size_bytes == len(message.payload)
            held[client] = state.round
        state = after(state, options, update, here)


@settings(max_examples=60, deadline=None)
@given(sizes, st.integers(0, 2**32), sparsities, kinds, st.integers(2, 6))
def test_a_client_that_was_away_gets_the_weights_that_changed_and_no_others(size, seed, sparsity, values, rounds):
    options = options_of(sparsity, values)
    state = initial(vectors("normal", size, seed), options)
    models = [state.weights.numpy()]
    for update in sparse_steps(size, seed, rounds, 0.1):
        state = after(state, options, update)
        models.append(state.weights.numpy())
    for held in range(rounds - 1):
        message = Downlink(state, options).message(held)
        if message.base != NO_MODEL:
            assert message.assigns
            assert message.update.positions.tolist() == reference.positions_changed(models[held:])
        else:
            lacks = reference.positions_changed(models[held:])
            part = fj.SparseUpdate(size=size, positions=np.array(lacks, np.int64), values=models[-1][lacks])
            assert len(fj.codec.encode(part)) >= len(message.payload)


def test_a_weight_whose_zero_changes_its_sign_has_changed():
    """-1e-10 is -0.0 as float16: subtracted from a weight of -0.0, it leaves 0.0."""
    options = options_of(values="float16")
    start = np.full(100, -0.0, dtype=np.float32)
    state = after(initial(start, options), options, np.where(np.arange(100) == 7, -1e-10, 0.0))
    state = after(state, options, np.where(np.arange(100) == 9, 1.0, 0.0))
    message = Downlink(state, options).message(0)
    assert message.update.positions.tolist() == [7, 9]
    found = taken_up(start, message.payload, assigns=message.assigns)
    np.testing.assert_array_equal(bits_of(found), bits_of(state.weights.numpy()))
    assert not np.signbit(found[7])


def after_three_rounds(share, options):
    state, rng = initial(vectors("normal", 400), options), np.random.default_rng(1)
    for _ in range(3):
        state = after(state, options, rng.normal(size=400) * (rng.random(400) < share))
    return Downlink(state, options)


def test_each_client_gets_the_smallest_message_that_brings_it_up_to_date():
    few, many = after_three_rounds(0.02, options_of()), after_three_rounds(1.0, options_of())
    forms = [(one.base, one.assigns) for one in map(few.message, (NO_MODEL, 0, 1, 2))]
    assert forms == [(NO_MODEL, True), (0, True), (1, True), (2, False)]
    assert [many.message(held).base for held in (NO_MODEL, 0)] == [NO_MODEL] * 2
    sizes = [few.message(held).size_bytes for held in (2, 1, 0, NO_MODEL)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] / 10


def test_clients_that_hold_the_same_model_share_a_message():
    downlink = after_three_rounds(1.0, options_of())
    assert downlink.message(1) is downlink.message(1)
    assert downlink.message(0) is downlink.message(NO_MODEL)


def test_a_ternary_broadcast_is_smaller_than_a_change_of_float32():
    sent = {values: after_three_rounds(0.9, options_of(10.0, values)).message(2) for values in ("float32", "ternary")}
    assert not any(one.assigns for one in sent.values())
    assert sent["ternary"].size_bytes < 0.6 * sent["float32"].size_bytes


def test_where_changes_are_not_noted_a_client_that_was_away_gets_the_whole_model():
    options = options_of()
    state = ServerState.initial(torch.zeros(50), torch.zeros(0), CLIENTS)
    for update in sparse_steps(50, 1, 3, 0.1):
        state = after(state, options, update)
    assert [Downlink(state, options).message(held).base for held in (0, 1, 2)] == [NO_MODEL, NO_MODEL, 2]


def test_a_payload_for_another_model_is_refused():
    payload = fj.codec.encode(fj.SparseUpdate(size=3, positions=np.array([1]), values=np.ones(1, np.float32)))
    for assigns in (True, False):
        with pytest.raises(CorruptPayloadError, match="must be for 4 parameters, got 3"):
            taken_up(np.zeros(4, np.float32), payload, assigns=assigns)


def test_taking_a_message_up_leaves_the_old_weights_as_they_were():
    weights = np.arange(4, dtype=np.float32)
    payload = fj.codec.encode(sparse_update := sparse_of(torch.tensor([0.0, 2.0, 0.0, 1.0])))
    assert sparse_update.positions.tolist() == [1, 3]
    assert taken_up(weights, payload, assigns=False).tolist() == [0.0, -1.0, 2.0, 2.0]
    assert taken_up(weights, payload, assigns=True).tolist() == [0.0, 2.0, 2.0, 1.0]
    assert weights.tolist() == [0.0, 1.0, 2.0, 3.0]


# --- Options


@pytest.mark.parametrize(
    ("given_options", "says"),
    [
        ({"downlink_sparsity": 0.5}, ["downlink_sparsity", "1", "0.5"]),
        ({"downlink_sparsity": math.inf}, ["downlink_sparsity", "inf"]),
        ({"downlink_values": "float8"}, ["downlink_values", "ternary", "'float8'"]),
        ({"downlink": "cheap"}, ["downlink", "free, charged", "'cheap'"]),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(given_options, says):
    with pytest.raises(InvalidInputError) as refusal:
        TrainingOptions.of(local_steps=1, sparsity=[1.0], rounds=1, learning_rate=0.1, **given_options)
    assert all(part in str(refusal.value) for part in says)


def test_a_broadcast_that_is_rounded_at_random_depends_on_the_seed_and_the_round_alone():
    step, residual = torch.from_numpy(vectors("normal", 100)), torch.zeros(100)

    def sent(seed, number):
        options = replace(options_of(2.0, "qsgd"), seed=seed)
        return broadcast_of(step, residual, options, number).sent

    assert torch.equal(sent(1, 1), sent(1, 1))
    assert not torch.equal(sent(1, 1), sent(1, 2))
    assert not torch.equal(sent(1, 1), sent(2, 1))
