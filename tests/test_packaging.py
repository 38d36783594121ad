"""What a release is made of agrees: versions, bounds, and the scripts that read them."""

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import fewjoules

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def script(name: str):
    found = importlib.util.spec_from_file_location(name, ROOT / "packaging" / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_version_is_the_same_everywhere():
    version = fewjoules.__version__
    reproduction = tomllib.loads((ROOT / "reproduction" / "pyproject.toml").read_text(encoding="utf-8"))
    assert reproduction["project"]["version"] == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    newest = re.search(r"(?m)^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert newest[1] in (version, "Unreleased")


def test_every_bound_becomes_a_version_to_test_with():
    lowest = script("lowest")
    pinned = lowest.lowest(PROJECT["dependencies"])
    assert [line.replace("==", ">=") for line in pinned] == PROJECT["dependencies"]
    assert lowest.lowest(["flwr>=1.41,<1.42", "mkdocstrings[python]>=0.26"]) == ["flwr==1.41", "mkdocstrings==0.26"]
    with pytest.raises(SystemExit, match="'numpy' must have a lower bound"):
        lowest.lowest(["numpy"])


def test_a_lock_holds_versions_of_others_and_nothing_of_this_machine():
    frozen = [
        "zipp==4.1.2\n",
        "# editable install (fewjoules==0.2.0)\n",
        "-e /home/me/fewjoules\n",
        "fewjoules @ file:///home/me/fewjoules\n",
        "torch==2.13.0+cpu\n",
        "nvidia-cublas==13.1\n",
        "Jinja2==3.1.6+local\n",
    ]
    assert script("lock").constraints(frozen) == ["Jinja2==3.1.6", "zipp==4.1.2"]


def test_constraints_name_no_index_and_no_pytorch():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert not any(line.startswith(("torch==", "fewjoules")) for line in lines)


def test_the_demo_installs_what_a_training_needs():
    commands = subprocess.run(
        ["make", "--dry-run", "VENV=no-environment", "demo"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert "--editable '.[train]'" in commands
    assert commands.index("--editable") < commands.index("fewjoules compare")


def test_what_is_promised_to_pyright_is_the_public_name_and_its_parts():
    is_of = script("verify_types").is_of
    promised = ["fewjoules.physics.fleet.Fleet"]
    assert is_of("fewjoules.physics.fleet.Fleet", promised)
    assert is_of("fewjoules.physics.fleet.Fleet.__init__", promised)
    assert not is_of("fewjoules.physics.fleet.Fleet._row", promised)
    assert not is_of("fewjoules.physics.fleet.FleetArray", promised)
