"""One SuperLink and some SuperNodes as real processes on 127.0.0.1, for demonstrations, tests and benchmarks."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fewjoules.errors import InvalidInputError
from fewjoules.integrations.flower.loopback import commands, superlink, supernode
from fewjoules.integrations.flower.loopback.app_run import AppRun
from fewjoules.integrations.flower.loopback.credentials import make_certificates, make_node_key
from fewjoules.integrations.flower.loopback.launcher import Launcher
from fewjoules.integrations.flower.loopback.processes import Process
from fewjoules.integrations.flower.loopback.settings import Value, toml_text
from fewjoules.integrations.flower.loopback.superlink import SuperLink
from fewjoules.integrations.flower.loopback.supernode import SuperNode

FLWR = "flwr"
JSON = ("--format", "json")
COMMAND_TIMEOUT_SECONDS = 60.0
HEARTBEAT_WINDOW_SECONDS = 70.0  # Flower refuses the key of a killed node for up to 60 s


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
        superlink_addresses: Sequence[str] | None = None,
    ) -> None:
        """Write certificates, keys and settings to a new or empty folder; start nothing yet.

        ``node_configs`` holds what the client app of each node finds in ``context.node_config``. A deployment that is
        not ``secure`` has neither TLS nor keys. ``environment`` is added to that of this process. For a proxy between
        nodes and SuperLink, ``superlink_addresses`` says at which host and port each node looks for the SuperLink.
        """
        if superlink_addresses is not None and len(superlink_addresses) != len(node_configs):
            raise InvalidInputError(
                f"superlink_addresses must have one entry for each of {len(node_configs)} nodes, "
                f"got {len(superlink_addresses)}"
            )
        self.folder, self.secure = Path(folder).absolute(), secure
        folders = _write_files(self.folder, node_configs, secure=secure)
        self._launcher = Launcher(self.folder, environment or {})
        self._superlink = SuperLink(self.folder / superlink.ROLE, self._launcher, secure=secure)
        addresses: Sequence[str | None] = superlink_addresses or [None] * len(folders)
        self._nodes = [
            SuperNode(each, self._superlink, self._launcher, via=via)
            for each, via in zip(folders, addresses, strict=True)
        ]
        self._runs = 0

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
    def mark(self) -> str:
        """What ``FEWJOULES_LOOPBACK`` begins with in the environment of every process of the deployment."""
        return self._launcher.mark

    @property
    def address(self) -> str:
        """Host and port of the SuperLink, which stay the same when it is started again."""
        return self._superlink.address

    def start(self) -> None:
        """Start the SuperLink, register the keys of all nodes, start the nodes and wait until they are online."""
        try:
            self.start_superlink()
            if self.secure:
                self.register_nodes()
            for node in self._nodes:
                node.launch()
            for node in self._nodes:
                node.wait()
        except BaseException:
            self.close()
            raise

    def start_superlink(self) -> None:
        """Start the SuperLink, or start it again with its port and its database, and wait until it answers."""
        self._superlink.start()
        home = self._launcher.home(FLWR)
        home.mkdir(exist_ok=True)
        text = commands.connection_text(self.address, self._superlink.certificate)
        (home / "config.toml").write_text(text, encoding="utf-8")

    def stop_superlink(self) -> None:
        """Ask the SuperLink to end, and kill what is left of it."""
        self._superlink.stop()

    def kill_superlink(self) -> None:
        """Kill the SuperLink, also the process of a ServerApp, as a power cut would."""
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
        processes = [
            self._start_flwr("supernode", "register", str(self.public_key(i)), "--name", node.name, *JSON)
            for i, node in enumerate(self._nodes)
        ]
        return [int(_answer(process)["node-id"]) for process in processes]

    def start_node(self, node: int, *, retry_seconds: float = 0.0) -> None:
        """Start a node and wait until it is online.

        For up to a minute after a kill, the SuperLink believes that the node is online and refuses its key. With
        ``retry_seconds`` (``HEARTBEAT_WINDOW_SECONDS`` is enough) the node is started again until it is accepted.
        Flower refuses unregistered keys in the same words, so a node that was never online is started only once.
        """
        self._node(node).start(retry_seconds)

    def stop_node(self, node: int) -> None:
        """Ask a node to sign off and to end, and kill what is left of it."""
        self._node(node).stop()

    def kill_node(self, node: int) -> None:
        """Kill a node and its client process, as a power cut would."""
        self._node(node).kill()

    def node_processes(self, node: int) -> dict[int, str]:
        """Return the running processes of a node, also its client process and worker: ids and command lines."""
        return self._node(node).processes()

    def superlink_processes(self) -> dict[int, str]:
        """Return the running processes of the SuperLink, also that of a ServerApp: ids and command lines."""
        return self._superlink.processes()

    def node_id(self, node: int) -> int:
        """Return the id that the SuperLink gave to the node when it was last started."""
        return self._node(node).node_id

    def node_statuses(self) -> dict[int, str]:
        """Return what the SuperLink says of each node id: ``registered``, ``online`` or ``offline``."""
        return {int(node["node-id"]): node["status"] for node in self.flwr("supernode", "list")["nodes"]}

    def run(self, app: Path, run_config: Mapping[str, Value]) -> AppRun:
        """Start a Flower app on the deployment; keys of ``run_config`` must be in its ``pyproject.toml``."""
        text = toml_text("run_config", run_config)
        self._runs += 1
        config = self.folder / FLWR / f"run-{self._runs}.toml"
        config.write_text(text, encoding="utf-8")
        process = self._start_flwr("run", str(Path(app).absolute()), "--stream", "--run-config", str(config))
        return AppRun(process, self.flwr)

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run a command of ``flwr`` on the deployment and return its answer."""
        return _answer(self._start_flwr(*arguments, *JSON))

    def close(self) -> None:
        """End every process of the deployment; its files stay."""
        self._launcher.close()

    def _node(self, number: int) -> SuperNode:
        if not 0 <= number < len(self._nodes):
            raise InvalidInputError(f"node must be from 0 to {len(self._nodes) - 1}, got {number}")
        return self._nodes[number]

    def _start_flwr(self, *arguments: str) -> Process:
        if not self._superlink.started:
            raise InvalidInputError("the SuperLink must be started before flwr can be run on it")
        return self._launcher.start(FLWR, ["flwr", *arguments])


def _write_files(folder: Path, node_configs: Sequence[Mapping[str, Value]], *, secure: bool) -> list[Path]:
    """Write what the processes will read, and return the folders of the nodes."""
    if not node_configs:
        raise InvalidInputError("node_configs must hold at least one node, got none")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInputError(f"folder must be new or empty, got {folder}")
    texts = [toml_text(f"node_configs[{i}]", config) for i, config in enumerate(node_configs)]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    (folder / FLWR).mkdir()
    (folder / superlink.ROLE).mkdir()
    if secure:
        make_certificates(folder / superlink.ROLE)
    nodes = [folder / f"node-{i}" for i in range(len(texts))]
    for node, text in zip(nodes, texts, strict=True):
        node.mkdir()
        (node / supernode.CONFIG_FILE).write_text(text, encoding="utf-8")
        if secure:
            make_node_key(node / supernode.KEY_FILE)
    return nodes


def _answer(process: Process) -> dict[str, Any]:
    """Return what a command of ``flwr`` answered as JSON."""
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
