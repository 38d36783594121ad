"""Rows of what clients keep, on the processor: made on first use, found again, and saved and restored whole."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.engine.simulator.cuda.kept import KeptRows
from fewjoules.engine.store.client_store import ClientStore

SIZE, CLIENTS = 3, 12
CPU = torch.device("cpu")
NAMES = ("residual", "velocity")
QUICK = settings(deadline=None, max_examples=60)

participants = st.sets(st.integers(0, CLIENTS - 1), min_size=1).map(lambda chosen: np.array(sorted(chosen)))
rounds_of = st.lists(participants, min_size=1, max_size=8)


def rows(names=NAMES, clients=CLIENTS):
    return KeptRows(ClientStore(names, SIZE), clients, CPU)


def play(kept, rounds, first=1):
    """Each round writes its number and the client's into the client's rows, and counts as many steps."""
    for number, chosen in enumerate(rounds, start=first):
        where = kept.rows(chosen)
        for scale, name in enumerate(kept.names, start=1):
            values = kept.take(name, where)
            values[:] = torch.from_numpy(scale * (100.0 * number + chosen))[:, None].float()
            kept.put(name, where, values)
        kept.count_steps(where, number)


def assert_played(kept, rounds):
    for client in range(CLIENTS):
        seen = [number for number, chosen in enumerate(rounds, start=1) if client in chosen]
        state = kept.client(client)
        assert (state is not None) == bool(seen)
        if state is not None:
            assert state.steps == sum(seen)
            for scale, name in enumerate(kept.names, start=1):
                assert getattr(state, name).tolist() == [scale * (100.0 * seen[-1] + client)] * SIZE


@QUICK
@given(rounds_of)
def test_every_client_finds_what_it_kept_when_it_last_took_part(rounds):
    kept = rows()
    play(kept, rounds)
    assert_played(kept, rounds)


@QUICK
@given(rounds_of, rounds_of)
def test_saving_and_restoring_changes_nothing_and_what_comes_after_neither(before, after):
    kept = rows()
    play(kept, before)
    table = kept.save()
    saved = table.tensors()
    restored = rows()
    play(restored, after)
    restored.restore(table)
    assert_played(restored, before)
    again = restored.save().tensors()
    assert again.keys() == saved.keys()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in again.items())
    play(restored, after, first=len(before) + 1)
    assert_played(restored, before + after)


@QUICK
@given(rounds_of, rounds_of, st.sampled_from([1, 3, CLIENTS]), st.booleans())
def test_rounds_are_taken_back_to_what_was_held(before, after, most, saved):
    kept = KeptRows(ClientStore(NAMES, SIZE), most, CPU, most_held=10 * CLIENTS)
    play(kept, before)
    if saved:
        kept.save()
    kept.hold()
    play(kept, after)
    moved = int(after[0][0])
    state = kept.client(moved)
    kept.drop_client(moved)
    kept.put_client(CLIENTS - 1 - moved, state)
    assert kept.take_back()
    assert_played(kept, before)
    play(kept, after, first=len(before) + 1)
    assert_played(kept, before + after)
    assert not kept.take_back()


def test_more_rows_than_there_is_room_for_are_not_held():
    kept = KeptRows(ClientStore(NAMES, SIZE), CLIENTS, CPU, most_held=4)
    kept.hold()
    play(kept, [np.arange(3), np.arange(3, 5)])
    assert not kept.take_back()
    kept.hold()
    play(kept, [np.arange(4)], first=3)
    assert kept.take_back()
    assert_played(kept, [np.arange(3), np.arange(3, 5)])


@QUICK
@given(rounds_of)
def test_what_is_saved_is_one_row_for_each_client_that_took_part_in_order(rounds):
    kept = rows()
    play(kept, rounds)
    saved = kept.save().tensors()
    seen = sorted({int(client) for chosen in rounds for client in chosen})
    assert saved["numbers"].tolist() == seen
    assert saved["steps"].tolist() == [kept.client(client).steps for client in seen]
    for name in NAMES:
        assert saved[name].shape == (len(seen), SIZE)
        assert saved[name][:, 0].tolist() == [getattr(kept.client(client), name)[0] for client in seen]


def test_what_was_saved_does_not_change_with_the_rounds_that_follow():
    kept = rows()
    play(kept, [np.arange(4)])
    saved = kept.save()
    before = saved.tensors()
    play(kept, [np.arange(4)], first=2)
    assert all(torch.equal(tensor, before[name]) for name, tensor in saved.tensors().items())
    assert not torch.equal(kept.save().tensors()["residual"], before["residual"])


def test_rows_are_made_when_a_client_first_takes_part():
    kept = rows()
    assert kept.client(5) is None
    assert kept.save().tensors()["numbers"].tolist() == []
    assert set(kept.save().tensors()) == {"numbers", "steps"}
    first = kept.rows(np.array([5, 9]))
    assert kept.take("residual", first).tolist() == [[0.0] * SIZE] * 2
    assert kept.steps(first).tolist() == [0, 0]
    assert kept.client(5).residual.tolist() == [0.0] * SIZE
    assert kept.client(6) is None


@QUICK
@given(rounds_of)
def test_there_are_never_more_rows_than_twice_the_clients_that_took_part_nor_than_clients(rounds):
    kept = rows()
    seen = set()
    for chosen in rounds:
        kept.rows(chosen)
        seen |= set(chosen.tolist())
        room = kept._steps.size
        assert len(seen) <= room <= min(CLIENTS, 2 * len(seen))
        assert all(matrix.shape == (room, SIZE) for matrix in kept._matrices.values())


@QUICK
@given(st.integers(0, CLIENTS - 1), st.data())
def test_neighbours_are_a_view_that_needs_no_copy(start, data):
    kept = rows()
    kept.rows(np.arange(CLIENTS))
    chosen = np.arange(start, data.draw(st.integers(start + 1, CLIENTS)))
    where = kept.rows(chosen)
    assert where == slice(start, start + chosen.size)
    kept.take("residual", where)[:] = 1.0
    held = [kept.client(client).residual[0] == 1.0 for client in range(CLIENTS)]
    assert held == [client in chosen for client in range(CLIENTS)]


def test_rows_apart_are_a_copy_that_has_to_be_put_back():
    kept = rows()
    kept.rows(np.arange(CLIENTS))
    where = kept.rows(np.array([1, 3]))
    values = kept.take("velocity", where)
    values[:] = 2.0
    assert kept.client(1).velocity.tolist() == [0.0] * SIZE
    kept.put("velocity", where, values)
    assert kept.client(3).velocity.tolist() == [2.0] * SIZE
    assert kept.client(2).velocity.tolist() == [0.0] * SIZE


def test_new_values_may_be_put_over_neighbours():
    kept = rows()
    where = kept.rows(np.array([4, 7]))
    kept.put("residual", where, torch.ones(2, SIZE))
    assert kept.client(7).residual.tolist() == [1.0] * SIZE


@pytest.mark.parametrize("names", [(), ("residual",), ("residual", "velocity", "squares")], ids=str)
def test_clients_keep_the_vectors_that_are_named(names):
    kept = rows(names)
    kept.count_steps(kept.rows(np.array([2, 0])), 4)
    state = kept.client(2)
    assert state.steps == 4
    assert {name for name in ("residual", "velocity", "squares") if getattr(state, name) is not None} == set(names)
    restored = rows(names)
    restored.restore(kept.save())
    assert restored.client(0).steps == 4
    assert restored.client(1) is None


def test_restoring_what_nobody_kept_forgets_everyone():
    kept = rows()
    play(kept, [np.arange(3)])
    kept.restore(rows().save())
    assert all(kept.client(client) is None for client in range(CLIENTS))
    play(kept, [np.array([1])])
    assert kept.client(1).steps == 1
