"""The SuperLink of a deployment on 127.0.0.1."""

import contextlib
import http.client
import ssl
from pathlib import Path

from fewjoules.errors import DeploymentError, InvalidInputError
from fewjoules.integrations.flower.loopback import commands
from fewjoules.integrations.flower.loopback.credentials import CERTIFICATE, HOST
from fewjoules.integrations.flower.loopback.launcher import GRACE_SECONDS, START_TIMEOUT_SECONDS, Launcher
from fewjoules.integrations.flower.loopback.ports import PORT_TAKEN, PORT_TRIES, free_port
from fewjoules.integrations.flower.loopback.processes import Process

ROLE = "superlink"
HEALTH_TIMEOUT_SECONDS = 2.0


class SuperLink:
    """A SuperLink that keeps its port and its database when it is started again."""

    def __init__(self, folder: Path, launcher: Launcher, *, secure: bool) -> None:
        """Start nothing yet; ``folder`` holds the certificates of a secure SuperLink."""
        self.certificate = folder / CERTIFICATE if secure else None
        self._folder, self._launcher = folder, launcher
        self._port: int | None = None
        self._process: Process | None = None

    @property
    def started(self) -> bool:
        """Whether the SuperLink has been started, so that it has a port."""
        return self._port is not None

    @property
    def address(self) -> str:
        """Host and port."""
        if self._port is None:
            raise InvalidInputError("the SuperLink must be started before it has an address")
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        """Start the SuperLink and wait until it answers."""
        if self._process is not None and self._process.exit_code is None:
            raise InvalidInputError("the SuperLink must be ended before it is started again")
        if self._port is None:
            self._start_somewhere()
        else:
            self._start_at(self._port)

    def stop(self) -> None:
        """Ask the SuperLink to end, and kill what is left of it."""
        if self._process is not None:
            self._process.terminate(GRACE_SECONDS)

    def processes(self) -> dict[int, str]:
        """Return the ids and command lines of the SuperLink and of all that it started."""
        return {} if self._process is None else self._process.family()

    def kill(self) -> None:
        """Kill the SuperLink and all that it started."""
        if self._process is not None:
            self._process.kill()

    def _start_somewhere(self, tries: int = PORT_TRIES) -> None:
        try:
            self._start_at(free_port())
        except DeploymentError:
            if tries == 1 or self._process is None or PORT_TAKEN not in self._process.log_text():
                raise
            self._start_somewhere(tries - 1)

    def _start_at(self, port: int) -> None:
        command = commands.superlink_command(self._folder, port, secure=self.certificate is not None)
        self._process = self._launcher.start(ROLE, command)
        try:
            self._process.wait_until(lambda: self._answers(port), "ready", START_TIMEOUT_SECONDS)
        except DeploymentError:
            self._process.kill()
            raise
        self._port = port

    def _answers(self, port: int) -> bool:
        connection = http.client.HTTPConnection(HOST, port, timeout=HEALTH_TIMEOUT_SECONDS)
        if self.certificate is not None:
            context = ssl.create_default_context(cafile=self.certificate)
            connection = http.client.HTTPSConnection(HOST, port, timeout=HEALTH_TIMEOUT_SECONDS, context=context)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        return False
