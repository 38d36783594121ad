"""A deployment on this machine: its files, and with the marker ``deploy`` its processes."""

import contextlib
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fewjoules.errors import DeploymentError, InvalidInputError
from fewjoules.integrations.flower.loopback import (
    HEARTBEAT_WINDOW_SECONDS,
    Loopback,
    commands,
    guardian,
    superlink,
    supernode,
)
from fewjoules.integrations.flower.loopback.credentials import make_certificates, make_node_key
from fewjoules.integrations.flower.loopback.guardian import end_marked, marked_processes
from fewjoules.integrations.flower.loopback.ports import free_port
from fewjoules.integrations.flower.loopback.processes import Process
from fewjoules.integrations.flower.loopback.settings import toml_text

LONG_SECONDS = 150.0
VALUES = {"client-id": 3, "state.folder": 'a "quoted" \\ ä\n\x7f 🙂 = #', "rate": 1e-05, "on": True, "off": False}

PROJECT = """
[project]
name = "little-app"
version = "1.0.0"
description = "one message to each node"
[tool.flwr.app]
publisher = "tests"
[tool.flwr.app.components]
serverapp = "little:server"
clientapp = "little:client"
[tool.flwr.app.config]
nodes = 1
rounds = 1
fail = false
client-seconds = 0.0
"""
APP = """
import time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()


@client.train()
def train(message, context):
    time.sleep(context.run_config["client-seconds"])
    return Message(RecordDict({"answer": ConfigRecord({"text": context.node_config["text"]})}), reply_to=message)


@server.main()
def main(grid, context):
    if context.run_config["fail"]:
        raise RuntimeError("on purpose")
    while len(nodes := sorted(grid.get_node_ids())) < context.run_config["nodes"]:
        time.sleep(0.2)
    for number in range(context.run_config["rounds"]):
        print("SENT", number, flush=True)
        replies = grid.send_and_receive([Message(RecordDict(), node, "train") for node in nodes])
        texts = sorted(reply.content["answer"]["text"] for reply in replies if reply.has_content())
        print("ROUND", number, texts, flush=True)
"""


@pytest.fixture
def app(tmp_path):
    folder = tmp_path / "little-app"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "little.py").write_text(APP)
    return folder


@pytest.fixture
def fleet(tmp_path):
    """Two nodes, of which nothing is started yet."""
    settings = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05"}
    with contextlib.closing(
        Loopback(tmp_path / "fleet", [{"text": 'it\'s "a"'}, {"text": "b c"}], environment=settings)
    ) as made:
        yield made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def handshake(server_folder: Path, trusted: Path, name: str) -> None:
    """Shake hands over TLS as a client that trusts one authority and expects one name."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(server_folder / "server.pem", server_folder / "server.key")
    client = ssl.create_default_context(cafile=trusted)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        for end in list(ends):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                ends.remove(end)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_certificate_is_trusted_for_this_machine(tmp_path, name):
    make_certificates(tmp_path)
    handshake(tmp_path, tmp_path / "ca.pem", name)


def test_the_certificate_is_for_no_other_name(tmp_path):
    make_certificates(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(tmp_path, tmp_path / "ca.pem", "example.org")


def test_the_certificate_of_another_deployment_is_not_trusted(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        make_certificates(tmp_path / name)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"signature|issuer"):
        handshake(tmp_path / "one", tmp_path / "other" / "ca.pem", "localhost")


def test_the_key_of_the_authority_is_nowhere(tmp_path):
    make_certificates(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.pem", "server.key", "server.pem"]


def test_both_halves_of_a_node_key_belong_together(tmp_path):
    make_node_key(tmp_path / "node.key")
    private = load_ssh_private_key((tmp_path / "node.key").read_bytes(), password=None)
    assert private.public_key() == load_ssh_public_key((tmp_path / "node.pub").read_bytes())
    assert private.curve.name == "secp384r1"


def test_private_keys_are_for_their_owner_only(fleet):
    keys = [
        path for path in fleet.folder.rglob("*") if b"PRIVATE KEY" in (path.read_bytes() if path.is_file() else b"")
    ]
    assert sorted(path.name for path in keys) == ["node.key", "node.key", "server.key"]
    assert {mode(path) for path in keys} == {0o600}
    assert mode(fleet.folder) == 0o700


def test_an_insecure_deployment_has_no_keys(tmp_path):
    fleet = Loopback(tmp_path / "fleet", [{}], secure=False)
    assert [path.name for path in fleet.folder.rglob("*") if path.is_file()] == ["node.toml"]
    with pytest.raises(InvalidInputError, match="secure deployment only"):
        fleet.public_key(0)


def test_settings_are_read_back_as_they_were():
    read = tomllib.loads(toml_text("values", VALUES))
    assert read.pop("state") == {"folder": VALUES["state.folder"]}
    assert read == {key: value for key, value in VALUES.items() if key != "state.folder"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"a b": 1}, "keys of v must consist of letters, digits, '-', '_' and '.', got 'a b'"),
        ({"a": [1]}, "v['a'] must be a string, a number, true or false, got [1]"),
    ],
)
def test_settings_that_flower_cannot_hold_are_refused(values, sentence):
    with pytest.raises(InvalidInputError) as refused:
        toml_text("v", values)
    assert str(refused.value) == sentence


def test_a_folder_with_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(InvalidInputError, match="new or empty"):
        Loopback(tmp_path, [{}])
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_bad_node_config_leaves_no_folder(tmp_path):
    with pytest.raises(InvalidInputError, match=r"node_configs\[1\]\['x'\]"):
        Loopback(tmp_path / "fleet", [{}, {"x": None}])
    assert not (tmp_path / "fleet").exists()


def test_a_deployment_needs_a_node(tmp_path):
    with pytest.raises(InvalidInputError, match="at least one node"):
        Loopback(tmp_path / "fleet", [])


@pytest.mark.parametrize("node", [-1, 2])
def test_only_nodes_that_exist_have_names(fleet, node):
    with pytest.raises(InvalidInputError, match=f"node must be from 0 to 1, got {node}"):
        fleet.start_node(node)


def test_nothing_runs_before_the_superlink(fleet, app):
    with pytest.raises(InvalidInputError, match="must be started before flwr can be run on it"):
        fleet.run(app, {})
    with pytest.raises(InvalidInputError, match="must be started before it has an address"):
        fleet.start_node(0)
    with pytest.raises(InvalidInputError, match="node-0 must have been online before it has an id"):
        fleet.node_id(0)


def test_a_free_port_can_be_bound():
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))


def test_the_connection_file_trusts_the_authority_or_says_insecure(tmp_path):
    secure = tomllib.loads(commands.connection_text("127.0.0.1:5", tmp_path / "ca.pem"))["superlink"]
    assert secure["loopback"] == {"address": "127.0.0.1:5", "root-certificates": str(tmp_path / "ca.pem")}
    insecure = tomllib.loads(commands.connection_text("127.0.0.1:5", None))["superlink"]
    assert insecure["loopback"] == {"address": "127.0.0.1:5", "insecure": True}
    assert secure["default"] == insecure["default"] == "loopback"


def test_flower_stays_off_the_network_and_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", "/elsewhere")
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("NO_PROXY", "example.org")
    environment = commands.process_environment({"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05"}, tmp_path)
    expected = {
        "FLWR_HOME": str(tmp_path),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
        "NO_PROXY": "example.org,127.0.0.1",
    }
    assert expected.items() <= environment.items()
    assert environment["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)


def test_a_missing_program_says_how_to_install_it():
    with pytest.raises(DeploymentError, match=r"fewjoules\[flower\]"):
        commands.program_path("flower-nothing", {"PATH": "/nowhere"})


def test_flower_and_pytorch_are_not_loaded():
    code = "import sys, fewjoules.integrations.flower.loopback; sys.exit(bool({'flwr', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def python(folder: Path, code: str, mark: str = "test-of-loopback") -> Process:
    return Process(
        [sys.executable, "-uc", code], log=folder / "log", mark=f"{mark}/{os.getpid()}", environment=os.environ
    )


def test_a_process_that_ends_too_early_shows_the_end_of_its_log(tmp_path):
    process = python(tmp_path, "for i in range(100): print('line', i)\nraise SystemExit(7)")
    with pytest.raises(DeploymentError) as error:
        process.wait_until(lambda: False, "ready", LONG_SECONDS)
    text = str(error.value)
    assert "ended with exit code 7 before it was ready" in text
    assert "line 99" in text
    assert "line 10\n" not in text


def test_a_process_that_is_too_slow_is_reported_and_can_be_killed(tmp_path):
    process = python(tmp_path, "import time; print('waiting'); time.sleep(600)")
    with pytest.raises(DeploymentError, match="was given 1 s to end, which was not enough"):
        process.wait(1.0)
    process.kill()
    assert process.exit_code == -signal.SIGKILL


def test_lines_come_before_the_process_ends(tmp_path):
    process = python(tmp_path, "import time; print('\\033[92mfirst\\033[0m'); time.sleep(600)")
    assert next(process.log_lines(LONG_SECONDS)) == "first"
    assert process.exit_code is None
    process.kill()


def test_the_last_line_needs_no_end(tmp_path):
    process = python(tmp_path, "print('a\\n\\nb', end='')")
    assert list(process.log_lines(LONG_SECONDS)) == ["a", "", "b"]


CHILDREN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=True)
print("started")
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="marks are read from /proc")
def test_children_in_sessions_of_their_own_are_killed_too(tmp_path):
    process = python(tmp_path, CHILDREN)
    assert next(process.log_lines(LONG_SECONDS)) == "started"
    assert len(marked_processes(process.mark)) == 2
    assert marked_processes(process.mark[:-1]) == []
    process.terminate(0.1)
    assert marked_processes(process.mark) == []
    assert end_marked(process.mark) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="marks are read from /proc")
def test_the_guardian_ends_processes_when_its_parent_is_gone(tmp_path):
    process = python(tmp_path, CHILDREN)
    assert next(process.log_lines(LONG_SECONDS)) == "started"
    command = [sys.executable, "-I", guardian.__file__, process.mark]
    with subprocess.Popen(command, stdin=subprocess.PIPE):
        assert len(marked_processes(process.mark)) == 2
    assert marked_processes(process.mark) == []
    assert process.wait(LONG_SECONDS) == -signal.SIGKILL


class NotedCommands:
    """Stands in for a launcher: notes command lines and starts nothing."""

    def __init__(self):
        self.commands = []

    def start(self, role, command):
        self.commands.append(list(command))


def test_a_node_looks_for_the_superlink_at_the_address_of_its_proxy(tmp_path):
    launcher = NotedCommands()
    link = superlink.SuperLink(tmp_path, launcher, secure=False)
    supernode.SuperNode(tmp_path, link, launcher, via="127.0.0.1:4").launch()
    (command,) = launcher.commands
    assert command[command.index("--superlink") + 1] == "127.0.0.1:4"


def test_addresses_of_proxies_are_one_for_each_node(tmp_path):
    with pytest.raises(InvalidInputError, match="one entry for each of 2 nodes, got 1"):
        Loopback(tmp_path / "fleet", [{}, {}], superlink_addresses=["127.0.0.1:4"])
    assert not (tmp_path / "fleet").exists()


@pytest.mark.deploy
def test_an_app_runs_to_its_end_over_tls_with_keys(fleet, app):
    fleet.start()
    assert set(fleet.node_statuses().values()) == {"online"}
    run = fleet.run(app, {"nodes": 2})
    lines = list(run.lines(LONG_SECONDS))
    assert "ROUND 0 ['b c', 'it\\'s \"a\"']" in lines
    assert run.wait(LONG_SECONDS) == 0
    assert run.status() == "finished:completed"
    assert len(marked_processes(fleet.mark)) >= 3
    fleet.close()
    assert marked_processes(fleet.mark) == []


@pytest.mark.deploy
def test_a_failed_app_has_an_exit_code_and_the_deployment_goes_on(fleet, app):
    fleet.start()
    assert fleet.run(app, {"fail": True}).wait(LONG_SECONDS) == 1
    stopped = fleet.run(app, {"nodes": 3})
    next(line for line in stopped.lines(LONG_SECONDS) if "Start `flwr-serverapp`" in line)
    stopped.stop()
    assert stopped.status() == "finished:stopped"
    assert fleet.run(app, {"nodes": 2}).wait(LONG_SECONDS) == 0


@pytest.mark.deploy
def test_a_node_with_an_unregistered_key_is_refused(fleet):
    fleet.start_superlink()
    fleet.register(fleet.public_key(0), "first")
    fleet.start_node(0)
    with pytest.raises(DeploymentError, match=r"(?s)before it was online.*Failed to initialize the connection"):
        fleet.start_node(1, retry_seconds=LONG_SECONDS)
    assert fleet.node_statuses() == {fleet.node_id(0): "online"}


@pytest.mark.deploy
def test_a_killed_node_is_refused_at_first_and_comes_back_with_its_id(fleet, app):
    fleet.start()
    before = fleet.node_id(0)
    fleet.kill_node(0)
    with pytest.raises(DeploymentError, match=supernode.REFUSED):
        fleet.start_node(0)
    fleet.start_node(0, retry_seconds=HEARTBEAT_WINDOW_SECONDS)
    assert fleet.node_id(0) == before
    assert fleet.run(app, {"nodes": 2}).wait(LONG_SECONDS) == 0


@pytest.mark.deploy
def test_a_stopped_node_signs_off_and_comes_back_at_once(fleet):
    fleet.start()
    before = fleet.node_id(1)
    fleet.stop_node(1)
    assert fleet.node_statuses()[before] == "offline"
    fleet.start_node(1)
    assert fleet.node_id(1) == before


def sent(line: str) -> bool:
    return line.startswith("SENT")


@pytest.mark.deploy
def test_nodes_outlive_a_killed_superlink_but_the_run_does_not(fleet, app):
    fleet.start()
    nodes = [fleet.node_id(0), fleet.node_id(1)]
    lost = fleet.run(app, {"nodes": 2, "client-seconds": 600.0})
    next(filter(sent, lost.lines(LONG_SECONDS)))
    fleet.kill_superlink()
    assert lost.wait(LONG_SECONDS) != 0
    fleet.start_superlink()
    assert fleet.node_statuses() == dict.fromkeys(nodes, "online")
    assert not lost.status().endswith("completed")


@pytest.mark.deploy
def test_apps_run_again_after_a_superlink_was_killed(fleet, app):
    fleet.start()
    fleet.kill_superlink()
    fleet.start_superlink()
    run = fleet.run(app, {"nodes": 2})
    assert run.wait(LONG_SECONDS) == 0
    assert "ROUND 0 ['b c', 'it\\'s \"a\"']" in run.log_text()


PARENT = """
import sys, time
from pathlib import Path
from fewjoules.integrations.flower.loopback import Loopback
fleet = Loopback(Path(sys.argv[1]), [{"text": "a"}], secure=False)
fleet.start()
run = fleet.run(Path(sys.argv[2]), {"client-seconds": 600.0})
next(line for line in run.lines(100) if line.startswith("SENT"))
print(fleet.mark, flush=True)
time.sleep(600)
"""


@pytest.mark.deploy
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_its_parent(tmp_path, app, number):
    command = [sys.executable, "-c", PARENT, str(tmp_path / "fleet"), str(app)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        mark = parent.stdout.readline().strip()
        assert len(marked_processes(mark)) >= 5  # SuperLink, SuperNode, an executor of each, flwr run
        parent.send_signal(number)
    deadline = time.monotonic() + LONG_SECONDS
    while marked_processes(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marked_processes(mark) == []


@pytest.mark.deploy
def test_a_taken_port_is_left_for_another(fleet, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = iter([port, free_port(), port, free_port(), free_port()])
        for module in (superlink, supernode):
            monkeypatch.setattr(module, "free_port", lambda: next(ports))
        fleet.start()
    assert fleet.address != f"127.0.0.1:{port}"
    assert set(fleet.node_statuses().values()) == {"online"}
