"""A plain install plans and codes; what needs an extra says so in one sentence."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fewjoules.errors import FewJoulesError, MissingLibraryError
from fewjoules.extras import EXTRAS, extras_explained, require_extra
from fewjoules.ledger.parquet import read_table
from fewjoules.ledger.schema import LEDGER
from fewjoules.physics.availability import Availability

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LEFT_OUT = ("torch", "safetensors", "pyarrow", "plotly", "flwr", "aiohttp", "pandas", "polars", "tensorboard", "wandb")
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({LEFT_OUT}))\n"
COMMANDS = """
from typer.testing import CliRunner
from fewjoules.cli import app
for words in sys.argv[1:]:
    result = CliRunner().invoke(app, words.split())
    print(result.exit_code, (result.stderr if result.exit_code else result.stdout).strip().splitlines()[0])
"""


def plain(code: str, *arguments: str, folder: Path) -> str:
    """Run code in an interpreter that finds no library of an extra; return what it prints."""
    words = [sys.executable, "-c", WITHOUT + code, *arguments]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def requirements(names: list[str]) -> set[str]:
    return {re.match(r"[\w-]+(\[\w+\])?", name)[0] for name in names}


def test_plans_and_profiles_need_no_extra_and_trainings_are_refused_in_a_sentence(tmp_path):
    refused = ["train", "compare", "tune", "export run", "measure step", "measure codec"]
    works = ["plan", "plan --json", "plan --plot ridge.png", "profiles"]
    lines = plain(COMMANDS, *works, *refused, folder=tmp_path).splitlines()
    assert [line[0] for line in lines[: len(works)]] == ["0"] * len(works)
    for command, line in zip(refused, lines[len(works) :], strict=True):
        name = command.removesuffix(" run")
        assert line == f"2 error: fewjoules {name} needs PyTorch: pip install 'fewjoules[train]'"
    assert [path.name for path in tmp_path.iterdir()] == ["ridge.png"]


def test_the_guides_to_planning_and_the_codec_run_without_extras(tmp_path):
    pages = [(ROOT / "docs" / "how-to" / f"{name}.md").read_text(encoding="utf-8") for name in ("plan-only", "codec")]
    snippets = [re.search(r"```python\n(.*?)```", page, flags=re.DOTALL)[1] for page in pages]
    assert "bits per entry" in plain("\n".join(snippets), folder=tmp_path)


def test_every_public_name_is_there_or_says_what_it_needs(tmp_path):
    code = """
import fewjoules as fj
for name in fj.__all__:
    try:
        getattr(fj, name)
    except ImportError as error:
        assert type(error) is fj.errors.MissingLibraryError
        print(error)
"""
    lines = plain(code, folder=tmp_path).splitlines()
    named = {line.split()[0].removeprefix("fewjoules.") for line in lines}
    assert named >= {"train", "tune", "compare", "resume", "Run", "loggers"}
    assert named.isdisjoint({"solve", "codec", "Scenario", "Plan", "Fleet"})
    assert all(line.endswith("needs PyTorch: pip install 'fewjoules[train]'") for line in lines)


def test_a_network_of_ones_own_says_that_it_needs_pytorch(tmp_path):
    (tmp_path / "nets.py").write_text("def net():\n    import torch\n")
    scenario = (ROOT / "src/fewjoules/embedded/four-groups.toml").read_text(encoding="utf-8")
    own, count = re.subn(r"(?m)^architecture = .*$", 'architecture = "nets:net"', scenario)
    assert count == 1
    (tmp_path / "own.toml").write_text(own)
    line = plain(COMMANDS, "plan own.toml", folder=tmp_path)
    assert line.startswith("2 error: ")
    assert "model.architecture = 'nets:net' needs PyTorch: pip install 'fewjoules[train]'" in line


def test_a_parquet_file_says_that_it_needs_pyarrow(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    needed = r"trace.parquet needs PyArrow: pip install 'fewjoules\[dataframes\]'$"
    with pytest.raises(MissingLibraryError, match=needed):
        Availability.read(tmp_path / "trace.parquet")
    with pytest.raises(MissingLibraryError, match=needed):
        read_table(tmp_path / "trace.parquet", LEDGER)


def test_a_missing_library_is_an_error_of_the_tree_and_an_import_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingLibraryError, match=r"^x needs PyArrow: pip install 'fewjoules\[train\]'$") as caught:
        require_extra("train", "x")
    assert isinstance(caught.value, FewJoulesError)
    assert isinstance(caught.value, ImportError)
    require_extra("train", "x", "torch")


def test_only_imports_of_extras_are_explained():
    with pytest.raises(MissingLibraryError, match="a page needs Flower"), extras_explained("a page"):
        raise ModuleNotFoundError("no", name="flwr.app")
    with pytest.raises(ModuleNotFoundError, match="no"), extras_explained("a page"):
        raise ModuleNotFoundError("no", name="my_module")


def test_the_extras_of_the_sentences_are_those_of_the_project():
    extras = PROJECT["optional-dependencies"]
    base = requirements(PROJECT["dependencies"])
    assert base.isdisjoint(LEFT_OUT)
    for extra, libraries in EXTRAS.items():
        names = requirements(extras[extra])
        if "fewjoules[train]" in names:
            names |= requirements(extras["train"])
        assert set(libraries) <= names
