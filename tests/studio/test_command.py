"""``fewjoules studio`` starts, says where, refuses what it must in one sentence, and ends by Ctrl-C."""

import re
import signal
import socket
import subprocess
import sys
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner

from fewjoules.cli import app


def refused(*arguments):
    answer = CliRunner().invoke(app, ["studio", *arguments])
    assert answer.exit_code == 2
    assert answer.stdout == ""
    return answer.stderr.strip()


def test_it_answers_at_the_printed_address_until_ctrl_c(tmp_path):
    command = [sys.executable, "-m", "fewjoules", "studio", str(tmp_path), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", "".join(lines))[0]
        token = address.partition("token=")[2]
        port = address.split(":")[2].split("/")[0]
        cookie = {"Cookie": f"fewjoules-studio-{port}={token}"}
        with urlopen(Request(f"http://127.0.0.1:{port}/plan", headers=cookie), timeout=120) as answer:
            page = answer.read().decode()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=120)
    assert str(tmp_path) in lines[0]
    assert "<title>Plan - FewJoules studio</title>" in page
    assert process.returncode == 0
    assert (rest, errors) == ("", "")


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    assert refused(str(tmp_path / "gone")) == f"error: {tmp_path / 'gone'}: must be a folder that exists"
    file = tmp_path / "file"
    file.write_text("x")
    assert "must be a folder" in refused(str(file))


def test_a_port_that_is_taken_is_refused(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert refused(str(tmp_path), "--port", str(port)).startswith(f"error: --port {port} cannot be used")


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_must_be_one(tmp_path, port):
    assert "--port must be a whole number from 0 to 65535" in refused(str(tmp_path), "--port", port)


def test_without_aiohttp_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert refused(str(tmp_path)) == "error: fewjoules studio needs aiohttp: pip install 'fewjoules[studio]'"
