"""A long-lived process that holds PyTorch, the data and the model of a node.

Flower starts a new process for every message; with a worker, that process only passes the message on over a Unix
socket. The first message starts the worker, which ends after ``IDLE_SECONDS`` without another one.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fewjoules import __version__
from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules.integrations.flower.identity import client_id, state_folder
from fewjoules.integrations.flower.messages import Reply, Request, reply_from_frame, request_from_frame, to_frame

IDLE_SECONDS = 600.0
START_SECONDS = 120.0
_LENGTH = struct.Struct("<Q")
_PROBLEM, _ANSWER = b"E", b"A"


class Worker:
    """The worker of a node as its Flower process sees it; ``target`` is 'module:function'."""

    def __init__(self, target: str, config: Mapping[str, Any]) -> None:
        """Do nothing yet: the first question starts the worker, unless it runs already."""
        self._told = {"target": target, "config": dict(config), "path": [path for path in sys.path if path]}
        self._socket = _socket_path(target, config)

    def samples(self) -> int:
        """Return the number of samples of the node."""
        return int(self._ask(b""))

    def round(self, request: Request) -> Reply:
        """Run a round in the worker."""
        return reply_from_frame(self._ask(to_frame(request)))

    def _ask(self, question: bytes) -> bytes:
        """Return the answer; ask a second worker if the first ends before it has answered, as an idle one may."""
        answer = self._asked_once(question) or self._asked_once(question)
        if answer is None:
            raise FewJoulesError(
                f"the worker of this node ended twice in the middle of a round; {self._log} may tell why"
            )
        if answer[:1] == _PROBLEM:
            raise FewJoulesError(answer[1:].decode(errors="replace"))
        return answer[1:]

    def _asked_once(self, question: bytes) -> bytes | None:
        try:
            with self._connected() as connection:
                _send(connection, question)
                return _receive(connection)
        except OSError:
            return None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        end, process = time.monotonic() + START_SECONDS, None
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(str(self._socket))
                break
            except OSError:
                connection.close()
            if process is None or process.poll() == 0:  # one that is about to end may have kept it from listening
                process = self._started()
            if process.poll():
                raise FewJoulesError(f"the worker of this node did not start; {self._log} tells why")
            if time.monotonic() > end:
                raise FewJoulesError(f"the worker of this node did not answer in {START_SECONDS:g} s")
            time.sleep(0.05)
        with connection:
            yield connection

    @property
    def _log(self) -> Path:
        return self._socket.with_suffix(".log")

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fewjoules.integrations.flower.worker", str(self._socket)]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, env=_environment()
            )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stream:  # its exit code tells when it ended
            stream.write(json.dumps(self._told).encode())
        return process


def _socket_path(target: str, config: Mapping[str, Any]) -> Path:
    """Return where the worker listens: another one for other code, another node or another version."""
    module = target.partition(":")[0]
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if ":" not in target or found is None or found.origin is None:
        raise InvalidInputError(f"a worker needs 'module:function' of a module that can be imported, got {target!r}")
    age = os.stat(found.origin).st_mtime_ns
    parts = [target, found.origin, age, __version__, sys.executable, sorted(map(str, config.items()))]
    return _own_folder() / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]}.sock"


def _own_folder() -> Path:
    """Return the folder of the sockets, in which nobody else may put one."""
    folder = Path(tempfile.gettempdir()) / f"fewjoules-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise InvalidInputError(
            f"{folder}: must be a folder of this user, without links, that nobody else can write to"
        )
    return folder


def _environment() -> dict[str, str]:
    """Return the environment without Flower's mark of one task, which ends before the worker does.

    PyTorch's threads sleep while they wait for each other, unless the user said otherwise: by OpenMP's default they
    spin, and on cores that other processes use as well the local steps of a small model then take 20 times as long.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_TASK")}
    return {"OMP_WAIT_POLICY": "PASSIVE"} | kept


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _receive(connection: socket.socket) -> bytes | None:
    """Return a message; None if the other side has gone before its end."""
    header = _exactly(connection, _LENGTH.size)
    return None if header is None else _exactly(connection, _LENGTH.unpack(header)[0])


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        block = connection.recv(min(1 << 20, size - len(data)))
        if not block:
            return None
        data += block
    return bytes(data)


def serve(path: Path, told: Mapping[str, Any], idle_seconds: float = IDLE_SECONDS) -> None:
    """Answer questions at a socket until nobody asked for ``idle_seconds``; only one worker listens at a socket."""
    import fcntl

    with (path.with_suffix(".lock")).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(str(path))
            path.chmod(0o600)
            server.listen(8)
            server.settimeout(idle_seconds)
            answer = _answering(told)
            with contextlib.suppress(TimeoutError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.settimeout(None)
                        _reply(connection, answer)
        path.unlink(missing_ok=True)


def _reply(connection: socket.socket, answer: Callable[[bytes], bytes]) -> None:
    with contextlib.suppress(OSError):  # whoever asked is gone; the memory has the answer for the next time
        question = _receive(connection)
        if question is None:
            return
        try:
            found = _ANSWER + answer(question)
        except Exception as error:
            traceback.print_exc()
            found = _PROBLEM + " ".join(f"{type(error).__name__}: {error}".split()).encode()
        _send(connection, found)


def _answering(told: Mapping[str, Any]) -> Callable[[bytes], bytes]:
    """Return a function from questions to answers; the user's function is called at the first question."""
    from functools import cache

    @cache
    def training() -> Any:
        from fewjoules.integrations.flower.local import local_training

        sys.path[:0] = [path for path in told["path"] if path not in sys.path]
        module, _, name = told["target"].partition(":")
        return local_training(*getattr(importlib.import_module(module), name)(told["config"]))

    def answer(question: bytes) -> bytes:
        from fewjoules.integrations.flower.memory import NodeMemory
        from fewjoules.integrations.flower.node import answer as run_round

        if not question:
            return str(training().size).encode()
        request = request_from_frame(question)
        config = told["config"]
        memory = NodeMemory(state_folder(config), client_id(config), request.run)
        return to_frame(run_round(request, memory, training()))

    return answer


if __name__ == "__main__":
    serve(Path(sys.argv[1]), json.loads(sys.stdin.read()))
