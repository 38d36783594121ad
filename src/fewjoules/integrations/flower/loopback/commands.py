"""The command lines, the environment and the connection file of a deployment on 127.0.0.1."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from fewjoules.errors import DeploymentError
from fewjoules.integrations.flower.loopback.credentials import CERTIFICATE, HOST, SERVER_CERTIFICATE, SERVER_KEY
from fewjoules.integrations.flower.loopback.settings import Value, toml_text

CONNECTION = "loopback"
DATABASE = "state.db"
FLOWER_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "PYTHONUNBUFFERED": "1",  # lines reach the log as they are written
    "PYTHONUTF8": "1",
    "COLUMNS": "200",  # the frames around errors are as wide
}


def process_environment(extra: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the environment of this process with the settings of Flower, then ``extra``, then what must be.

    The programs of Flower start each other by name, so the folder of this Python comes first in PATH.
    """
    environment = {**os.environ, **FLOWER_SETTINGS, **extra, "FLWR_HOME": str(home)}
    for name in ("NO_PROXY", "no_proxy"):
        environment[name] = ",".join(filter(None, [environment.get(name), HOST]))
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    return environment


def program_path(name: str, environment: Mapping[str, str]) -> str:
    """Return the file of a program of Flower."""
    if (path := shutil.which(name, path=environment["PATH"])) is None:
        raise DeploymentError(f"{name} was not found; install Flower with: pip install 'fewjoules[flower]'")
    return path


def superlink_command(folder: Path, port: int, *, secure: bool) -> list[str]:
    """Return the command line of a SuperLink with its files in ``folder``."""
    command = ["flower-superlink", "--host", HOST, "--port", str(port), "--database", str(folder / DATABASE)]
    command += ["--disable-runtime-dependency-installation"]
    if not secure:
        return [*command, "--insecure"]
    files = {"--ssl-ca-certfile": CERTIFICATE, "--ssl-certfile": SERVER_CERTIFICATE, "--ssl-keyfile": SERVER_KEY}
    for option, name in files.items():
        command += [option, str(folder / name)]
    return [*command, "--enable-supernode-auth"]


def supernode_command(superlink: str, port: int, config: Path, *, key: Path, certificate: Path | None) -> list[str]:
    """Return the command line of a SuperNode, which without a certificate uses neither TLS nor its key."""
    command = ["flower-supernode", "--superlink", superlink, "--host", HOST, "--port", str(port)]
    command += ["--node-config", str(config)]
    if certificate is None:
        return [*command, "--insecure"]
    return [*command, "--root-certificates", str(certificate), "--auth-supernode-private-key", str(key)]


def connection_text(superlink: str, certificate: Path | None) -> str:
    """Return the ``config.toml`` by which the command ``flwr`` finds the SuperLink."""
    trust: dict[str, Value] = {"root-certificates": str(certificate)} if certificate else {"insecure": True}
    default = toml_text("superlink", {"default": CONNECTION})
    return f"[superlink]\n{default}[superlink.{CONNECTION}]\n{toml_text('superlink', {'address': superlink} | trust)}"
