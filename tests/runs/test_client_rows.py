"""Rows beside checkpoints against a plain matrix: in any order of rounds, saves and kills, the last save comes back."""

import json
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.state import ClientState
from fewjoules.engine.store.client_store import ClientStore, StorePlace
from fewjoules.engine.store.row_file import RowFile
from fewjoules.runs import client_rows
from fewjoules.runs.client_rows import StoredRows, row_files, rows_header, stored, table_tensors
from tests.engine.store.test_client_store import CLIENTS, NAMES, ROW, SIZE, Matrix, assert_same, play_round

OPTIONS = TrainingOptions.of(
    local_steps=1, sparsity=np.ones(CLIENTS), rounds=1, learning_rate=0.1, inner="momentum", momentum_state="kept"
)
OWNER = types.SimpleNamespace(options=OPTIONS, state=types.SimpleNamespace(weights=torch.zeros(SIZE)))


class KilledError(Exception):
    """Stands for the end of a process; nothing after it counts."""


class Folder:
    """Plays rounds and saves as a run does: rows, then the checkpoint. It may be killed before any write to disk."""

    def __init__(self, place, rows_in_memory):
        self.path, self.place = place / "checkpoint.json", StorePlace(rows_in_memory * ROW, place)
        self.saved = Matrix(), None  # what the checkpoint has: the last round, and the snapshot of the guard
        self.writes_left, self.left_behind = 0, {}
        self.begin()

    def begin(self):
        """A process of its own: what it finds is on the disk."""
        told, tensors = json.loads(self.path.read_text()) if self.path.exists() else (None, [])
        tensors = [{name: torch.tensor(column) for name, column in table.items()} for table in tensors]
        rows = StoredRows(self.path, told, tensors, OWNER)
        self.store, self.file = ClientStore(NAMES, SIZE, self.place), rows.file
        tables = [rows.table(one) for one in tensors]
        if tables:
            self.store.go_back(tables[0])
        now, snapshot = self.saved
        self.now = now.copy()
        self.kept = None if snapshot is None else (tables[1], snapshot)

    def before_write(self):
        """Kill the process if this is the moment: what is on the disk now is what the next one finds."""
        self.writes_left -= 1
        if self.writes_left == 0:
            self.left_behind = {file: file.read_bytes() for file in self.path.parent.iterdir()}
            raise KilledError

    def bury(self):
        """Undo what was done on the disk after the kill, such as what an error cleans up."""
        for file in self.path.parent.iterdir():
            file.unlink()
        for file, data in self.left_behind.items():
            file.write_bytes(data)

    def save(self):
        tables = [self.store.table(), *([self.kept[0]] if self.kept is not None else [])]
        with stored(self.path, tables, self.file) as file:
            whole = [{name: one.whole().tolist() for name, one in table_tensors(table).items()} for table in tables]
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps([rows_header(file), whole]))
            self.before_write()
            new.replace(self.path)
            self.saved = self.now.copy(), None if self.kept is None else self.kept[1]
            self.before_write()
        self.file = file

    def do(self, what, clients, number):
        if what == "round":
            play_round(self.store, self.now, sorted(clients), number)
        elif what == "snapshot":  # as the guard keeps one
            self.kept = self.store.table(), self.now.copy()
        elif what == "return" and self.kept is not None:  # as the guard does
            self.store.go_back(self.kept[0])
            self.now = self.kept[1].copy()
        elif what == "save":
            self.save()
        elif what == "kill":
            self.begin()

    def killable(self, patch):
        """Let a kill come in the middle of a row that is written, to either file, and before a file is removed."""
        write_row, unlink = RowFile._write, Path.unlink

        def torn(file, slot, row):
            if self.writes_left == 1:
                file._stream.seek(slot * file.row_bytes)
                file._stream.write(b"?" * (file.row_bytes // 2))
            self.before_write()
            return write_row(file, slot, row)

        def late(path, **how):
            self.before_write()
            unlink(path, **how)

        patch.setattr(RowFile, "_write", torn)
        patch.setattr(Path, "unlink", late)


kinds = st.tuples(st.just("round"), st.sets(st.integers(0, CLIENTS - 1), min_size=1)) | st.tuples(
    st.sampled_from(["save", "save", "kill", "snapshot", "return"]), st.just(frozenset())
)
events = st.tuples(kinds, st.integers(0, 12))  # with the write before which the process is killed


def at(what, killed_at=0, clients=frozenset()):
    return (what, clients), killed_at


EVERYONE = frozenset(range(CLIENTS))
SHRINKS = [at("round", 0, {0}), at("snapshot"), at("round", 0, EVERYONE), at("save")]  # then the file is too long
SHRINKS += [event for killed_at in range(1, 6) for event in (at("return"), at("save", killed_at))]


@example(SHRINKS, 0, 0)
@settings(deadline=None, max_examples=100)
@given(st.lists(events, max_size=25), st.sampled_from([0, 2, 100]), st.sampled_from([0, 64]))
def test_after_any_order_of_rounds_saves_and_kills_the_last_save_comes_back(
    tmp_path_factory, told, rows_in_memory, spare_slots
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_rows, "_SPARE_SLOTS", spare_slots)
        play(Folder(tmp_path_factory.mktemp("rows"), rows_in_memory), told)


def play(folder, told):
    """Let a folder live through these events; after each it has what a plain matrix has, in the memory it may use."""
    for number, ((what, clients), killed_at) in enumerate(told, start=1):
        folder.writes_left = killed_at
        with pytest.MonkeyPatch.context() as patch:
            folder.killable(patch)
            try:
                folder.do(what, clients, number)
                killed = False
            except KilledError:
                killed = True
        if killed:
            folder.bury()
            folder.begin()
        assert_same(folder.store, folder.now)
        assert folder.store.resident * ROW <= folder.place.memory_bytes
        if folder.kept is not None:
            snapshot = ClientStore(NAMES, SIZE)
            snapshot.go_back(folder.kept[0])
            assert_same(snapshot, folder.kept[1])
    folder.writes_left = 0
    folder.save()
    assert len(list(row_files(folder.path))) <= 1
    folder.begin()
    assert_same(folder.store, folder.now)


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
