"""A client's side of a round: what it computed is sent or kept, and nothing of it is ever lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.client import (
    Steps,
    client_round,
    dense_bytes,
    kept_vectors,
    new_client,
    settled,
    upload_of,
)
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.rule import InnerRule
from fewjoules.engine.algorithm.state import ClientState, LastUpload
from fewjoules.errors import DivergedError
from tests.engine.orders import order_of

QUICK = settings(max_examples=50, deadline=None)
wholes = st.integers(-1000, 1000).map(np.float32)  # sums of which float32 rounds nowhere
floats = st.floats(-1e3, 1e3, width=32).map(np.float32)
NOTHING = np.zeros(0, dtype=np.float32)


def options(**changes):
    return TrainingOptions.of(**{"local_steps": 1, "sparsity": np.ones(1), "rounds": 1, "learning_rate": 0.1} | changes)


def vectors(size, entries=floats):
    return st.lists(entries, min_size=size, max_size=size).map(lambda values: np.array(values, dtype=np.float32))


def steps(change, velocity=None, buffers=NOTHING):
    zeros = np.zeros(1)
    return Steps(change.copy(), buffers, None if velocity is None else velocity.copy(), None, zeros, zeros)


def state_with(residual, **more):
    return ClientState(residual=residual.copy(), **more)


# --- Lines 8 to 10


@QUICK
@given(st.data(), st.integers(1, 30))
def test_top_k_splits_what_was_computed_without_a_rounding_error(data, size):
    change, residual = data.draw(vectors(size)), data.draw(vectors(size))
    k = data.draw(st.integers(1, size))
    computed = residual + change
    upload, kept = upload_of(steps(change), state_with(residual), order_of(k=k))
    assert upload.update.count == k
    assert np.array_equal(upload.update.to_dense() + kept.residual, computed)
    assert not kept.residual[upload.update.positions].any()
    assert np.array_equal(settled(kept, 0).residual, computed)


@QUICK
@given(st.data(), st.integers(1, 30))
def test_without_error_feedback_what_is_not_sent_is_forgotten(data, size):
    change = data.draw(vectors(size))
    k = data.draw(st.integers(1, size))
    upload, kept = upload_of(steps(change), ClientState(), order_of(k=k, error_feedback=False))
    assert np.array_equal(upload.update.values, change[upload.update.positions])
    assert kept.residual is None
    assert settled(kept, 0).residual is None


@QUICK
@given(st.data(), st.integers(1, 10), st.sampled_from([0.0, 0.25, 0.5]))
def test_a_residual_that_decays_does_so_once_before_the_change_is_added(data, size, decay):
    change, residual = data.draw(vectors(size, wholes)), data.draw(vectors(size, wholes))
    upload, kept = upload_of(steps(change), state_with(residual), order_of(residual_decay=decay))
    assert np.array_equal(upload.update.to_dense() + kept.residual, change + np.float32(decay) * residual)


def test_momentum_is_cleared_where_entries_were_sent_and_there_alone():
    change, velocity = np.array([3.0, 0.1, -2.0, 0.2], np.float32), np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    for state, expected in (("cleared", [0.0, 2.0, 0.0, 4.0]), ("kept", velocity.tolist())):
        rule = InnerRule.of(options(inner="momentum", momentum_state=state))
        before = state_with(np.zeros(4, np.float32))
        _, kept = upload_of(steps(change, velocity), before, order_of(k=2, rule=rule))
        assert kept.velocity.tolist() == expected


def test_steps_are_counted_over_all_rounds():
    state = new_client(order_of(), 3)
    for number, local_steps in ((1, 2), (2, 5)):
        order = order_of(number, local_steps=local_steps, accepted=number - 1)
        _, state = upload_of(steps(np.ones(3, np.float32)), settled(state, number - 1), order)
    assert state.steps == 7


def test_buffers_are_paid_for_whole():
    change, buffers = np.ones(5, np.float32), np.arange(4, dtype=np.float32)
    bare, _ = upload_of(steps(change), new_client(order_of(), 5), order_of(k=2))
    full, _ = upload_of(steps(change, buffers=buffers), new_client(order_of(), 5), order_of(k=2))
    assert full.payload_bytes - bare.payload_bytes == dense_bytes(buffers) > 0
    assert dense_bytes(NOTHING) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_names_client_and_round(bad):
    change = np.array([1.0, bad, 2.0], np.float32)
    with pytest.raises(DivergedError, match=r"client 4 in round 7"):
        upload_of(steps(change), new_client(order_of(), 3), order_of(7, client=4, k=2))


# --- What a client hears of its uploads


def test_a_lost_upload_returns_to_the_residual():
    sent = SparseUpdate(size=3, positions=np.array([1]), values=np.array([2.5], dtype=np.float32))
    residual = np.array([0.5, 0.0, -1.0], dtype=np.float32)
    after = settled(state_with(residual, last_upload=LastUpload(4, sent)), 3)
    assert after.residual.tolist() == [0.5, 2.5, -1.0]
    assert after.last_upload is None


def test_an_accepted_upload_is_forgotten():
    sent = SparseUpdate(size=3, positions=np.array([1]), values=np.array([2.5], dtype=np.float32))
    residual = np.array([0.5, 0.0, -1.0], dtype=np.float32)
    after = settled(state_with(residual, last_upload=LastUpload(4, sent)), 4)
    assert after.residual.tolist() == residual.tolist()
    assert after.last_upload is None


@QUICK
@given(st.data(), st.integers(1, 12))
def test_an_upload_that_was_lost_and_only_heard_of_rounds_later_is_sent_again(data, size):
    """The client takes part in rounds 1, 3 and 4. Its upload of round 1 is lost, which the order of round 3 tells."""
    changes = {number: data.draw(vectors(size, wholes), label=f"change {number}") for number in (1, 3, 4)}
    k = data.draw(st.integers(1, size), label="k")
    heard = {1: 0, 3: 0, 4: 3}
    state, arrived, computed = new_client(order_of(), size), np.zeros(size, np.float32), np.zeros(size, np.float32)
    for number, change in changes.items():
        order = order_of(number, k=k, accepted=heard[number])
        upload, state = client_round(lambda _, order: steps(changes[order.round]), state, order)
        computed += change
        if number != 1:
            arrived += upload.update.to_dense()
        on_its_way = upload.update.to_dense() if number == 1 else 0.0
        assert np.array_equal(arrived + state.residual + on_its_way, computed)
    assert np.array_equal(arrived + settled(state, 4).residual, changes[1] + changes[3] + changes[4])


@QUICK
@given(st.data(), st.integers(1, 8), st.integers(1, 6))
def test_nothing_is_lost_or_counted_twice_whoever_is_there_and_whatever_is_lost(data, size, rounds):
    """The server has what arrived, and the client, once it has heard of all of its uploads, the rest."""
    state, arrived, computed = new_client(order_of(), size), np.zeros(size, np.float32), np.zeros(size, np.float32)
    accepted = 0
    for number in range(1, rounds + 1):
        if not data.draw(st.booleans(), label="takes part"):
            continue
        change = data.draw(vectors(size, wholes), label="change")
        order = order_of(number, k=data.draw(st.integers(1, size), label="k"), accepted=accepted)
        upload, state = client_round(lambda _, order, change=change: steps(change), state, order)
        computed += change
        if data.draw(st.booleans(), label="arrives"):
            arrived += upload.update.to_dense()
            accepted = number
    assert np.array_equal(arrived + settled(state, accepted).residual, computed)


def test_local_steps_start_from_what_was_taken_back():
    """``train`` sees the settled state: momentum and residual as they are once the lost upload is known."""
    sent = SparseUpdate(size=2, positions=np.array([0]), values=np.array([1.0], dtype=np.float32))
    before = state_with(np.zeros(2, np.float32), last_upload=LastUpload(1, sent))
    seen = []

    def train(state, order):
        seen.append(state.residual.tolist())
        return steps(np.zeros(2, np.float32))

    client_round(train, before, order_of(2, accepted=0))
    assert seen == [[1.0, 0.0]]


# --- What a client keeps


@pytest.mark.parametrize(
    ("given_options", "names"),
    [
        ({}, ["residual"]),
        ({"error_feedback": False}, []),
        ({"inner": "momentum"}, ["residual"]),
        ({"inner": "momentum", "momentum_state": "kept"}, ["residual", "velocity"]),
        ({"inner": "momentum", "momentum_state": "cleared"}, ["residual", "velocity"]),
        ({"inner": "adamw"}, ["residual", "velocity", "squares"]),
        ({"inner": "adamw", "momentum_state": "reset"}, ["residual"]),
        ({"inner": "adamw", "error_feedback": False}, ["velocity", "squares"]),
    ],
    ids=str,
)
def test_a_client_keeps_what_its_options_ask_for_and_no_more(given_options, names):
    chosen = options(**given_options)
    assert list(kept_vectors(chosen)) == names
    order = order_of(rule=InnerRule.of(chosen), error_feedback=chosen.error_feedback)
    fresh = new_client(order, 4)
    for name in ("residual", "velocity", "squares"):
        kept = getattr(fresh, name)
        assert (kept is not None) == (name in names)
        if kept is not None:
            assert kept.dtype == np.float32
            assert kept.tolist() == [0.0] * 4
    assert fresh.steps == 0
    assert fresh.last_upload is None
