"""One SuperLink and some SuperNodes as real processes on 127.0.0.1, for demonstrations, tests and benchmarks."""

import contextlib
import http.client
import json
import re
import secrets
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fewjoules.errors import DeploymentError, InvalidInputError
from fewjoules.integrations.flower.loopback import commands, guardian
from fewjoules.integrations.flower.loopback.app_run import AppRun
from fewjoules.integrations.flower.loopback.credentials import CERTIFICATE, HOST, make_certificates, make_node_key
from fewjoules.integrations.flower.loopback.ports import free_port
from fewjoules.integrations.flower.loopback.processes import Process
from fewjoules.integrations.flower.loopback.settings import Value, toml_text

START_TIMEOUT_SECONDS = 120.0
COMMAND_TIMEOUT_SECONDS = 60.0
HEALTH_TIMEOUT_SECONDS = 2.0
HEARTBEAT_WINDOW_SECONDS = 70.0  # Flower refuses the key of a killed node for up to 60 s
RETRY_SECONDS = 2.0
GRACE_SECONDS = 10.0
PORT_TRIES = 5
PORT_TAKEN = "address already in use"
REFUSED = "Failed to activate SuperNode"
NODE_LINE = re.compile(r"SuperNode ID: (\d+)\s")


@dataclass
class _Node:
    config: Mapping[str, Value]
    folder: Path
    process: Process | None = None
    node_id: int | None = None

    @property
    def key(self) -> Path:
        return self.folder / "node.key"

    @property
    def config_file(self) -> Path:
        return self.folder / "node.toml"


class Loopback:
    """A Flower deployment in a folder, which holds everything: certificates, keys, the database, logs.

    Use it with ``with``, or call ``start`` and ``close``. If this process ends without ``close``, even by SIGKILL, a
    guardian process ends the deployment. Both find processes by a mark in their environment, which needs Linux; on
    other systems ``close`` ends the processes started here, and Flower those that these started.
    """

    def __init__(
        self,
        folder: Path,
        node_configs: Sequence[Mapping[str, Value]],
        *,
        secure: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Write certificates, keys and settings to a new or empty folder; start nothing yet.

        ``node_configs`` holds what the client app of each node finds in ``context.node_config``. A deployment that is
        not ``secure`` has neither TLS nor keys. ``environment`` is added to that of this process.
        """
        self.folder, self.secure = Path(folder).absolute(), secure
        self.mark = secrets.token_hex(8)
        self._environment = dict(environment or {})
        self._nodes = [_Node(config, self.folder / f"node-{i}") for i, config in enumerate(node_configs)]
        self._port: int | None = None
        self._superlink: Process | None = None
        self._runs: list[Process] = []
        self._guardian: subprocess.Popen[bytes] | None = None
        self._processes_started = 0
        self._write_files()

    def __enter__(self) -> Self:
        """Start the deployment."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the deployment."""
        self.close()

    @property
    def address(self) -> str:
        """Host and port of the SuperLink, which stay the same when it is started again."""
        if self._port is None:
            raise InvalidInputError("the SuperLink must be started before it has an address")
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        """Start the SuperLink, register the keys of all nodes, start the nodes and wait until they are online."""
        try:
            self.start_superlink()
            if self.secure:
                self.register_nodes()
            for node in self._nodes:
                self._launch(node)
            for node in self._nodes:
                self._wait_for(node)
        except BaseException:
            self.close()
            raise

    def start_superlink(self) -> None:
        """Start the SuperLink, or start it again with its port and its database, and wait until it answers."""
        if self._superlink is not None and self._superlink.exit_code is None:
            raise InvalidInputError("the SuperLink must be ended before it is started again")
        if self._port is None:
            self._start_superlink_somewhere()
        else:
            self._start_superlink_at(self._port)

    def stop_superlink(self) -> None:
        """Ask the SuperLink to end, and kill what is left of it."""
        if self._superlink is not None:
            self._superlink.terminate(GRACE_SECONDS)

    def kill_superlink(self) -> None:
        """Kill the SuperLink, also the process of a ServerApp, as a power cut would."""
        if self._superlink is not None:
            self._superlink.kill()

    def public_key(self, node: int) -> Path:
        """Return the file with the public key of a node."""
        if not self.secure:
            raise InvalidInputError("nodes have keys in a secure deployment only")
        return self._node(node).key.with_suffix(".pub")

    def register(self, public_key: Path, name: str) -> int:
        """Allow a node with this key to join, and return its node id."""
        return int(self.flwr("supernode", "register", str(public_key), "--name", name)["node-id"])

    def register_nodes(self) -> list[int]:
        """Register the keys of all nodes as ``node-0``, ``node-1``, ... and return their node ids."""
        keys = [str(self.public_key(i)) for i in range(len(self._nodes))]
        processes = [
            self._start_flwr("supernode", "register", key, "--name", f"node-{i}") for i, key in enumerate(keys)
        ]
        return [int(self._answer(process)["node-id"]) for process in processes]

    def start_node(self, node: int, *, retry_seconds: float = 0.0) -> None:
        """Start a node and wait until it is online.

        For up to a minute after a kill, the SuperLink believes that the node is online and refuses its key. With
        ``retry_seconds`` (``HEARTBEAT_WINDOW_SECONDS`` is enough) the node is started again until it is accepted.
        Flower refuses unregistered keys in the same words, so a node that was never online is started only once.
        """
        chosen = self._node(node)
        if chosen.process is not None and chosen.process.exit_code is None:
            raise InvalidInputError(f"node {node} must be ended before it is started again")
        deadline = time.monotonic() + retry_seconds
        while True:
            self._launch(chosen)
            try:
                return self._wait_for(chosen)
            except DeploymentError as error:
                refused_for_now = chosen.node_id is not None and REFUSED in str(error)
                if not refused_for_now or time.monotonic() + RETRY_SECONDS > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def stop_node(self, node: int) -> None:
        """Ask a node to sign off and to end, and kill what is left of it."""
        if (process := self._node(node).process) is not None:
            process.terminate(GRACE_SECONDS)

    def kill_node(self, node: int) -> None:
        """Kill a node and its client process, as a power cut would."""
        if (process := self._node(node).process) is not None:
            process.kill()

    def node_id(self, node: int) -> int:
        """Return the id that the SuperLink gave to the node when it was last started."""
        if (found := self._node(node).node_id) is None:
            raise InvalidInputError(f"node {node} must have been online before it has an id")
        return found

    def node_statuses(self) -> dict[int, str]:
        """Return what the SuperLink says of each node id: ``registered``, ``online`` or ``offline``."""
        return {int(node["node-id"]): node["status"] for node in self.flwr("supernode", "list")["nodes"]}

    def run(self, app: Path, run_config: Mapping[str, Value]) -> AppRun:
        """Start a Flower app on the deployment; keys of ``run_config`` must be in its ``pyproject.toml``."""
        config = self.folder / "flwr" / f"run-{len(self._runs)}.toml"
        config.write_text(toml_text("run_config", run_config), encoding="utf-8")
        arguments = [str(Path(app).absolute()), commands.CONNECTION, "--stream", "--run-config", str(config)]
        self._runs.append(self._start_process("flwr", ["flwr", "run", *arguments]))
        return AppRun(self._runs[-1], self.flwr)

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run a command of ``flwr`` on the deployment and return its answer."""
        return self._answer(self._start_flwr(*arguments))

    def close(self) -> None:
        """End every process of the deployment; its files stay."""
        guardian.end_marked(self.mark, grace_seconds=GRACE_SECONDS)
        for process in (*self._runs, *(node.process for node in self._nodes), self._superlink):
            if process is not None:
                process.kill()
        if self._guardian is not None and self._guardian.stdin is not None:
            self._guardian.stdin.close()
            self._guardian.wait(GRACE_SECONDS + guardian.KILL_TIMEOUT_SECONDS)
            self._guardian = None

    def _write_files(self) -> None:
        if not self._nodes:
            raise InvalidInputError("node_configs must hold at least one node, got none")
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise InvalidInputError(f"folder must be new or empty, got {self.folder}")
        texts = [toml_text(f"node_configs[{i}]", node.config) for i, node in enumerate(self._nodes)]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        (self.folder / "flwr").mkdir()
        (self.folder / "superlink").mkdir()
        if self.secure:
            make_certificates(self.folder / "superlink")
        for node, text in zip(self._nodes, texts, strict=True):
            node.folder.mkdir()
            node.config_file.write_text(text, encoding="utf-8")
            if self.secure:
                make_node_key(node.key)

    @property
    def _certificate(self) -> Path | None:
        return self.folder / "superlink" / CERTIFICATE if self.secure else None

    def _node(self, number: int) -> _Node:
        if not 0 <= number < len(self._nodes):
            raise InvalidInputError(f"node must be from 0 to {len(self._nodes) - 1}, got {number}")
        return self._nodes[number]

    def _set_port(self, port: int) -> None:
        self._port = port
        home = self.folder / "flwr" / "home"
        home.mkdir(exist_ok=True)
        text = commands.connection_text(self.address, self._certificate)
        (home / "config.toml").write_text(text, encoding="utf-8")

    def _start_process(self, role: str, command: Sequence[str]) -> Process:
        self._start_guardian()
        self._processes_started += 1
        name, *arguments = command
        environment = commands.process_environment(self._environment, self.folder / role / "home")
        return Process(
            [commands.program_path(name, environment), *arguments],
            log=self.folder / role / f"{self._processes_started:03d}-{name}.log",
            mark=f"{self.mark}/{self._processes_started}",
            environment=environment,
        )

    def _start_guardian(self) -> None:
        if self._guardian is None:
            command = [sys.executable, "-I", guardian.__file__, self.mark]
            self._guardian = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def _start_superlink_somewhere(self, tries: int = PORT_TRIES) -> None:
        try:
            self._start_superlink_at(free_port())
        except DeploymentError:
            if tries == 1 or self._superlink is None or PORT_TAKEN not in self._superlink.log_text():
                raise
            self._start_superlink_somewhere(tries - 1)

    def _start_superlink_at(self, port: int) -> None:
        command = commands.superlink_command(self.folder / "superlink", port, secure=self.secure)
        self._superlink = self._start_process("superlink", command)
        try:
            self._superlink.wait_until(lambda: self._answers(port), "ready", START_TIMEOUT_SECONDS)
        except DeploymentError:
            self._superlink.kill()
            raise
        self._set_port(port)

    def _answers(self, port: int) -> bool:
        connection = http.client.HTTPConnection(HOST, port, timeout=HEALTH_TIMEOUT_SECONDS)
        if self._certificate is not None:
            context = ssl.create_default_context(cafile=self._certificate)
            connection = http.client.HTTPSConnection(HOST, port, timeout=HEALTH_TIMEOUT_SECONDS, context=context)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        return False

    def _launch(self, node: _Node) -> None:
        key = node.key if self.secure else None
        command = commands.supernode_command(
            self.address, free_port(), node.config_file, key=key, certificate=self._certificate
        )
        node.process = self._start_process(node.folder.name, command)

    def _wait_for(self, node: _Node, tries: int = PORT_TRIES) -> None:
        process = node.process
        assert process is not None
        try:
            process.wait_until(lambda: bool(NODE_LINE.search(process.log_text())), "online", START_TIMEOUT_SECONDS)
        except DeploymentError:
            process.kill()
            if tries == 1 or PORT_TAKEN not in process.log_text():
                raise
            self._launch(node)
            self._wait_for(node, tries - 1)
        else:
            node.node_id = int(NODE_LINE.findall(process.log_text())[-1])

    def _start_flwr(self, *arguments: str) -> Process:
        return self._start_process("flwr", ["flwr", *arguments, commands.CONNECTION, "--format", "json"])

    def _answer(self, process: Process) -> dict[str, Any]:
        try:
            code = process.wait(COMMAND_TIMEOUT_SECONDS)
        finally:
            process.kill()
        text = process.log_text()
        with contextlib.suppress(json.JSONDecodeError):
            answer: dict[str, Any] = json.loads(text[text.find("{") :])
            if code == 0 and answer.get("success"):
                return answer
        raise process.error(f"ended with exit code {code}")
