"""The store against a plain matrix: in any order of participation, spills, tables and returns, nothing is lost."""

import errno
import os
import resource
import signal
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.engine.algorithm.state import ClientState
from fewjoules.engine.store.client_store import ClientStore, StorePlace
from fewjoules.engine.store.row_file import RowFile

SIZE, CLIENTS = 5, 6
NAMES = ("residual", "velocity")
ROW = len(NAMES) * SIZE * 4
QUICK = settings(deadline=None, max_examples=100)


def store(rows_in_memory=None, values="float32", folder=None):
    most = None if rows_in_memory is None else rows_in_memory * ROW
    return ClientStore(NAMES, SIZE, StorePlace(most, folder), values=values)


class Matrix:
    """What every client keeps as one plain matrix each, copied whole for a table."""

    def __init__(self):
        self.kept = {name: np.zeros((CLIENTS, SIZE), np.float32) for name in NAMES}
        self.steps = np.full(CLIENTS, -1)

    def copy(self):
        other = Matrix()
        other.kept = {name: matrix.copy() for name, matrix in self.kept.items()}
        other.steps = self.steps.copy()
        return other


def assert_same(found, matrix):
    for client in range(CLIENTS):
        state = found.state(client)
        assert (state is None) == (matrix.steps[client] < 0)
        if state is not None:
            assert state.steps == matrix.steps[client]
            for name in NAMES:
                assert getattr(state, name).tolist() == matrix.kept[name][client].tolist()


def play_round(found, matrix, clients, number):
    """Each client adds a number of its own to what it kept, in place where it may."""
    for client in clients:
        state = found.take(client)
        if state is None:
            state = ClientState(**{name: np.zeros(SIZE, np.float32) for name in NAMES})
        for shift, name in enumerate(NAMES):
            vector = getattr(state, name)
            vector += np.float32(number + 10 * client + 1000 * shift)
            matrix.kept[name][client] += np.float32(number + 10 * client + 1000 * shift)
        matrix.steps[client] = max(0, matrix.steps[client]) + 1
        kept = {name: getattr(state, name) for name in NAMES}
        found.put(client, ClientState(**kept, steps=state.steps + 1))


rounds = st.tuples(st.just("round"), st.sets(st.integers(0, CLIENTS - 1), min_size=1))
tables = st.tuples(st.sampled_from(["table", "back", "drop", "move", "hold", "take back"]), st.integers(0, 3))


@QUICK
@given(st.lists(rounds | tables, max_size=25), st.sampled_from([None, 0, 1, 3]))
def test_whatever_happens_clients_find_what_a_plain_matrix_has(events, rows_in_memory):
    found, matrix, held = store(rows_in_memory), Matrix(), None
    kept, file = {}, RowFile.temporary(None, len(NAMES), SIZE, np.dtype(np.float32))
    for number, (what, of) in enumerate(events, start=1):
        if what == "round":
            play_round(found, matrix, sorted(of), number)
        elif what == "table":
            kept[of] = (found.table(), matrix.copy())
        elif what == "drop":
            kept.pop(of, None)
        elif what == "move" and of in kept:  # as a checkpoint does
            for row in kept[of][0].rows.values():
                row.move_to(file)
        elif what == "back" and of in kept:
            table, then = kept[of]
            found.go_back(table)
            matrix, held = then.copy(), None
        elif what == "hold":
            found.hold()
            held = matrix.copy()
        elif what == "take back":
            assert found.take_back() == (held is not None)
            matrix, held = matrix if held is None else held, None
        assert_same(found, matrix)
        assert rows_in_memory is None or found.resident <= rows_in_memory
    for table, then in kept.values():
        other = store()
        other.go_back(table)
        assert_same(other, then)


def test_the_least_recently_used_rows_go_to_the_file_and_their_slots_are_used_again():
    found = store(2)
    matrix = Matrix()
    for number in range(1, 30):
        play_round(found, matrix, [number % CLIENTS], number)
    in_memory = {client for client, row in found.table().rows.items() if row.vectors is not None}
    assert in_memory == {28 % CLIENTS, 29 % CLIENTS}
    assert found._file.slots <= CLIENTS
    assert_same(found, matrix)


def test_what_nobody_else_has_is_not_copied_and_a_table_is_never_changed():
    found = store()
    first = np.ones(SIZE, np.float32)
    found.put(3, ClientState(residual=first, velocity=first * 2))
    assert found.take(3).residual is first
    found.put(3, ClientState(residual=first, velocity=first * 2))
    table = found.table()
    found.take(3).residual[:] = 7.0
    assert table.tensors()["residual"].tolist() == [[1.0] * SIZE]


def test_a_view_is_copied_so_that_it_keeps_nothing_else_in_memory():
    found, stack = store(), np.ones((100, SIZE), np.float32)
    found.put(0, ClientState(residual=stack[3], velocity=stack[4]))
    stack[:] = 0.0
    assert found.state(0).residual.tolist() == [1.0] * SIZE


@given(
    st.lists(
        st.floats(width=32, allow_nan=False, min_value=-(2.0**100), max_value=2.0**100), min_size=SIZE, max_size=SIZE
    )
)
@QUICK
def test_bfloat16_rounds_to_the_nearest_of_8_bits(numbers):
    vector = np.array(numbers, np.float32)
    found = store(0, "bfloat16")
    found.put(1, ClientState(residual=vector, velocity=-vector))
    kept = found.take(1).residual
    assert found.row_bytes == ROW // 2
    np.testing.assert_allclose(kept, vector, rtol=2.0**-8, atol=1e-40)
    bits = vector.view(np.uint32).astype(np.uint64)  # to nearest, ties to even
    rounded = ((bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.uint32)
    assert kept.tolist() == (rounded << np.uint32(16)).view(np.float32).tolist()


def test_clients_that_keep_no_vectors_have_steps_all_the_same():
    found = ClientStore((), SIZE, StorePlace(0))
    found.put(4, ClientState(steps=3))
    assert found.state(4).steps == 3
    assert found.table().tensors()["numbers"].tolist() == [4]


def test_no_python_runs_when_rows_go_so_that_no_ctrl_c_is_lost_there():
    """An exception that a signal raises in a finaliser, or in a callback written in Python, is printed and dropped."""
    found, matrix, called = store(2), Matrix(), []
    play_round(found, matrix, range(CLIENTS), 1)
    slots = found._file.slots
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code) if event == "call" else None)
    found._rows.clear()
    sys.setprofile(None)
    assert called == []
    assert found.resident == 0
    play_round(found, Matrix(), range(CLIENTS), 2)
    assert found._file.slots == slots > 0


def test_a_slot_of_a_checkpoint_is_free_once_neither_it_nor_a_row_needs_it():
    found, matrix = store(0), Matrix()
    play_round(found, matrix, [0, 1], 1)
    file = found._file
    file.pin([0])
    play_round(found, matrix, [0, 1], 2)
    assert sorted(row.slot for row in found.table().rows.values()) == [1, 2]
    file.pin([2])
    play_round(found, matrix, [2], 2)
    assert found.table().rows[2].slot == 0
    assert_same(found, matrix)


# A full disk.


@pytest.fixture
def full_disk(monkeypatch):
    """A limit on the size of files stands for the end of a disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda bytes_left: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_names_the_place_and_loses_nothing(full_disk, tmp_path):
    found, matrix = store(1, folder=tmp_path), Matrix()
    play_round(found, matrix, [0, 1, 2], 1)
    full_disk(2 * ROW + 7)  # two rows are there; the third does not fit
    state = ClientState(**{name: np.full(SIZE, 9.0, np.float32) for name in NAMES}, steps=1)
    with pytest.raises(OSError, match="File too large") as full:
        found.put(3, state)
    assert full.value.errno == errno.EFBIG
    assert full.value.filename == str(tmp_path)
    matrix.steps[3] = 1
    for name in NAMES:
        matrix.kept[name][3] = 9.0
    assert_same(found, matrix)
    full_disk(resource.RLIM_INFINITY if resource.getrlimit(resource.RLIMIT_FSIZE)[1] == -1 else 2**40)
    play_round(found, matrix, [4, 5, 0], 2)
    assert_same(found, matrix)
    assert found.resident == 1


def test_nothing_of_a_spill_stays_on_the_disk(tmp_path):
    found, matrix = store(0, folder=tmp_path), Matrix()
    play_round(found, matrix, range(CLIENTS), 1)
    assert os.listdir(tmp_path) == []
    assert_same(found, matrix)


def test_threads_may_take_and_put_at_the_same_time():
    from concurrent.futures import ThreadPoolExecutor

    found = ClientStore(NAMES, SIZE, StorePlace(3 * ROW))

    def play(client):
        for number in range(200):
            state = found.take(client)
            last = -1.0 if state is None else state.residual[0]
            assert last == number - 1 + client * 1000 if number else state is None
            now = torch.full((SIZE,), float(number + client * 1000)).numpy()
            found.put(client, ClientState(residual=now, velocity=now.copy(), steps=number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(play, range(8)))
    assert len(found) == 8
    assert found.resident <= 3
