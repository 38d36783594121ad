"""A SuperNode of a deployment on 127.0.0.1."""

import re
import time
from pathlib import Path

from fewjoules.errors import DeploymentError, InvalidInputError
from fewjoules.integrations.flower.loopback import commands
from fewjoules.integrations.flower.loopback.launcher import GRACE_SECONDS, START_TIMEOUT_SECONDS, Launcher
from fewjoules.integrations.flower.loopback.ports import PORT_TAKEN, PORT_TRIES, free_port
from fewjoules.integrations.flower.loopback.processes import Process
from fewjoules.integrations.flower.loopback.superlink import SuperLink

CONFIG_FILE, KEY_FILE = "node.toml", "node.key"
RETRY_SECONDS = 2.0
REFUSED = "Failed to activate SuperNode"
NODE_LINE = re.compile(r"SuperNode ID: (\d+)\s")


class SuperNode:
    """A SuperNode that keeps its key and its settings when it is started again."""

    def __init__(self, folder: Path, superlink: SuperLink, launcher: Launcher, *, via: str | None = None) -> None:
        """Start nothing yet; ``folder`` holds ``node.toml`` and, in a secure deployment, ``node.key``.

        ``via`` is the address at which the node looks for the SuperLink, if it is not the SuperLink's own.
        """
        self.name = folder.name
        self.key, self._config = folder / KEY_FILE, folder / CONFIG_FILE
        self._superlink, self._launcher, self._via = superlink, launcher, via
        self._process: Process | None = None
        self._id: int | None = None

    @property
    def node_id(self) -> int:
        """The id that the SuperLink gave to the node when it was last started."""
        if self._id is None:
            raise InvalidInputError(f"{self.name} must have been online before it has an id")
        return self._id

    def start(self, retry_seconds: float) -> None:
        """Start the node and wait until it is online; start it again while it is refused for its last heartbeat."""
        deadline = time.monotonic() + retry_seconds
        while True:
            self.launch()
            try:
                return self.wait()
            except DeploymentError as error:
                refused_for_now = self._id is not None and REFUSED in str(error)
                if not refused_for_now or time.monotonic() + RETRY_SECONDS > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def launch(self) -> None:
        """Start the node without waiting for it."""
        if self._process is not None and self._process.exit_code is None:
            raise InvalidInputError(f"{self.name} must be ended before it is started again")
        address, certificate = self._via or self._superlink.address, self._superlink.certificate
        command = commands.supernode_command(address, free_port(), self._config, key=self.key, certificate=certificate)
        self._process = self._launcher.start(self.name, command)

    def wait(self, tries: int = PORT_TRIES) -> None:
        """Wait until the launched node is online, on another port if another process has taken its own."""
        process = self._process
        assert process is not None
        try:
            process.wait_until(lambda: bool(NODE_LINE.search(process.log_text())), "online", START_TIMEOUT_SECONDS)
        except DeploymentError:
            process.kill()
            if tries == 1 or PORT_TAKEN not in process.log_text():
                raise
            self.launch()
            self.wait(tries - 1)
        else:
            self._id = int(NODE_LINE.findall(process.log_text())[-1])

    def stop(self) -> None:
        """Ask the node to sign off and to end, and kill what is left of it."""
        if self._process is not None:
            self._process.terminate(GRACE_SECONDS)

    def processes(self) -> dict[int, str]:
        """Return the ids and command lines of the node and of all that it started."""
        return {} if self._process is None else self._process.family()

    def kill(self) -> None:
        """Kill the node and all that it started."""
        if self._process is not None:
            self._process.kill()
