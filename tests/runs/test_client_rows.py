"""Rows beside checkpoints against a plain matrix: in any order of rounds, saves and kills, the last save comes back."""

import types

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.state import ClientState
from fewjoules.engine.store.client_store import ClientStore, StorePlace
from fewjoules.runs.client_rows import StoredRows, row_files, rows_header, stored, table_tensors
from tests.engine.store.test_client_store import CLIENTS, NAMES, ROW, SIZE, Matrix, assert_same, play_round

OPTIONS = TrainingOptions.of(
    local_steps=1, sparsity=np.ones(CLIENTS), rounds=1, learning_rate=0.1, inner="momentum", momentum_state="kept"
)
OWNER = types.SimpleNamespace(options=OPTIONS, state=types.SimpleNamespace(weights=torch.zeros(SIZE)))


class KilledError(Exception):
    """Stands for a kill before the checkpoint gets its name."""


class Folder:
    """Saves as a run does: rows, then the checkpoint in one step, here in memory."""

    def __init__(self, place, rows_in_memory):
        self.path, self.most = place / "checkpoint.safetensors", rows_in_memory * ROW
        self.checkpoint, self.matrix = (None, []), Matrix()
        self.begin()

    def begin(self):
        """A process of its own: what it finds is the last checkpoint and its rows."""
        self.store, self.file, self.kept = ClientStore(NAMES, SIZE, StorePlace(self.most)), None, None
        told, tensors = self.checkpoint
        rows = StoredRows(self.path, told, tensors, OWNER)
        tables = [rows.table(one) for one in tensors]
        self.file = rows.file
        if tables:
            self.store.go_back(tables[0])
        self.kept = tables[1] if len(tables) > 1 else None
        self.now = self.matrix.copy()

    def save(self, killed):
        tables = [self.store.table(), *([self.kept] if self.kept is not None else [])]
        try:
            with stored(self.path, tables, self.file) as file:
                if killed:
                    raise KilledError
                whole = [{name: one.whole() for name, one in table_tensors(table).items()} for table in tables]
                self.checkpoint, self.matrix = (rows_header(file), whole), self.now.copy()
            self.file = file
        except KilledError:
            self.begin()


events = st.one_of(
    st.tuples(st.just("round"), st.sets(st.integers(0, CLIENTS - 1), min_size=1)),
    st.tuples(st.sampled_from(["save", "kill", "kill while saving", "snapshot"]), st.just(None)),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(events, max_size=25), st.sampled_from([0, 2, 100]))
def test_after_any_order_of_rounds_saves_and_kills_the_last_save_comes_back(tmp_path_factory, told, rows_in_memory):
    folder = Folder(tmp_path_factory.mktemp("rows"), rows_in_memory)
    for number, (what, clients) in enumerate(told, start=1):
        if what == "round":
            play_round(folder.store, folder.now, sorted(clients), number)
        elif what == "kill":
            folder.begin()
        elif what == "snapshot":  # as the guard keeps one
            folder.kept = folder.store.table()
        else:
            folder.save(killed=what == "kill while saving")
        assert_same(folder.store, folder.now)
    folder.begin()
    assert_same(folder.store, folder.matrix)
    assert len(list(row_files(folder.path))) <= 1


def test_a_file_that_is_mostly_unused_is_written_anew(tmp_path):
    store, path = ClientStore(("residual",), 1), tmp_path / "checkpoint"
    everyone = [(client, np.full(1, client, np.float32)) for client in range(200)]
    for client, vector in everyone:
        store.put(client, ClientState(residual=vector))
    with stored(path, [store.table()], None) as first:
        pass
    few = ClientStore(("residual",), 1)
    few.put(3, ClientState(residual=np.full(1, 7.0, np.float32)))
    with stored(path, [few.table()], first) as second:
        assert first.path.exists()
    assert [file.name for file in row_files(path)] == [second.path.name] != [first.path.name]
    assert second.path.stat().st_size == 4


def test_a_checkpoint_without_rows_needs_no_file(tmp_path):
    with stored(tmp_path / "checkpoint", [ClientStore(NAMES, SIZE).table()], None) as file:
        assert file is None
    assert rows_header(file) is None
    assert list(tmp_path.iterdir()) == []


def interrupted(path, table, before_interrupt):
    with stored(path, [table], None):
        before_interrupt()
        raise KeyboardInterrupt


@pytest.mark.parametrize("named", [False, True])
def test_an_interrupt_around_the_moment_of_naming_keeps_the_rows_of_the_checkpoint_that_is_there(named, tmp_path):
    """A second Ctrl-C may come when the new checkpoint has its name, and its file of rows is the only one."""
    store, path, new = ClientStore(("residual",), 1), tmp_path / "checkpoint", tmp_path / "new"
    store.put(0, ClientState(residual=np.ones(1, np.float32)))
    path.write_text("before")
    new.write_text("after")
    with pytest.raises(KeyboardInterrupt):
        interrupted(path, store.table(), (lambda: new.replace(path)) if named else (lambda: None))
    assert len(list(row_files(path))) == (1 if named else 0)
    assert store.state(0).residual.tolist() == [1.0]
