"""Commands that other distributions add by entry points of the group ``fewjoules.commands``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fewjoules.cli import plugins
from tests.test_bad_input import assert_refused, run

GOOD = """
def greet(name: str) -> None:
    \"\"\"Greet someone.\"\"\"
    print(f"hello {name}")
"""
BROKEN = "import a_module_that_nobody_has"


def install(folder: Path, commands: str, name: str = "greeter", **modules: str) -> None:
    """Put a distribution into the folder as an installer would: modules, metadata and entry points."""
    data = folder / f"{name}-1.0.dist-info"
    data.mkdir()
    (data / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (data / "entry_points.txt").write_text(f"[fewjoules.commands]\n{commands}\n")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


@pytest.fixture
def site(tmp_path):
    install(tmp_path, "zebra = greeting:greet\nant = greeting:greet\nplan = greeting:greet", greeting=GOOD)
    install(
        tmp_path,
        "broken = broken:greet\nnumber = numbers_only:greet",
        "spoiler",
        broken=BROKEN,
        numbers_only="greet = 7",
    )
    return tmp_path


def program(site, *arguments):
    """Run ``fewjoules`` in a process that finds the distributions of the folder."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "fewjoules", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_command_of_another_distribution_runs(site):
    done = program(site, "ant", "Ada")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello Ada\n", "")


def test_help_lists_commands_of_others_by_name_after_the_own_ones(site):
    done = program(site, "--help")
    listed = [line.split()[0] for line in done.stdout.partition("Commands:")[2].splitlines() if line.strip()]
    others = [name for name in listed if name in ("ant", "zebra")]
    assert others == ["ant", "zebra"]
    assert listed.index("calibrate") < listed.index("ant")
    assert listed.count("plan") == 1


def test_a_command_that_fails_to_load_is_left_out_of_the_help_with_one_sentence(site):
    done = program(site, "--help")
    assert done.returncode == 0
    assert sorted(line.split("(")[0] for line in done.stderr.splitlines()) == [
        "warning: the command 'broken' of spoiler cannot be loaded ",
        "warning: the command 'number' of spoiler cannot be loaded ",
    ]
    assert "a_module_that_nobody_has" in done.stderr


def test_other_commands_do_not_even_look_at_a_command_that_fails_to_load(site):
    done = program(site, "plan", "--help")
    assert done.returncode == 0
    assert "--solver" in done.stdout, "a plug-in cannot replace a command"
    assert done.stderr == ""


def test_calling_a_command_that_fails_to_load_is_refused_in_one_sentence(site):
    done = program(site, "broken", "Ada")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the command 'broken' of spoiler cannot be loaded (ModuleNotFoundError")


def test_reproduce_says_how_to_install_it_where_it_is_not(monkeypatch):
    monkeypatch.setattr(plugins, "entry_points", lambda **_: ())
    assert_refused(run("reproduce", "--quick"), "fewjoules-reproduction", "pip install ./reproduction")


def test_an_unknown_command_is_refused_as_before():
    refusal = run("nonsense")
    assert refusal.exit_code == 2
    assert "No such command" in refusal.stderr
