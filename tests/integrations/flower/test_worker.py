"""The long-lived worker of a node, without Flower."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import kept_entries, plan_round
from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules.integrations.flower import worker
from fewjoules.integrations.flower.local import local_training
from fewjoules.integrations.flower.memory import NodeMemory
from fewjoules.integrations.flower.messages import WHOLE, Request
from fewjoules.integrations.flower.node import answer, dense_payload
from fewjoules.integrations.flower.worker import Worker, serve

LONG_SECONDS = 120.0
MODULE = """
import os
from pathlib import Path
import torch
from torch import nn

def node(config):
    with (Path(__file__).parent / "calls").open("a") as calls:
        calls.write(f"{os.getpid()}\\n")
    if "problem" in config:
        raise RuntimeError(config["problem"])
    torch.manual_seed(0)
    return nn.Linear(3, 2), torch.randn(7, 3), torch.arange(7) % 2

def leave(config):
    os._exit(3)
"""
ASK = "import sys; from fewjoules.integrations.flower.worker import Worker; print(Worker(sys.argv[1], {}).samples())"


@pytest.fixture
def place(monkeypatch):
    """A folder with a user's module, and with the sockets; its name is short, as those of sockets must be."""
    folder = Path(tempfile.mkdtemp(prefix="fj-", dir="/tmp"))
    (folder / "fewjoules_own_task.py").write_text(MODULE)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.syspath_prepend(folder)
    yield folder
    for process in calls(folder):
        with contextlib.suppress(ProcessLookupError):
            if process != os.getpid():
                os.kill(process, signal.SIGKILL)
    sys.modules.pop("fewjoules_own_task", None)
    shutil.rmtree(folder)


def calls(folder):
    path = folder / "calls"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def config_of(place, **more):
    return {"client-id": "a", "state-dir": str(place / "state"), **more}


@contextlib.contextmanager
def serving(asker):
    """Serve in a thread until the block ends; however long a question takes, the worker is not idle before."""
    over = threading.Event()

    class Listening(socket.socket):
        def accept(self):
            connection, address = super().accept()
            if over.is_set():
                connection.close()
                raise TimeoutError
            return connection, address

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "socket", SimpleNamespace(**vars(socket) | {"socket": Listening}))
        thread = threading.Thread(target=serve, args=(asker._socket, asker._told))
        thread.start()
        try:
            while thread.is_alive() and not listens(asker._socket):
                pass
            yield
        finally:
            over.set()
            listens(asker._socket)
            thread.join(LONG_SECONDS)


def listens(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


def request_of(rounds=1, size=8):
    options = TrainingOptions.of(local_steps=2, sparsity=np.array([4.0]), rounds=rounds, learning_rate=0.1, seed=3)
    plan = plan_round(options, kept_entries(options, size), np.array([7]), np.array([0]), rounds)
    weights = np.linspace(-1.0, 1.0, size, dtype=np.float32)
    return Request("run", plan.order(0).to_dict(), rounds - 1, WHOLE, dense_payload(weights), b"", [])


def asked_from_another_process(place):
    environment = os.environ | {"TMPDIR": str(place), "PYTHONPATH": os.pathsep.join([str(place), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", ASK, "fewjoules_own_task:node"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_the_first_process_starts_the_worker_and_the_second_finds_it(place):
    assert asked_from_another_process(place) == 7
    assert asked_from_another_process(place) == 7
    assert len(calls(place)) == 1


def test_another_version_of_the_source_gets_another_worker(place):
    before = Worker("fewjoules_own_task:node", {})._socket
    assert Worker("fewjoules_own_task:node", {})._socket == before
    os.utime(place / "fewjoules_own_task.py", ns=(1, 1))
    assert Worker("fewjoules_own_task:node", {})._socket != before


def test_another_node_and_another_function_get_other_workers(place):
    paths = {
        Worker("fewjoules_own_task:node", {})._socket,
        Worker("fewjoules_own_task:node", {"client-id": "b"})._socket,
        Worker("fewjoules_own_task:leave", {})._socket,
    }
    assert len(paths) == 3


@pytest.mark.parametrize("target", ["fewjoules_own_task", "no_such_module:node", "no.such.module:node", ":node"])
def test_a_target_that_cannot_be_imported_is_refused(place, target):
    with pytest.raises(InvalidInputError, match="needs 'module:function' of a module that can be imported"):
        Worker(target, {})


def test_rounds_in_the_worker_are_those_of_this_process(place):
    asker, requests = Worker("fewjoules_own_task:node", config_of(place)), [request_of(number) for number in (1, 2)]
    with serving(asker):
        assert asker.samples() == 7
        replies = [asker.round(request) for request in requests]
        assert asker.round(requests[1]) == replies[1]
    import fewjoules_own_task

    training = local_training(*fewjoules_own_task.node({}))
    memory = NodeMemory(place / "other", "a", "run")
    assert replies == [answer(request, memory, training) for request in requests]
    assert len(calls(place)) == 2  # once in the worker, once here


def test_a_problem_in_the_users_function_comes_back_as_one_sentence(place):
    asker = Worker("fewjoules_own_task:node", config_of(place, problem="no camera\n  at port 3"))
    with serving(asker), pytest.raises(FewJoulesError) as error:
        asker.samples()
    assert str(error.value) == "RuntimeError: no camera at port 3"


def test_a_function_that_failed_is_called_again(place):
    asker = Worker("fewjoules_own_task:node", config_of(place, problem="not yet"))
    with serving(asker):
        for _ in range(2):
            with pytest.raises(FewJoulesError, match="not yet"):
                asker.samples()
    assert len(calls(place)) == 2


def test_an_idle_worker_ends_and_removes_its_socket(place):
    asker = Worker("fewjoules_own_task:node", config_of(place))
    serve(asker._socket, asker._told, idle_seconds=0.01)
    assert not asker._socket.exists()


def test_only_one_worker_listens(place):
    asker = Worker("fewjoules_own_task:node", config_of(place))
    with asker._socket.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        asker._socket.touch()
        serve(asker._socket, asker._told)
    assert asker._socket.exists()  # it belongs to the one that holds the lock


def test_the_socket_of_a_killed_worker_is_no_obstacle(place):
    asker = Worker("fewjoules_own_task:node", config_of(place))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
        killed.bind(str(asker._socket))
    assert asker._socket.exists()
    assert not listens(asker._socket)
    with serving(asker):
        assert asker.samples() == 7


class Ended:
    """A process that found another worker listening, so that it ended."""

    def poll(self):
        return 0


def test_a_worker_that_gave_way_to_one_that_then_ended_is_started_again(place, monkeypatch):
    asker = Worker("fewjoules_own_task:node", config_of(place))
    with contextlib.ExitStack() as stack:

        def second():
            stack.enter_context(serving(asker))
            return Ended()

        starts = iter([Ended, second])
        monkeypatch.setattr(asker, "_started", lambda: next(starts)())
        assert asker.samples() == 7


@contextlib.contextmanager
def faithless(path, endings):
    """Accept a connection for each of the ``endings``, call it, and close without an answer; then listen no more."""

    def accept(server):
        with contextlib.ExitStack() as stack:
            with server:
                for ending in endings:
                    stack.close()
                    connection = stack.enter_context(server.accept()[0])
                    ending(connection)
            path.unlink()

    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen(1)
    thread = threading.Thread(target=accept, args=(server,))
    thread.start()
    try:
        yield thread
    finally:
        thread.join(LONG_SECONDS)


def read_question(connection):
    worker._receive(connection)


@pytest.mark.parametrize("ending", [read_question, lambda _connection: None], ids=["after reading", "before reading"])
def test_a_question_to_a_worker_that_ends_is_asked_once_more(place, monkeypatch, ending):
    asker = Worker("fewjoules_own_task:node", config_of(place))
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(faithless(asker._socket, [ending]))

        def second():
            first.join(LONG_SECONDS)
            stack.enter_context(serving(asker))
            return Ended()

        monkeypatch.setattr(asker, "_started", second)
        assert asker.samples() == 7


def test_a_worker_that_ends_twice_is_reported(place):
    asker = Worker("fewjoules_own_task:node", config_of(place))
    with (
        faithless(asker._socket, [read_question] * 2),
        pytest.raises(FewJoulesError, match="ended twice in the middle of a round"),
    ):
        asker.samples()


def test_half_a_question_is_no_question(place):
    asker = Worker("fewjoules_own_task:node", config_of(place))
    with serving(asker):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
            gone.connect(str(asker._socket))
            gone.sendall(b"\x05")
        with pytest.raises(FewJoulesError, match="cannot be read"):
            asker._ask(b"nonsense")
    assert calls(place) == []


def test_the_folder_of_sockets_is_for_this_user_only(place):
    folder = Worker("fewjoules_own_task:node", {})._socket.parent
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["link", "link to nothing", "file", "writable", "of another user"])
def test_a_folder_that_others_could_use_is_refused(place, monkeypatch, kind):
    folder = place / f"fewjoules-{os.getuid()}"
    if kind == "of another user":
        monkeypatch.setattr(os, "getuid", lambda: 123456)
        (place / "fewjoules-123456").mkdir(mode=0o700)
    elif kind == "file":
        folder.touch()
    elif kind == "writable":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.symlink_to(place if kind == "link" else place / "nothing")
    with pytest.raises(InvalidInputError, match="must be a folder of this user, without links"):
        Worker("fewjoules_own_task:node", {})


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="environments are read from /proc")
@pytest.mark.parametrize(("users", "expected"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_of_a_worker_sleep_while_they_wait_unless_the_user_says_otherwise(place, monkeypatch, users, expected):
    if users is None:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", users)
    asked_from_another_process(place)
    (process,) = calls(place)
    assert f"OMP_WAIT_POLICY={expected}".encode() in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
