"""One process at a time writes to a folder, and a process that died holds nothing."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from fewjoules.errors import FewJoulesWarning, InvalidInputError
from fewjoules.runs.lock import LOCK, is_held, locked

HOLDER = """
import sys, time
from pathlib import Path
from fewjoules.runs.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path)], **pipes)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_folder_that_another_process_writes_to_is_refused_and_the_process_named(tmp_path, holder):
    with (
        pytest.raises(InvalidInputError, match=rf"process {holder.pid} on .* is writing to this folder"),
        locked(tmp_path),
    ):
        pass


def test_the_folder_is_free_once_the_other_process_has_ended(tmp_path, holder):
    holder.communicate("")
    with locked(tmp_path):
        assert str(os.getpid()) in (tmp_path / LOCK).read_text()
    assert not (tmp_path / LOCK).exists()


def test_a_killed_process_holds_nothing(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / LOCK).exists()
    with locked(tmp_path):
        pass


def test_one_who_looks_sees_whether_a_living_process_holds_the_folder(tmp_path, holder):
    assert is_held(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / LOCK).exists()
    assert not is_held(tmp_path)
    assert not is_held(tmp_path / "missing")


def test_one_who_only_looks_keeps_nobody_out(tmp_path, monkeypatch):
    (tmp_path / LOCK).touch()
    descriptor = os.open(tmp_path / LOCK, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    monkeypatch.setattr("fewjoules.runs.lock.time.sleep", lambda seconds: fcntl.flock(descriptor, fcntl.LOCK_UN))
    with locked(tmp_path):
        assert is_held(tmp_path)
    os.close(descriptor)


def test_a_process_does_not_take_its_own_lock_twice(tmp_path):
    with locked(tmp_path), pytest.raises(InvalidInputError, match="is writing to this folder"), locked(tmp_path):
        pass


def test_an_error_lets_go_of_the_lock(tmp_path):
    with pytest.raises(RuntimeError), locked(tmp_path):
        raise RuntimeError
    with locked(tmp_path):
        pass


def test_a_file_that_was_removed_in_between_does_not_count(tmp_path, monkeypatch):
    real, removed = fcntl.flock, []

    def removing(descriptor, how):
        if not removed:
            removed.append((tmp_path / LOCK).unlink())
        return real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", removing)
    with locked(tmp_path):
        assert (tmp_path / LOCK).exists()


def test_a_file_system_without_locks_is_said_to_have_none(tmp_path, monkeypatch):
    def unsupported(descriptor, how):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.warns(FewJoulesWarning, match="has no locks"), locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_lock_without_a_name(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with locked(tmp_path), pytest.raises(InvalidInputError, match="another process is writing"), locked(tmp_path):
        pass
